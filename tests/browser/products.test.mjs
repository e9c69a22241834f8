// products.test.mjs tests the step Products: each number of a query times that of a key, with the score as the sum of each row. It computes
// the products again, from Q and K of the answer and, where a norm and a rotation change these, from the request alone.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cell, matrix, numbers, open, openStep, painted, pane, setBody, writtenLine, writtenTitle } from './explorer.mjs';
import { drawing } from './draw.mjs';
import { findings, onPage, picture } from './harness.mjs';

const said = (value, digits = 4) => String(Number(value.toPrecision(digits))).replace('-', '−');
const sum = (values) => values.reduce((total, value) => total + value, 0);
const draw = drawing(11);
const rows = (n, d) => Array.from({ length: n }, () => Array.from(draw.numbers(d)));
const frames = (page) => page.locator('[data-frame]').evaluateAll((all) => all.map(({ dataset }) => dataset.frame));

// Compares numbers of the page with expected ones, each to within the rounding of float32 of `size`.
function near(got, expected, what, size = 1) {
  assert.deepEqual([got.length, got[0].length], [expected.length, expected[0].length], what);
  expected.forEach((row, i) =>
    row.forEach((value, j) =>
      assert.ok(Math.abs(got[i][j] - value) <= 1e-5 * size, `${what}: row ${i}, column ${j} is ${got[i][j]}, not ${value}`),
    ),
  );
}

// Points at each query, and compares the products with those of Q and K, and their sums with the scores. Returns the products of the last one.
async function assertProducts(page, Q, K, scores, what, head = 0) {
  const size = Math.max(1, ...Q.flat().map(Math.abs)) * Math.max(1, ...K.flat().map(Math.abs)) * Q[0].length;
  let products;
  for (const [at, q] of Q.entries()) {
    await page.locator(`[data-word="${at}"]`).focus();
    products = await matrix(page, 'products', head);
    near(products, K.map((k) => q.map((value, col) => value * k[col])), `${what}, query ${at}`, size); // prettier-ignore
    near([products.map(sum)], [scores[at].slice(0, K.length)], `${what}, the scores of query ${at}`, size);
  }
  return products;
}

for (const id of ['000', '001', '002', '003', '004', '005', '005-softmax', 'pronoun']) {
  test(`the products of each query and head sum to its scores, example ${id}`, () =>
    onPage({}, async (page) => {
      await open(page, `/#example=${id}&step=products`);
      const heads = Math.max(1, await page.locator('#heads .head:not([data-head="mean"])').count());
      for (let head = 0; head < heads; head++) {
        if (heads > 1) await page.click(`#heads [data-head="${head}"]`);
        const [Q, K, scores] = await Promise.all(['Q', 'K', 'scores'].map((name) => matrix(page, name, head)));
        await assertProducts(page, Q, K, scores, `head ${head}`, head);
      }
      assert.equal(await page.isVisible('#single[data-step="products"] .bars'), true, 'the sums stand beside the rows');
      assert.deepEqual(await findings(page), []);
      await picture(page, `products-${id}`);
    }));
}

test('the table, the box beside the pointer and the sentence say each product, and what it is a part of', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003&step=products&numbers=&row=2');
    const [Q, K, scores] = await Promise.all(['Q', 'K', 'scores'].map((name) => matrix(page, name)));
    const words = await page.locator('.word').allTextContents();
    assert.equal(await page.textContent('#single .pane-title'), `query “${words[2]}”`);
    near(await numbers(page, 'products'), K.map((k) => Q[2].map((q, col) => q * k[col])), 'the table'); // prettier-ignore
    const sums = await page.locator('#single .numbers .extra').allTextContents();
    assert.deepEqual(sums, scores[2].map((score) => said(score, 6))); // prettier-ignore
    for (const [key, col] of [
      [3, 7],
      [0, 0],
    ]) {
      // prettier-ignore
      const { x, y } = await cell(page, 'products', key, col);
      await page.mouse.move(x, y);
      const [q, k] = [Q[2][col], K[key][col]];
      const factor = (value) => (value < 0 ? `(${said(value)})` : said(value));
      assert.equal(await writtenTitle(page), `${words[2]} → ${words[key]}, column ${col}: `);
      assert.equal(
        await writtenLine(page),
        `${factor(q)} × ${factor(k)} = ${said(q * k)} → its row sums to the score ${said(scores[2][key])}`,
      );
      const parts = [[words[key] + `, column ${col}`], ['product', said(q * k)], [`query ${words[2]}`, said(q)], [`key ${words[key]}`, said(k)], ['score', said(scores[2][key])]]; // prettier-ignore
      assert.equal(await page.textContent('#tooltip'), parts.flat().join(''));
    }
    // The flow marks the two factors of the product, and its score.
    await openStep(page, 'flow');
    for (const [id, mark] of Object.entries({ q: 'mark-before', k: 'mark-before', scores: 'mark-next' }))
      assert.equal(await page.locator(`#flow [data-node="${id}"] .${mark}`).count(), 1, id);
  }));

