// download.test.mjs tests the CSV that is saved.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toCSV } from '../../../server/explorer/src/download.js';

test('labels are first line and column, numbers stay what they are', () => {
  const csv = toCSV(Float64Array.of(0.1, 0.98522025, 1, 1e-8), 2, 2, ['q0', 'q1'], ['k0', 'k1']);
  assert.equal(csv, ',k0,k1\r\nq0,0.1,0.98522025\r\nq1,1,1e-8\r\n');
  assert.equal(toCSV([0.1, 1 / 3], 1, 2), '0.1,0.3333333333333333\r\n');
});

test('quotes, commas and ends of lines are quoted; no label is a formula', () => {
  const csv = toCSV([1, 2], 1, 2, ['say "a, b"'], ['=1+1', 'two\nlines']);
  assert.equal(csv, ',\'=1+1,"two\nlines"\r\n"say ""a, b""",1,2\r\n');
});

test('−∞ is -inf, nothing is an empty field', () => {
  assert.equal(toCSV([-Infinity, null, NaN, 0], 2, 2), '-inf,\r\n,0\r\n');
});
