// expected.mjs compares the numbers that the page shows with those that tests/notebooks expects. tests/notebooks/README.md has the rule.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

export function readCase(name) {
  return JSON.parse(readFileSync(new URL(`../notebooks/${name}.expected.json`, import.meta.url)));
}

const part = (rule, member) => (typeof rule === 'object' && rule !== null ? (rule[member] ?? null) : (rule ?? null));

// Returns how far a number of a row may be from the expected number.
function allowed({ decimals, absolute, tolerance }, member, row) {
  const places = part(decimals, member);
  // The number may be half a unit of the last printed digit away, and a little more because decimal digits are not exact in binary.
  // test_notebooks.c uses the same factor.
  const rounding = places === null ? 0 : 0.5000001 * 10 ** -places;
  const largest = Math.max(...row.map((value) => Math.abs(value ?? 0)));
  return rounding + (part(absolute, member) ?? 0) + (part(tolerance, member) ?? 0) * largest;
}

// Asserts that `shown` is the matrix that a notebook expects for `member`. shown: rows of numbers, with -Infinity for null.
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
