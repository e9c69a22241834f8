// pairs.test.mjs tests which pairs of a query and a key get a line.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drawing } from '../draw.mjs';
import { choosePairs, makeHead, massCut, weightText } from '../../../server/explorer/src/pairs.js';

const all = { cols: 3, threshold: 0, mode: 'weight', key: null };
const places = (lines) => lines.map(({ query, key }) => [query, key]).sort();

test('every weight but 0 is a line, the strongest last', () => {
  const head = makeHead(Float32Array.of(0.5, 0.25, 0.25, 0, 0.1, 0.9));
  const { lines, count } = choosePairs([head], 0, 2, all, 100);
  assert.equal(count, 5);
  assert.deepEqual(places(lines), [
    [0, 0],
    [0, 1],
    [0, 2],
    [1, 1],
    [1, 2],
  ]);
  assert.equal(lines.at(-1).strength, 1);
  assert.deepEqual([lines.at(-1).query, lines.at(-1).key], [1, 2]);
});

test('a threshold hides what is below it and keeps what equals it', () => {
  const head = makeHead(Float32Array.of(0.5, 0.25, 0.25, 0.0625, 0.4375, 0.5));
  const { lines } = choosePairs([head], 0, 2, { ...all, threshold: 0.25 }, 100);
  assert.deepEqual(places(lines), [
    [0, 0],
    [0, 1],
    [0, 2],
    [1, 1],
    [1, 2],
  ]);
});

test('a masked pair is never drawn, nor does its weight count', () => {
  const head = makeHead(Float32Array.of(0.2, 9, 0.8), Uint8Array.of(0, 1, 0));
  assert.ok(Math.abs(head.max - 0.8) < 1e-6);
  assert.deepEqual(places(choosePairs([head], 0, 1, all, 100).lines), [
    [0, 0],
    [0, 2],
  ]);
  const mass = { ...all, mode: 'mass', threshold: 0.9 };
  assert.deepEqual(places(choosePairs([head], 0, 1, mass, 100).lines), [
    [0, 0],
    [0, 2],
  ]);
});

test('by mass, the fewest keys that hold the part of the row', () => {
  const head = makeHead(Float32Array.of(0.1, 0.6, 0.3));
  const kept = (threshold) => places(choosePairs([makeHead(head.weights)], 0, 1, { ...all, mode: 'mass', threshold }, 100).lines);
  assert.deepEqual(kept(0), [[0, 1]]);
  assert.deepEqual(kept(0.6), [[0, 1]]);
  assert.deepEqual(kept(0.61), [
    [0, 1],
    [0, 2],
  ]);
  assert.deepEqual(kept(1), [
    [0, 0],
    [0, 1],
    [0, 2],
  ]);
});

test('by mass, no more keys than needed among equals', () => {
  const rule = { cols: 4, threshold: 0.5, mode: 'mass', key: null };
  const head = makeHead(Float32Array.of(0.25, 0.25, 0.25, 0.25));
  assert.deepEqual(places(choosePairs([head], 0, 1, rule, 100).lines), [
    [0, 0],
    [0, 1],
  ]);
  assert.deepEqual(massCut(Float64Array.of(0, 0, 0), 0.5), { least: Infinity, ties: 0 });
});

test('by mass, against trying every number of keys', () => {
  let seed = 7;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 500; round++) {
    const sizes = Array.from({ length: 1 + Math.floor(random() * 9) }, () => Math.round(random() * 8) / 8);
    const mass = random();
    const { lines } = choosePairs(
      [makeHead(Float64Array.from(sizes))],
      0,
      1,
      { cols: sizes.length, threshold: mass, mode: 'mass', key: null },
      100,
    );
    const sorted = sizes.filter((size) => size > 0).sort((a, b) => b - a);
    const total = sorted.reduce((sum, size) => sum + size, 0);
    let need = sorted.length === 0 ? 0 : 1;
    while (sorted.slice(0, need).reduce((sum, size) => sum + size, 0) < mass * total) {
      need++;
    }
    assert.deepEqual(
      lines.map(({ weight }) => weight).sort((a, b) => b - a),
      sorted.slice(0, need),
      `${sizes} ${mass}`,
    );
  }
});

