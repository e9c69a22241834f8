// rollout.test.mjs tests the rollout of attention over layers. NumPy has computed the expected numbers:
//   m = weights.mean(1) + np.eye(3); m /= m.sum(-1, keepdims=True); m[1] @ m[0]
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { product } from '../../../server/explorer/src/answer.js';
import { measured } from '../../../server/explorer/src/matrices.js';
import { factorsOf, meanOf, rollout } from '../../../server/explorer/src/rollout.js';
import { drawing } from '../draw.mjs';

const matrix = (rows) => measured({ rows: rows.length, cols: rows[0].length, data: Float64Array.from(rows.flat()) });
// prettier-ignore
const WEIGHTS = [
  [[[0.272, 0.39, 0.338], [0.161, 0.215, 0.624], [0.003, 0.506, 0.491]],
   [[0.446, 0.289, 0.265], [0.212, 0.37, 0.419], [0.236, 0.425, 0.339]]],
  [[[0.341, 0.541, 0.118], [0.196, 0.75, 0.054], [0.035, 0.506, 0.459]],
   [[0.445, 0.305, 0.25], [0.657, 0.327, 0.016], [0.177, 0.638, 0.185]]],
].map((heads) => heads.map(matrix));
// prettier-ignore
const EXPECTED = [
  0.4984861956385903, 0.2762915880717321, 0.2252222162896776,
  0.2176636338415396, 0.5372758741095977, 0.2450604920488628,
  0.10217108429142714, 0.3476258046738316, 0.5502031110347414,
];

test('the rollout of two layers of two heads is that of NumPy', () => {
  const { rows, cols, data, lo, hi } = rollout(WEIGHTS);
  assert.deepEqual([rows, cols, lo, hi], [3, 3, Math.min(...data), Math.max(...data)]);
  EXPECTED.forEach((value, at) => assert.ok(Math.abs(data[at] - value) < 1e-15, `${at}: ${data[at]} is not ${value}`));
});

test('a row of weights that are all 0 hands on only its own word', () => {
  const [[first]] = WEIGHTS;
  const none = measured({ rows: 3, cols: 3, data: new Float64Array(9) });
  assert.deepEqual(rollout([[none], [first]]).data, rollout([[first]]).data);
});

test('there is no rollout of matrices that are not square or of several sizes', () => {
  const [[square]] = WEIGHTS;
  assert.equal(rollout([[matrix([[1, 0, 0]])]]), null);
  assert.equal(rollout([[square], [matrix([[1]])]]), null);
});

test('the mean of drawn heads is that of each cell, and the two factors of a rollout are a product that gives it', () => {
  const draws = drawing(17);
  const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-12 * (1 + Math.abs(b)), `${a} is not ${b}`);
  for (let round = 0; round < 50; round++) {
    const [rows, cols, count] = [draws.whole(1, 4), draws.whole(1, 4), draws.whole(1, 3)];
    const heads = Array.from({ length: count }, () => draws.matrix(rows, cols));
    const mean = meanOf(heads);
    assert.deepEqual([mean.rows, mean.cols, mean.data.length], [rows, cols, rows * cols]);
    mean.data.forEach((x, at) => near(x, heads.reduce((sum, one) => sum + one.data[at], 0) / count)); // prettier-ignore
    const square = () => ({ rows, cols: rows, data: Float64Array.from({ length: rows * rows }, draws.random) });
    const layers = Array.from({ length: draws.whole(1, 3) }, () => Array.from({ length: count }, square));
    const whole = rollout(layers);
    product(...factorsOf(layers)).data.forEach((x, at) => near(x, whole.data[at]));
  }
});
