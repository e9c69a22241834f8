// matrices.test.mjs compares the matrices that the page makes of nested arrays with drawn numbers at the place that their indices say.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { columns, matrices, measured, nested, rank, rowOf, split, vectors } from '../../../server/explorer/src/matrices.js';
import { drawing, nestedOf } from '../draw.mjs';

test('drawn arrays of every rank become matrices by batch item and head, from lists and from parts of one memory', () => {
  const { whole, pick, numbers } = drawing(3);
  for (let round = 0; round < 200; round++) {
    const axes = whole(0, 3);
    const headed = pick([false, true]);
    const [batch, heads, rows, cols] = [
      Array.from({ length: axes }, () => whole(1, 3)),
      headed ? whole(1, 3) : 1,
      whole(1, 4),
      whole(1, 4),
    ];
    const shape = [...batch, ...(headed ? [heads] : []), rows, cols];
    const items = batch.reduce((a, b) => a * b, 1);
    const list = numbers(items * heads * rows * cols);
    for (const value of [nestedOf([...list], shape), nested(list, shape)]) {
      assert.equal(rank(value), shape.length);
      const found = matrices(value, axes);
      assert.deepEqual([found.length, ...found.map((item) => item.length)], [items, ...Array(items).fill(heads)], String(shape));
      found.flat().forEach((one, at) => {
        assert.deepEqual([one.rows, one.cols], [rows, cols]);
        assert.deepEqual([...one.data], [...list.slice(at * rows * cols, (at + 1) * rows * cols)]);
      });
    }
    const perQuery = [...batch, ...(headed ? [heads] : []), rows];
    const some = numbers(items * heads * rows);
    const texts = nestedOf(Array.from(some, (x) => (x > 1 ? null : x)), perQuery); // prettier-ignore
    const found = vectors(texts, axes);
    assert.deepEqual([found.length, found[0].length], [items, heads]);
    found.flat().forEach((one, at) => assert.deepEqual([...one], Array.from(some.slice(at * rows, (at + 1) * rows), (x) => (x > 1 ? -Infinity : x)))); // prettier-ignore
  }
  assert.equal(nested(Float64Array.of(5), []), 5);
  assert.equal(rank(5), 0);
});

test('drawn columns and heads side by side are those of the matrix', () => {
  const { whole, matrix } = drawing(4);
  for (let round = 0; round < 100; round++) {
    const [rows, heads, each] = [whole(1, 4), whole(1, 4), whole(1, 3)];
    const one = matrix(rows, heads * each);
    const cell = (row, col) => one.data[row * one.cols + col];
    const [[...parts]] = split([[one]], heads);
    assert.equal(parts.length, heads);
    parts.forEach((part, head) => {
      assert.deepEqual([part.rows, part.cols], [rows, each]);
      part.data.forEach((x, at) => assert.equal(x, cell(Math.floor(at / each), head * each + (at % each))));
      assert.deepEqual(part, columns(one, head * each, each));
    });
    const row = whole(0, rows - 1);
    assert.deepEqual(
      [...rowOf(one, row)],
      Array.from({ length: one.cols }, (_, col) => cell(row, col)),
    );
  }
});

test('the range, the masked cells and the largest number of each row are those of the numbers', () => {
  const { whole, pick, numbers } = drawing(5);
  for (let round = 0; round < 200; round++) {
    const [rows, cols] = [whole(1, 4), whole(1, 4)];
    const data = numbers(rows * cols).map((x) => pick([x, x, x, -Infinity, ...(round % 5 ? [] : [Infinity])]));
    const finite = [...data].filter(Number.isFinite);
    const { lo, hi, masked, bits, largest } = measured({ rows, cols, data });
    const above = [...data].filter((x) => x > -Infinity);
    assert.deepEqual([lo, hi], above.length ? [Math.min(...above) === Infinity ? 0 : Math.min(...above), Math.max(...finite, ...(finite.length ? [] : [0]))] : [0, 0]); // prettier-ignore
    assert.equal(masked, data.length - above.length);
    assert.deepEqual(bits && [...bits], masked ? Array.from(data, (x) => Number(x === -Infinity)) : null);
    for (let row = 0; row < rows; row++) assert.equal(largest[row], Math.max(0, ...data.slice(row * cols, (row + 1) * cols)));
  }
});