test('the pairs of drawn heads are those that the rule says, the strongest of all heads up to the limit', () => {
  const { whole, pick, random } = drawing(12);
  for (let round = 0; round < 400; round++) {
    const [heads, rows, cols] = [whole(1, 3), whole(1, 4), whole(1, 5)];
    const first = whole(0, rows - 1);
    const last = whole(first + 1, rows);
    const [mode, key, limit] = [pick(['weight', 'mass']), pick([null, null, whole(0, cols - 1)]), pick([100, 100, 1, 2, 5])];
    const threshold = pick([0, 0.25, 0.5, random(), 1]);
    const given = Array.from({ length: heads }, () => {
      const weights = Float32Array.from({ length: rows * cols }, () => whole(-4, 4) / 8);
      const masked = pick([null, Uint8Array.from({ length: rows * cols }, () => whole(0, 1))]);
      return { weights, masked };
    });
    const sizeOf = (head, at) => (given[head].masked?.[at] ? 0 : Math.abs(given[head].weights[at]));
    const kept = [];
    for (let head = 0; head < heads; head++) {
      for (let query = first; query < last; query++) {
        const row = Array.from({ length: cols }, (_, k) => ({ head, query, key: k, size: sizeOf(head, query * cols + k) }));
        const some = row.filter(({ size }) => size > 0 && (mode === 'mass' || size >= threshold));
        if (mode === 'mass') {
          some.sort((a, b) => b.size - a.size || a.key - b.key);
          const total = some.reduce((sum, { size }) => sum + size, 0);
          let count = some.length ? 1 : 0;
          for (let held = some[0]?.size; held < threshold * total && count < some.length; count++) held += some[count].size;
          some.length = count;
        }
        kept.push(...some.filter((one) => key === null || one.key === key));
      }
    }
    const made = given.map(({ weights, masked }) => makeHead(weights, masked));
    made.forEach(({ max }, head) => assert.equal(max, Math.max(...Array.from(given[head].weights, (_, at) => sizeOf(head, at)))));
    const { lines, count } = choosePairs(made, first, last, { cols, threshold, mode, key }, limit);
    assert.equal(count, kept.length);
    const strongest = kept.sort((a, b) => b.size - a.size).slice(0, limit);
    assert.deepEqual(lines.map(({ weight }) => Math.abs(weight)), strongest.map(({ size }) => size).reverse()); // prettier-ignore
    const most = Math.max(...made.map(({ max }) => max));
    for (const { head, query, key: k, weight, strength } of lines) {
      assert.ok(
        kept.some((one) => one.head === head && one.query === query && one.key === k),
        'the rule keeps each line',
      );
      assert.equal(weight, given[head].weights[query * cols + k]);
      assert.equal(strength, Math.abs(weight) / most);
    }
    assert.equal(new Set(lines.map(({ head, query, key: k }) => `${head} ${query} ${k}`)).size, lines.length, 'no line twice');
  }
});

test('one key alone; several heads; negative weights by their size', () => {
  const one = makeHead(Float32Array.of(-1, 0.5, 0.5, 0.25));
  const two = makeHead(Float32Array.of(0.5, 0, 0.5, 0));
  const { lines } = choosePairs([one, two], 0, 2, { ...all, cols: 2, key: 0 }, 100);
  assert.deepEqual(lines.map(({ head, query, key }) => `${head}:${query}-${key}`).sort(), ['0:0-0', '0:1-0', '1:0-0', '1:1-0']);
  assert.equal(lines.at(-1).weight, -1);
});

test('over the limit the strongest are listed and all are counted', () => {
  const n = 64;
  const weights = Float32Array.from({ length: n * n }, (_, i) => ((i * 7919) % (n * n)) / (n * n));
  const { lines, count } = choosePairs([makeHead(weights)], 0, n, { ...all, cols: n }, 100);
  assert.equal(count, n * n - 1);
  assert.equal(lines.length, 100);
  const sorted = [...weights].sort((a, b) => b - a);
  assert.ok(lines[0].weight >= sorted[99] - 1 / 1024, 'none is weaker than the hundredth by more than a bucket');
  assert.equal(lines.at(-1).weight, sorted[0]);
});

test('a weight as text', () => {
  assert.equal(weightText(0), '0');
  assert.equal(weightText(0.7491), '0.749');
  assert.equal(weightText(2e-5), '2e−5');
  assert.equal(weightText(-2e-5), '−2e−5');
  assert.equal(weightText(-1.5), '−1.500');
  assert.equal(weightText(12345.6), '1.235e+4');
});
