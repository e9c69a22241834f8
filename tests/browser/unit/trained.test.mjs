// trained.test.mjs runs the trained model of two layers without a server: plain loops compute what the server would answer. NumPy has
// computed the expected numbers (tests/models/train_story.py --expected).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { isStored, nearWords, nextOf, readTrained, replaceWord, requestOf, runTrained, wordsOf } from '../../../server/explorer/src/trained.js';

const read = (path) => readFileSync(new URL(`../../../${path}`, import.meta.url));
const EXPECTED = JSON.parse(read('tests/data/golden_story.json'));
const model = await readTrained(new Blob([read('server/models/story.safetensors')]));
const WORDS = EXPECTED.text.split(' ');
const { rows: PLACES, cols: COLUMNS } = model.positions;
const last = ({ sums }, temperature) => nextOf(model, sums.at(-1), temperature);

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
      const all = last(found);
      assert.equal(all.length, model.words.length);
      for (const { word, probability } of all) near(probability, next[model.words.indexOf(word)], word);
      all.slice(1).forEach(({ probability }, at) => assert.ok(probability <= all[at].probability));
      found.layers.forEach(({ weights, X }, layer) =>
        weights.forEach(({ rows, cols, data, hi }, head) => {
          assert.deepEqual([rows, cols, X.length, X[0].length], [WORDS.length, WORDS.length, WORDS.length, COLUMNS]);
          if (off.some(([l, h]) => l === layer && h === head)) assert.equal(hi, 0);
          if (!off.length) EXPECTED.weights[layer][head].flat().forEach((value, at) => near(data[at], value, `${layer}.${head}`));
        }),
      );
    }
  }
});

test('the surname comes again only with both heads', async () => {
  const [first] = last(await runTrained(model, WORDS, post));
  assert.deepEqual([first.word, first.probability > 0.8], ['Smith', true]);
  for (const off of [[[0, 0]], [[1, 0]]]) {
    const found = last(await runTrained(model, WORDS, post, { off })).find(({ word }) => word === 'Smith');
    assert.ok(found.probability < 0.2, JSON.stringify(off));
  }
});

test('a temperature divides the scores of the next words', async () => {
  const found = await runTrained(model, WORDS, post);
  const powers = last(found).map(({ word, probability }) => ({ word, power: probability ** 0.5 }));
  const sum = powers.reduce((total, { power }) => total + power, 0);
  last(found, 2).forEach(({ word, probability }, at) => {
    assert.equal(word, powers[at].word);
    near(probability, powers[at].power / sum, word);
  });
});

test('a hidden word is seen by itself alone, in all heads of both layers', async () => {
  for (const { weights } of (await runTrained(model, WORDS, post, { hidden: 2 })).layers)
    for (const { cols, data } of weights)
      WORDS.forEach((word, i) => assert.equal(data[i * cols + 2] > 0, i === 2, `${word} looks at the hidden word`));
});

test('what a layer has of a word depends on the words up to it alone', async () => {
  const all = await runTrained(model, WORDS, post);
  const some = await runTrained(model, WORDS.slice(0, 4), post);
  some.layers.forEach(({ X }, layer) => X.flat().forEach((value, at) => near(all.layers[layer].X.flat()[at], value, `${layer}, ${at}`)));
});

test('a request has a mask only for heads that are off, and weights only for a server without the layer', () => {
  const X = [Array(COLUMNS).fill(0), Array(COLUMNS).fill(1)];
  assert.deepEqual(requestOf(model, 1, X), { path: '/layers/story.1/attention', body: { X, return: ['output', 'weights'] } });
  const { mask } = requestOf(model, 1, X, { off: [1] }).body;
  assert.deepEqual(mask.flat(2), [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1].map(Boolean));
  assert.deepEqual(requestOf(model, 1, X, { off: [1], hidden: 0 }).body.mask.flat(2), [1, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 1].map(Boolean));
  const { path, body } = requestOf(model, 0, X, { stored: false });
  assert.deepEqual([path, body.heads, body.W_O.length, body.W_O[0].length], ['/multi-head-attention', 3, COLUMNS, COLUMNS]);
});

test('words are found in typed text, and what the model does not know is said', async () => {
  assert.deepEqual(wordsOf(model, 'anna SMITH  met the Cat.'), {
    words: ['Anna', 'Smith', 'met', 'the', 'cat', '.'],
    unknown: [],
    left: 0,
  });
  assert.deepEqual(wordsOf(model, 'It didn’t bark').words, ['it', 'did', 'not']);
  assert.deepEqual(wordsOf(model, 'Anna can’t').unknown, ['can’t']);
  const { words, unknown } = wordsOf(model, 'Anna meets Ben; the cat’s friend');
  assert.deepEqual(words, ['Anna', 'Ben', 'the', 'friend']);
  assert.deepEqual(unknown, ['meets', ';', 'cat’s']);
  const many = wordsOf(model, 'cat '.repeat(PLACES + 8));
  assert.deepEqual([many.words.length, many.left], [PLACES, 8]);
  assert.deepEqual(wordsOf(model, ' '), { words: [], unknown: [], left: 0 });
  for (const wrong of [[], ['meets'], Array(PLACES + 1).fill('cat')])
    await assert.rejects(runTrained(model, wrong, post), new RegExp(`1 to ${PLACES} of its own words`));
});

test('near words are those with few other letters, and one takes the place of the whole word alone', () => {
  assert.equal(nearWords(model, 'annna')[0], 'Anna');
  assert.equal(nearWords(model, 'trees')[0], 'tree');
  assert.deepEqual(nearWords(model, 'xyzxyzxyz'), []);
  assert.deepEqual(nearWords(model, '😀'), []);
  assert.deepEqual(wordsOf(model, 'An\u200bna \u202ecat').words, ['Anna', 'cat']);
  assert.equal(replaceWord('an ant, an Ann', 'an', 'the'), 'the ant, the Ann');
  assert.equal(replaceWord('it isn’t', 'is', 'was'), 'it was not');
});

test('the layers of another model do not count as those of this one', () => {
  const listed = [0, 1].map((layer) => ({ name: `story.${layer}`, heads: model.heads, d_model: COLUMNS, causal: true }));
  assert.ok(isStored(model, listed));
  for (const other of [[], listed.slice(1), [listed[0], { ...listed[1], heads: 8 }]]) assert.ok(!isStored(model, other));
});
