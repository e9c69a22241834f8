// curve.test.mjs tests that the values of the softmax curve are those of the notebook to the last bit, and how its axes are divided.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { requestFor, temperatureAt, ticks, VALUES } from '../../../server/explorer/src/curve.js';

const notebook = JSON.parse(readFileSync(new URL('../../notebooks/001-softmax-curve.request.json', import.meta.url)));

test("the values are np.arange(-5, 5, 0.1)'s", () => {
  assert.deepEqual(VALUES, notebook.X);
  assert.deepEqual(requestFor(1), { X: notebook.X, dtype: notebook.dtype });
});

test('the slider goes from 0.1 to 10 with 1 in the middle', () => {
  assert.deepEqual([-1, 0, 0.3, 1].map(temperatureAt), [0.1, 1, 2, 10]);
  assert.equal(requestFor(2).X[0], -2.5);
});

test('ticks are round, begin at 0 and reach the largest value', () => {
  assert.deepEqual(ticks(0.0952), [0, 0.02, 0.04, 0.06, 0.08, 0.1]);
  for (let max = 1e-4; max < 2; max *= 1.03) {
    const marks = ticks(max);
    assert.ok(marks[0] === 0 && marks.at(-1) >= max && marks.at(-2) < max, `${max}: ${marks}`);
    assert.ok(marks.length >= 3 && marks.length <= 8, `${max}: ${marks}`);
  }
});
