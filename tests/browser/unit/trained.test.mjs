// trained.test.mjs runs the trained model of two layers without a server: plain loops compute what the server would answer. NumPy has
// computed the expected numbers (tests/models/train_story.py --expected).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { isStored, readTrained, requestOf, runTrained, wordsOf } from '../../../server/explorer/src/trained.js';

const read = (path) => readFileSync(new URL(`../../../${path}`, import.meta.url));
const EXPECTED = JSON.parse(read('tests/data/golden_story.json'));
const model = await readTrained(new Blob([read('server/models/story.safetensors')]));
const WORDS = EXPECTED.text.split(' ');

const product = (a, b) => a.map((row) => b[0].map((_, c) => row.reduce((sum, value, k) => sum + value * b[k][c], 0)));
const nested = ({ rows, cols, data }) => Array.from({ length: rows }, (_, row) => [...data.subarray(row * cols, (row + 1) * cols)]);
const columns = (rows, from, to) => rows.map((row) => row.slice(from, to));

// Answers as the server does, for one layer: softmax over the keys that a query may see, and zeros if it may see none.
function attention(X, [W_Q, W_K, W_V, W_O], heads, mask) {
  const d = W_Q[0].length / heads;
  const [Q, K, V] = [W_Q, W_K, W_V].map((W) => product(X, W));
  const weights = Array.from({ length: heads }, (_, head) => {
    const [q, k] = [Q, K].map((rows) => columns(rows, head * d, (head + 1) * d));
    return q.map((query, i) => {
      const terms = k.map((key, j) =>
        j <= i && (mask?.[head][i][j] ?? true) ? Math.exp(query.reduce((sum, value, c) => sum + value * key[c], 0) / Math.sqrt(d)) : 0,
      );
      const sum = terms.reduce((a, b) => a + b);
      return terms.map((term) => (sum ? term / sum : 0));
    });
  });
  const parts = weights.map((rows, head) => product(rows, columns(V, head * d, (head + 1) * d)));
  return {
    weights,
    output: product(
      X.map((_, i) => parts.flatMap((rows) => rows[i])),
      W_O,
    ),
  };
}

const asked = [];
async function post(path, body) {
  asked.push({ path, body });
  assert.deepEqual(body.return, ['output', 'weights']);
  const parts = ['W_Q', 'W_K', 'W_V', 'W_O'];
  if (path === '/multi-head-attention') {
    assert.equal(body.causal, true);
    return attention(
      body.X,
      parts.map((part) => body[part]),
      body.heads,
      body.mask,
    );
  }
  const layer = model.layers[/^\/layers\/story\.([01])\/attention$/.exec(path)[1]];
  return attention(
    body.X,
    parts.map((part) => nested(layer[part])),
    model.heads,
    body.mask,
  );
}

const near = (a, b, what) => assert.ok(Math.abs(a - b) < 1e-8, `${what}: ${a} is not ${b}`);

test('the weights of all heads and the next words are those of NumPy, also with heads off', async () => {
  for (const stored of [true, false]) {
    for (const { off, next } of EXPECTED.cases) {
      const found = await runTrained(model, WORDS, post, { off, stored });
      assert.equal(found.layers.length, 2);
      assert.equal(found.next.at(-1).length, model.words.length);
      for (const { word, probability } of found.next.at(-1)) near(probability, next[model.words.indexOf(word)], word);
      found.next
        .at(-1)
        .slice(1)
        .forEach(({ probability }, at) => assert.ok(probability <= found.next.at(-1)[at].probability));
      found.layers.forEach(({ weights, X }, layer) =>
        weights.forEach(({ rows, cols, data, hi }, head) => {
          assert.deepEqual([rows, cols, X.length, X[0].length], [7, 7, 7, 64]);
          if (off.some(([l, h]) => l === layer && h === head)) assert.equal(hi, 0);
          if (!off.length) EXPECTED.weights[layer][head].flat().forEach((value, at) => near(data[at], value, `${layer}.${head}`));
        }),
      );
    }
  }
});

test('the surname comes again only with both heads', async () => {
  const [first] = (await runTrained(model, WORDS, post)).next.at(-1);
  assert.deepEqual([first.word, first.probability > 0.9], ['Hill', true]);
  for (const off of [[[0, 0]], [[1, 0]]]) {
    const { next } = await runTrained(model, WORDS, post, { off });
    assert.ok(next.at(-1).find(({ word }) => word === 'Hill').probability < 0.2, JSON.stringify(off));
  }
});

test('what a layer has of a word depends on the words up to it alone', async () => {
  const all = await runTrained(model, WORDS, post);
  const some = await runTrained(model, WORDS.slice(0, 4), post);
  some.layers.forEach(({ X }, layer) => X.flat().forEach((value, at) => near(all.layers[layer].X.flat()[at], value, `${layer}, ${at}`)));
});

test('a request has a mask only for heads that are off, and weights only for a server without the layer', () => {
  const X = [Array(64).fill(0), Array(64).fill(1)];
  assert.deepEqual(requestOf(model, 1, X), { path: '/layers/story.1/attention', body: { X, return: ['output', 'weights'] } });
  const { mask } = requestOf(model, 1, X, { off: [1] }).body;
  assert.deepEqual(mask.flat(2), [1, 1, 1, 1, 0, 0, 0, 0].map(Boolean));
  const { path, body } = requestOf(model, 0, X, { stored: false });
  assert.deepEqual([path, body.heads, body.W_O.length, body.W_O[0].length], ['/multi-head-attention', 2, 64, 64]);
});

test('words are found in typed text, and what the model does not know is said', async () => {
  assert.deepEqual(wordsOf(model, 'anna HILL  meets the Cat.'), {
    words: ['Anna', 'Hill', 'meets', 'the', 'cat', '.'],
    unknown: [],
    left: 0,
  });
  const { words, unknown } = wordsOf(model, 'Anna met Ben, the cat’s friend');
  assert.deepEqual(words, ['Anna', 'Ben', 'the']);
  assert.deepEqual(unknown, ['met', ',', 'cat’s', 'friend']);
  assert.deepEqual([wordsOf(model, 'cat '.repeat(40)).words.length, wordsOf(model, 'cat '.repeat(40)).left], [32, 8]);
  assert.deepEqual(wordsOf(model, ' '), { words: [], unknown: [], left: 0 });
  for (const wrong of [[], ['met'], Array(33).fill('cat')])
    await assert.rejects(runTrained(model, wrong, post), /1 to 32 of its own words/);
});

test('the layers of another model do not count as those of this one', () => {
  const listed = [0, 1].map((layer) => ({ name: `story.${layer}`, heads: 2, d_model: 64, causal: true }));
  assert.ok(isStored(model, listed));
  for (const other of [[], listed.slice(1), [listed[0], { ...listed[1], heads: 8 }]]) assert.ok(!isStored(model, other));
});
