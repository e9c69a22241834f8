// zoom.test.mjs tests the ranges of cells that a zoom shows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { holding, scaled, within } from '../../../server/explorer/src/zoom.js';

const range = (row0, row1, col0, col1) => ({ row0, row1, col0, col1 });
const matrix = { rows: 30, cols: 20 };

test('a range stays within its matrix and keeps its size where it can', () => {
  assert.deepEqual(within(range(-5, 5, 15, 25), matrix), range(0, 10, 10, 20));
  assert.deepEqual(within(range(-5, 50, 3, 4), matrix), range(0, 30, 3, 4));
});

test('closer halves a range around a cell, farther doubles it', () => {
  assert.deepEqual(scaled(range(0, 30, 0, 20), { row: 15, col: 10 }, true, matrix), range(8, 23, 5, 15));
  assert.deepEqual(scaled(range(8, 23, 5, 15), { row: 29, col: 0 }, false, matrix), range(0, 30, 0, 20));
  assert.deepEqual(scaled(range(0, 30, 0, 20), { row: 29, col: 0 }, true, matrix), range(15, 30, 0, 10));
  assert.deepEqual(scaled(range(0, 4, 0, 3), { row: 1, col: 1 }, true, matrix), range(0, 4, 0, 3), 'four cells are close enough');
});

test('an oblong range loses its longer side first', () => {
  assert.deepEqual(scaled(range(0, 9, 0, 512), { row: 4, col: 256 }, true, { rows: 9, cols: 512 }), range(0, 9, 128, 384));
});

test('a range moves no farther than to hold a cell', () => {
  assert.deepEqual(holding(range(5, 10, 5, 10), { row: 7, col: 7 }), range(5, 10, 5, 10));
  assert.deepEqual(holding(range(5, 10, 5, 10), { row: 10, col: 3 }), range(6, 11, 3, 8));
});
