// download.test.mjs tests the CSV that is saved.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toCSV } from '../../../server/explorer/src/download.js';

const csvOf = (rowNames, colNames, ...numbers) =>
  toCSV({ rows: rowNames.length, cols: colNames.length, data: Float64Array.from(numbers), rowNames, colNames });

test('labels are first line and column, numbers stay what they are', () => {
  const csv = csvOf(['q0', 'q1'], ['k0', 'k1'], 0.1, 0.98522025, 1, 1e-8);
  assert.equal(csv, ',k0,k1\r\nq0,0.1,0.98522025\r\nq1,1,1e-8\r\n');
  assert.equal(csvOf(['q0'], ['k0', 'k1'], 0.1, 1 / 3), ',k0,k1\r\nq0,0.1,0.3333333333333333\r\n');
});

test('quotes, commas and ends of lines are quoted; no label is a formula', () => {
  const csv = csvOf(['say "a, b"'], ['=1+1', 'two\nlines'], 1, 2);
  assert.equal(csv, ',\'=1+1,"two\nlines"\r\n"say ""a, b""",1,2\r\n');
});

test('−∞ is -inf, NaN is an empty field', () => {
  assert.equal(csvOf(['q0'], ['a', 'b', 'c'], -Infinity, NaN, 0), ',a,b,c\r\nq0,-inf,,0\r\n');
});
