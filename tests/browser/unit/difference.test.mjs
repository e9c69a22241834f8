// difference.test.mjs tests how the explorer compares a result with that of a user's own kernel.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { makeScale, raster } from '../../../server/explorer/src/colour.js';
import { ATOL, difference, fitTo, largestError, partsOf, RTOL } from '../../../server/explorer/src/difference.js';

const matrix = (rows, cols, values) => ({ rows, cols, data: Float64Array.from(values) });
const row = (...values) => matrix(1, values.length, values);
const one = (...values) => [[row(...values)]];

test('an array fits with and without the axes of size 1', () => {
  const fits = (wanted, ...shapes) => {
    const [batch, heads, rows, cols] = wanted;
    for (const shape of shapes) assert.equal(fitTo(shape, { batch, heads, rows, cols }), null, `${shape} is ${wanted}`);
  };
  fits([1, 1, 4, 6], [4, 6], [1, 4, 6], [1, 1, 4, 6], [1, 1, 1, 4, 6]);
  fits([1, 2, 4, 6], [2, 4, 6], [1, 2, 4, 6]);
  fits([3, 1, 4, 6], [3, 4, 6], [3, 1, 4, 6], [1, 3, 4, 6]);
  fits([3, 2, 4, 6], [3, 2, 4, 6], [1, 3, 2, 4, 6]);
  fits([1, 1, 1, 6], [6], [1, 6]);
  fits([1, 1, 1, 1], [], [1], [1, 1]);
});

test('an array that does not fit is refused with both shapes', () => {
  const says = (shape, [batch, heads, rows, cols], text, name) => assert.equal(fitTo(shape, { batch, heads, rows, cols }, name), text);
  says([4, 8], [1, 1, 4, 6], 'The file has 4 × 8, and the output has 4 × 6.');
  says([6, 4], [1, 1, 4, 6], 'The file has 6 × 4, and the output has 4 × 6.');
  says([4, 6], [1, 2, 4, 6], 'The file has 4 × 6, and the weights have 2 × 4 × 6.', 'weights');
  says([1, 4, 2, 6], [1, 2, 4, 6], 'The file has 1 × 4 × 2 × 6, and the scaled scores have 2 × 4 × 6.', 'scaled_scores');
  says([2, 1, 4, 6], [1, 2, 4, 6], 'The file has 2 × 1 × 4 × 6, and Q has 2 × 4 × 6.', 'Q');
  says([6, 4, 6], [3, 2, 4, 6], 'The file has 6 × 4 × 6, and the output has 3 × 2 × 4 × 6.');
  says([3, 6, 4], [3, 1, 4, 6], 'The file has 3 × 6 × 4, and the output has 3 × 4 × 6.');
  says([24], [1, 1, 4, 6], 'The file has 24, and the output has 4 × 6.');
  says([4], [1, 1, 4, 1], 'The file has 4, and the output has 4 × 1.');
  says([0, 6], [1, 1, 4, 6], 'The file has 0 × 6, and the output has 4 × 6.');
  says([], [1, 1, 1, 2], 'The file has one number, and the output has 1 × 2.');
});

test('the parts of an array are its memory, by batch item and head', () => {
  const data = Float64Array.from({ length: 24 }, (_, i) => i);
  const parts = partsOf({ data }, { batch: 2, heads: 3, rows: 2, cols: 2 });
  assert.deepEqual([parts.length, parts[0].length, parts[1].length], [2, 3, 3]);
  assert.deepEqual(parts[1][2], { rows: 2, cols: 2, data: Float64Array.of(20, 21, 22, 23) });
  assert.deepEqual(parts[0][1], { rows: 2, cols: 2, data: Float64Array.of(4, 5, 6, 7) });
  assert.equal(parts[1][0].data.buffer, data.buffer);
});

test('a difference is theirs less ours, with its range', () => {
  const { data, lo, hi, masked, bits, largest, broken, brokenCount } = difference(
    matrix(2, 2, [1, 2, 3, -Infinity]),
    matrix(2, 2, [1.5, 2, 1, -Infinity]),
  );
  assert.deepEqual([...data], [0.5, 0, -2, -Infinity]);
  assert.deepEqual([lo, hi, masked, [...bits], [...largest]], [-2, 0.5, 1, [0, 0, 0, 1], [0.5, 0]]);
  assert.deepEqual([broken, brokenCount], [[], 0]);
  assert.equal(difference(row(1, 2), row(1, 2)).bits, null);
});

