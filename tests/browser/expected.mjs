// expected.mjs - what tests/notebooks says an answer must be, for numbers that the page shows. The rule is that of
// tests/notebooks/README.md.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

export function readCase(name) {
  return JSON.parse(readFileSync(new URL(`../notebooks/${name}.expected.json`, import.meta.url)));
}

const part = (rule, member) => (typeof rule === 'object' && rule !== null ? (rule[member] ?? null) : (rule ?? null));

// How far a number of this row may be from what is expected.
function allowed({ decimals, absolute, tolerance }, member, row) {
  const places = part(decimals, member);
  // Half a unit of the last printed digit, and a hair for reading that digit as binary, as in test_notebooks.c.
  const rounding = places === null ? 0 : 0.5000001 * 10 ** -places;
  const largest = Math.max(...row.map((value) => Math.abs(value ?? 0)));
  return rounding + (part(absolute, member) ?? 0) + (part(tolerance, member) ?? 0) * largest;
}

// Holds `shown`, rows of numbers with -Infinity where an answer has null, to the matrix that a case expects of `member`.
export function assertShown(notebook, member, expected, shown) {
  const where = `${notebook.title}: ${member}`;
  assert.equal(shown.length, expected.length, `${where}: rows`);
  expected.forEach((row, i) => {
    assert.equal(shown[i].length, row.length, `${where}: columns of row ${i}`);
    const most = allowed(notebook, member, row);
    row.forEach((value, j) => {
      const got = shown[i][j];
      const fits = value === null ? got === -Infinity : Math.abs(got - value) <= most;
      assert.ok(fits, `${where}: row ${i}, column ${j} shows ${got}, not ${value} ± ${most}`);
    });
  });
}