// Returns rows after the norm (the weights `norm`) and the rotation by their place: column k and k + d/2 turn together.
function turned(matrix, norm) {
  return matrix.map((row, position) => {
    const root = Math.sqrt(sum(row.map((x) => x * x)) / row.length + 1e-6);
    const scaled = row.map((x, col) => (norm[col] * x) / root);
    const half = row.length / 2;
    return scaled.map((x, col) => {
      const angle = position * 10000 ** ((-2 * (col % half)) / row.length);
      const other = col < half ? -scaled[col + half] : scaled[col - half];
      return x * Math.cos(angle) + other * Math.sin(angle);
    });
  });
}
const times = (A, B) => A.map((row) => B[0].map((_, col) => sum(row.map((x, at) => x * B[at][col]))));

test('with norms and rotary embedding, the factors are the rows that are multiplied, in heads of 64 columns that share a key head', () =>
  onPage({}, async (page) => {
    const [n, d, size] = [5, 6, 64];
    const body = { X: rows(n, d), W_Q: rows(d, 2 * size), W_K: rows(d, size), W_V: rows(d, size), W_O: rows(2 * size, 2) };
    Object.assign(body, { heads: 2, kv_heads: 1, rotary: true, norm_Q: rows(1, size)[0], norm_K: rows(1, size)[0], norm_epsilon: 1e-6 });
    await open(page, '/#example=own');
    await setBody(page, body);
    await openStep(page, 'products');
    const all = times(body.X, body.W_Q);
    const K = turned(times(body.X, body.W_K), body.norm_K);
    for (const head of [0, 1]) {
      await page.click(`#heads [data-head="${head}"]`);
      const own = all.map((row) => row.slice(head * size, (head + 1) * size));
      await assertProducts(page, turned(own, body.norm_Q), K, await matrix(page, 'scores', head), `head ${head}`, head);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await painted(page, 'products');
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
    assert.equal(await page.isVisible('#single[data-step="products"] .bars'), true);
  }));

test('there are no products if the page does not have the rows that are multiplied', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    const body = { Q: rows(4, 6), K: rows(4, 6), V: rows(4, 2) };
    await setBody(page, body);
    assert.equal((await frames(page)).includes('products'), true);
    await setBody(page, { ...body, rotary: true });
    assert.equal((await frames(page)).includes('products'), false, 'the service does not return what it has turned');
    // Keys of the past and masked keys have products, too.
    await setBody(page, { ...body, past_K: rows(3, 6), past_V: rows(3, 2), causal: true, lengths: [6] });
    const [Q, K, scores] = await Promise.all(['Q', 'K', 'scores'].map((name) => matrix(page, name)));
    assert.equal(K.length, 7);
    await openStep(page, 'products');
    await assertProducts(page, Q, K, scores, 'with a past');
  }));

test('1024 keys of 128 columns: the picture fits, zooms, and follows the query', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    const drawn = (n, d) => ({ random: 'randn', shape: [n, d] });
    await setBody(page, { random: { generator: 'numpy', seed: 3 }, Q: drawn(1024, 128), K: drawn(1024, 128), V: drawn(1024, 2) });
    await openStep(page, 'scores');
    const { x, y } = await cell(page, 'scores', 700, 300);
    await page.mouse.move(x, y);
    await painted(page, 'products');
    const asked = Number(/^query “q(\d+)”$/.exec(await page.textContent('#single .pane-title'))[1]);
    assert.ok(Math.abs(asked - 700) < 4, `query ${asked}`);
    const [Q, K, scores] = await Promise.all(['Q', 'K', 'scores'].map((name) => matrix(page, name)));
    const products = await matrix(page, 'products');
    near(products, K.map((k) => Q[asked].map((q, col) => q * k[col])), 'all keys', 30); // prettier-ignore
    near([products.map(sum)], [scores[asked]], 'the sums', 128);
    assert.ok((await pane(page, 'products').locator('.figure').boundingBox()).height < 900);
    const figure = pane(page, 'products').locator('.figure');
    const place = await cell(page, 'products', 512, 64);
    await page.mouse.move(place.x, place.y);
    await figure.focus();
    for (let i = 0; i < 6; i++) await page.keyboard.press('+');
    assert.match(await page.textContent('#say'), /^rows \d+ to \d+ of 1024, columns \d+ to \d+ of 128$/);
    await painted(page, 'products');
    assert.deepEqual(await findings(page), []);
    await picture(page, 'products-large');
  }));