test('a cell without a finite difference is broken and NaN', () => {
  const ours = row(1, 2, 3, 4, -Infinity, -Infinity, -Infinity, -Infinity, 1e308);
  const theirs = row(NaN, Infinity, -Infinity, 5, 6, NaN, Infinity, -Infinity, -1e308);
  const found = difference(ours, theirs);
  assert.deepEqual([...found.data], [NaN, NaN, NaN, 1, NaN, NaN, NaN, -Infinity, NaN]);
  assert.deepEqual([found.lo, found.hi, found.masked, found.brokenCount], [1, 1, 1, 7]);
  assert.deepEqual(found.broken, [0, 1, 2, 4, 5, 6, 8]);
  assert.deepEqual([...found.bits], [1, 1, 1, 0, 1, 1, 1, 1, 1]);
  const many = difference(matrix(50, 40, new Float64Array(2000)), matrix(50, 40, new Float64Array(2000).fill(NaN)));
  assert.deepEqual([many.brokenCount, many.broken.length, many.broken.at(-1)], [2000, 1000, 999]);
  assert.deepEqual([many.lo, many.hi, many.masked], [0, 0, 0]);
});

test('a picture has no colour where cells are broken or masked', () => {
  const found = difference(row(1, 2, -Infinity), row(2, NaN, -Infinity));
  const scale = makeScale({ ...found, signed: true, log: false });
  const range = { row0: 0, row1: 1, col0: 0, col1: 3 };
  const { pixels } = raster({ ...found, mask: found.bits }, scale, range, 3);
  assert.deepEqual([pixels[3], pixels[7], pixels[11]], [255, 0, 0]);
});

test('the largest error has its place and both numbers', () => {
  const ours = [
    [matrix(2, 2, [1, 2, 3, 4]), matrix(2, 2, [1, 2, 3, 4])],
    [matrix(2, 2, [1, 2, 3, 4]), matrix(2, 2, [1, 2, 3, -4])],
  ];
  const theirs = [
    [matrix(2, 2, [1, 2, 3, 4]), matrix(2, 2, [1, 2, 3.25, 4])],
    [matrix(2, 2, [1, 1.5, 3, 4]), matrix(2, 2, [1, 2, 2, -5])],
  ];
  assert.deepEqual(largestError(ours, theirs), {
    error: 1,
    relative: 1 / 3,
    batch: 1,
    head: 1,
    row: 1,
    col: 0,
    ours: 3,
    theirs: 2,
    count: 16,
    over: 4,
    brokenCount: 0,
    firstBroken: null,
  });
  const wide = largestError([[matrix(2, 3, [1, 1, 1, 1, 1, 1])]], [[matrix(2, 3, [1, 1, 1, 1, 1, 2])]]);
  assert.deepEqual([wide.row, wide.col], [1, 2]);
  const { error, relative, col } = largestError(one(1, 0), one(1, -2));
  assert.deepEqual([error, relative, col], [2, Infinity, 1]);
});

test('equal results have no error', () => {
  const { error, relative, batch, head, row: at, col, ours, theirs, over, count } = largestError(one(0, 2), one(-0, 2));
  assert.deepEqual([error, relative, batch, head, at, col, ours, theirs + 0, over, count], [0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
});

test('the tolerances are those of torch.testing.assert_close for the type of the numbers', () => {
  assert.deepEqual([ATOL, RTOL], [1e-5, { F16: 1e-3, BF16: 1.6e-2, F32: 1.3e-6 }]);
  const over = (ours, theirs) => largestError(one(ours), one(theirs)).over;
  assert.deepEqual([over(0, 0.9e-5), over(0, 1.1e-5), over(0, -1.1e-5)], [0, 1, 1]);
  const ofHalf = (type) => [1.0009, 1.0011, 1.015, 1.017].map((theirs) => largestError(one(1), one(theirs), type).over);
  assert.deepEqual([ofHalf('F16'), ofHalf('BF16')], [[0, 1, 1, 1], [0, 0, 0, 1]]); // prettier-ignore
  assert.deepEqual([over(100, 100 + 1.3e-4), over(-100, -100 - 1.3e-4), over(-100, -100 + 1.5e-4)], [0, 0, 1]);
});

test('broken cells are counted apart, and they are over any tolerance', () => {
  const ours = [[row(1, 2, -Infinity), row(-Infinity, 1, 3)]];
  const theirs = [[row(1, 2.5, -Infinity), row(7, NaN, 3)]];
  const found = largestError(ours, theirs);
  assert.deepEqual([found.error, found.head, found.col, found.count, found.over, found.brokenCount], [0.5, 0, 1, 5, 3, 2]);
  assert.deepEqual(found.firstBroken, { batch: 0, head: 1, row: 0, col: 0, ours: -Infinity, theirs: 7 });
});

test('without a finite difference there is no largest error', () => {
  const none = largestError(one(1, -Infinity), one(Infinity, -Infinity));
  assert.deepEqual(
    [none.error, none.relative, none.batch, none.row, none.ours, none.count, none.over],
    [null, null, null, null, null, 1, 1],
  );
  assert.deepEqual(none.firstBroken, { batch: 0, head: 0, row: 0, col: 0, ours: 1, theirs: Infinity });
});
