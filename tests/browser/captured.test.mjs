// captured.test.mjs gives the explorer a file of capture() (tests/models/transformers_attention.py), which has Q, K and V of all layers of a
// model for one text. The numbers are invented. This file computes their attention in plain loops, and compares all weights and what a number
// is made of.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { answered, cell, flowCell, matrix, open, writtenLine } from './explorer.mjs';
import { onPage, picture, serious, startDaemon } from './harness.mjs';
import { entry, safetensorsBytes } from './tensorfiles.mjs';

const HEADS = 4;
const WORDS = ['The', 'cat', 'sat', 'on', 'mats'];
const N = WORDS.length;
const D = 4;
const NAMES = ['encoder.0', 'decoder.0', 'decoder.0.cross', 'decoder.1'].map((name) => `model.${name}.attention`);
const range = (count) => Array.from({ length: count }, (_, at) => at);
const drawn = (from, count) => Float32Array.from({ length: count }, (_, i) => Math.sin(i * 1.7 + from * 2.3) * 2);

// Returns a file. tensors: [name, type, shape, typed array].
function fileOf(tensors, metadata) {
  let end = 0;
  const entries = tensors.map(([name, type, shape, { byteLength }]) => [name, entry(type, shape, end, (end += byteLength))]);
  const data = Buffer.concat(tensors.map(([, , , { buffer, byteOffset, byteLength }]) => Buffer.from(buffer, byteOffset, byteLength)));
  return safetensorsBytes({ __metadata__: metadata, ...Object.fromEntries(entries) }, data);
}

// Layers with a causal mask, with another mask and a softcap, with a bias and sinks beside more keys, and with another scale.
const LAYERS = [
  { keys: N, may: (row, col) => col <= row, scale: 0.5, texts: { causal: 'true' } },
  { keys: N, may: (row, col) => (row + col) % 3 !== 1, scale: 0.5, softcap: 0.75, masked: true },
  { keys: 7, may: () => true, scale: 1, bias: true },
  { keys: N, may: () => true, scale: 0.25 },
].map((layer, at) => ({
  ...layer,
  Q: drawn(at, HEADS * N * D),
  K: drawn(at + 0.2, 2 * layer.keys * D),
  V: drawn(at + 0.4, 2 * layer.keys * 3),
  ...(layer.bias && { bias: drawn(at + 0.6, HEADS * N * layer.keys), sink: drawn(at + 0.8, HEADS) }),
  ...(layer.masked && { mask: Uint8Array.from(range(N * N), (i) => Number(layer.may(Math.floor(i / N), i % N))) }),
}));

const TENSORS = LAYERS.flatMap(({ keys, Q, K, V, mask, bias, sink }, at) =>
  [
    ['Q', 'F32', [HEADS, N, D], Q],
    ['K', 'F32', [2, keys, D], K],
    ['V', 'F32', [2, keys, 3], V],
    ['mask', 'BOOL', [N, N], mask],
    ['bias', 'F32', [HEADS, N, keys], bias],
    ['sink', 'F32', [HEADS], sink],
  ]
    .filter(([, , , data]) => data)
    .map(([name, ...others]) => [`${name}.${at}`, ...others]),
);
const OPTIONS = LAYERS.flatMap(({ scale, softcap, texts }, at) =>
  Object.entries({ scale: String(scale), ...(softcap && { softcap: String(softcap) }), ...texts }).map(([key, text]) => [
    `${key}.${at}`,
    text,
  ]),
);
const METADATA = { words: JSON.stringify(WORDS), layers: JSON.stringify(NAMES), model: 'InventedModel', ...Object.fromEntries(OPTIONS) };
const FILE = fileOf(TENSORS, METADATA);

// Returns the weights of a head.
function weightsOf({ keys, may, scale, softcap, Q, K, bias, sink }, head) {
  const k = head >> 1; // two heads of queries share a head of keys
  return range(N).map((row) => {
    const powers = range(keys).map((col) => {
      const dot = range(D).reduce((sum, i) => sum + Q[(head * N + row) * D + i] * K[(k * keys + col) * D + i], 0);
      const score = softcap ? softcap * Math.tanh((dot * scale) / softcap) : dot * scale;
      return may(row, col) ? Math.exp(score + (bias?.[(head * N + row) * keys + col] ?? 0)) : 0;
    });
    const sum = powers.reduce((a, b) => a + b, sink ? Math.exp(sink[head]) : 0);
    return powers.map((power) => (power === 0 ? 0 : power / sum));
  });
}

const near = (got, want, where) => assert.ok(Math.abs(got - want) <= 1e-6, `${where}: ${got} is not ${want}`);
async function assertWeights(page, layer) {
  for (const head of range(HEADS)) {
    const got = await matrix(page, 'weights', head);
    weightsOf(LAYERS[layer], head).forEach((row, i) => row.forEach((want, j) => near(got[i][j], want, `${layer}.${head}[${i}][${j}]`)));
  }
}

const give = (page, bytes, name = 'text.safetensors', place = '#file') =>
  page.setInputFiles(place, { name, mimeType: 'application/octet-stream', buffer: bytes });
const choose = (page, layer) => answered(page, () => page.selectOption('#layer', String(layer)));
const note = (page) => page.textContent('#request-note');
const state = (page) => page.evaluate(() => window.explorer.state);

test('the heads of every layer of a captured file have the weights of its numbers, and each number says how it is made', () =>
  onPage({}, async (page) => {
    await open(page);
    assert.equal(await page.isHidden('#layer-box'), true);
    await answered(page, () => give(page, FILE));
    assert.deepEqual(
      await page.locator('#layer option').allTextContents(),
      NAMES.map((name, at) => `${at} ${name}`),
    );
    assert.deepEqual([await page.inputValue('#layer'), await note(page)], ['0', 'text.safetensors, layer 0, is the request now.']);
    assert.match(await page.textContent('#look'), /that InventedModel computed for one text/);
    await assertWeights(page, 0);
    assert.deepEqual((await state(page)).labels, WORDS);
    const words = await page.textContent('#words');
    for (const word of WORDS) assert.match(words, new RegExp(word));
    assert.deepEqual(await serious(page), []);
    await picture(page, 'captured');
    for (const layer of [1, 2, 3]) {
      await choose(page, layer);
      await assertWeights(page, layer);
      const { text, labels } = await state(page);
      const { scale, softcap, causal } = JSON.parse(text);
      assert.deepEqual([scale, softcap, causal], [LAYERS[layer].scale, LAYERS[layer].softcap, undefined]);
      assert.deepEqual(labels, layer === 2 ? [] : WORDS, 'words that are fewer than the keys are no labels');
      const more = layer === 2 ? ' The file has 5 words for 5 rows of Q and 7 of K.' : '';
      assert.equal(await note(page), `text.safetensors, layer ${layer}, is the request now.${more}`);
    }
    // The arithmetic of a weight and of a score has the numbers of the layer and of the head.
    await choose(page, 1);
    await page.keyboard.press(']');
    const place = await cell(page, 'weights', 2, 3);
    await page.mouse.move(place.x, place.y);
    const weight = weightsOf(LAYERS[1], 1)[2][3];
    assert.ok((await writtenLine(page)).includes(String(Number(weight.toPrecision(3)))), await writtenLine(page));
    await choose(page, 3);
    assert.equal((await state(page)).head, 1, 'the head stays');
    await page.click('[data-frame="flow"]');
    const score = await flowCell(page, 'scores', 2, 3);
    await page.mouse.move(score.x, score.y);
    const { Q, K } = LAYERS[3];
    const dot = range(D).reduce((sum, i) => sum + Q[(N + 2) * D + i] * K[3 * D + i], 0);
    const { q, k } = await page.evaluate(() => window.explorer.arithmetic);
    near(
      Object.values(q).reduce((sum, x, i) => sum + x * k[i], 0),
      dot,
      'score',
    );
  }));

test('long names of layers fit on a phone', () =>
  onPage({ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }, async (page) => {
    await open(page);
    const layers = JSON.stringify(NAMES.map((name) => `model.language_model.layers.${name}`));
    await answered(page, () => give(page, fileOf(TENSORS, { ...METADATA, layers })));
    assert.equal(await page.isVisible('#layer'), true);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing to scroll sideways');
    assert.deepEqual(await serious(page), []);
    await picture(page, 'captured-phone');
  }));

test('the selector goes with its file: another example, Undo and another file', () =>
  onPage({}, async (page) => {
    await open(page);
    await answered(page, () => give(page, FILE));
    await choose(page, 3);
    await answered(page, () => page.click('[data-example="001"]'));
    assert.equal(await page.isHidden('#layer-box'), true);
    await answered(page, () => page.click('[data-example="own"]'));
    assert.deepEqual([await page.isHidden('#layer-box'), await page.inputValue('#layer')], [false, '3']);
    await assertWeights(page, 3);
    const one = safetensorsBytes({ Q: entry('F32', [1, 1], 0, 4) }, new Float32Array([1]));
    await give(page, one, 'one.safetensors');
    await page.waitForFunction(() => document.getElementById('layer-box').hidden);
    await answered(page, () => page.click('text="Undo"'));
    assert.deepEqual([await page.isHidden('#layer-box'), await page.inputValue('#layer')], [false, '3']);
    await choose(page, 0);
    await assertWeights(page, 0);
  }));

test('long layers are held as bytes, bfloat16, too', () =>
  onPage({}, async (page, { requests }) => {
    await open(page);
    const [heads, n, d] = [8, 64, 64];
    const bits = (from) => Uint16Array.from(new Uint32Array(drawn(from, heads * n * d).buffer), (word) => word >>> 16);
    const tensors = range(2).flatMap((at) => ['Q', 'K', 'V'].map((name, i) => [`${name}.${at}`, 'BF16', [heads, n, d], bits(at + i / 9)]));
    const words = range(n).map((at) => `w${at}`);
    await answered(page, () => give(page, fileOf(tensors, { words: JSON.stringify(words) })));
    await choose(page, 1);
    const body = JSON.parse((await state(page)).text);
    assert.deepEqual(body.Q, { file: 'text.safetensors', tensor: 'Q.1', dtype: 'BF16', shape: [heads, n, d] });
    const sent = requests.findLast((request) => request.url().endsWith('/attention')).postDataBuffer();
    assert.ok(sent.includes(Buffer.from(bits(1).buffer)));
    const wide = Float32Array.from(new Float32Array(Uint32Array.from(bits(1), (half) => half << 16).buffer));
    assert.deepEqual((await matrix(page, 'Q', 7)).at(-1), [...wide.slice(-d)]);
    assert.deepEqual((await state(page)).labels, words);
  }));

test('a captured file that is wrong is refused, and one for stored layers goes to the same place', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'captured-'));
  const weights = Object.fromEntries(['W_Q', 'W_K', 'W_V'].map((name, at) => [name, entry('F32', [4, 4], 64 * at, 64 * at + 64)]));
  writeFileSync(
    join(folder, 'one.safetensors'),
    safetensorsBytes({ __metadata__: { heads: '2' }, ...weights }, new Float32Array(drawn(1, 48))),
  );
  const daemon = await startDaemon('--layers', folder);
  try {
    await onPage({ origin: daemon.base, baseURL: daemon.base }, async (page) => {
      await open(page);
      const before = await state(page);
      await give(page, fileOf(TENSORS, { ...METADATA, words: '7' }));
      await page.waitForFunction(() => /words is no list of strings/.test(document.getElementById('problem').textContent));
      assert.deepEqual(await state(page), before);
      await page.waitForSelector('#layers:not([hidden])');
      await answered(page, () => give(page, FILE, 'text.safetensors', '#layers-file'));
      await assertWeights(page, 0);
      assert.equal(await page.isHidden('#layers-problem'), true);
      assert.equal(await page.isVisible('#layer'), true);
    });
  } finally {
    await daemon.stop();
    rmSync(folder, { recursive: true });
  }
});
