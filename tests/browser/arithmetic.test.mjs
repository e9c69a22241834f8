// arithmetic.test.mjs tests what the first screen teaches: the arithmetic of a cell, the tinted words, the steps that open in place, the heads
// and the sliders. The numbers are those that tests/notebooks expects.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { readCase } from './expected.mjs';
import { answered, cell, matrix, open, openDrawer, openStep, pane, painted, setBody, writtenLine, writtenTitle } from './explorer.mjs';
import { base, onPage, picture } from './harness.mjs';

const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
const close = (a, b, most = 1e-6) => assert.ok(Math.abs(a - b) <= most * Math.max(1, Math.abs(b)), `${a} is not ${b}`);
const found = (page) => page.evaluate(() => window.explorer.arithmetic);
const state = (page) => page.evaluate(() => window.explorer.state);
const numbers = (values) => Object.values(values); // a Float64Array comes out of the page as an object
const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (a, b) => sum(a.map((value, at) => value * b[at]));

const point = async (page, step, row, col) => {
  const { x, y } = await cell(page, step, row, col);
  await page.mouse.move(x, y);
};

const CASES = [
  ['000', '000-self-attention', 0, [1, 2]],
  ['001-heads', '001-multi-head', 2, [3, 7]],
  ['002-heads', '002-heads-of-any-size', 1, [4, 1]],
  ['003', '003-masked-head', 0, [3, 1]],
  ['004', '004-step-by-step', 0, [0, 2]],
];

for (const [example, name, head, [row, col]] of CASES) {
  test(`the arithmetic of a cell has the numbers of notebook ${example}`, () =>
    onPage({}, async (page) => {
      const { expect } = readCase(name);
      await open(page, `/#example=${example}&head=${head}`);
      await point(page, 'weights', row, col);
      const { q, k, products, sum: total, score, scaled, masked, softmax, weight } = await found(page);
      const [Q, K] = await Promise.all(['Q', 'K'].map((step) => matrix(page, step, head)));
      assert.deepEqual([numbers(q), numbers(k)], [Q[row], K[col]]);
      assert.deepEqual(numbers(products), Q[row].map((value, at) => value * K[col][at])); // prettier-ignore
      close(total, dot(Q[row], K[col]), 1e-12);
      close(score, total, 1e-4);
      close(scaled, score / Math.sqrt(Q[0].length), 1e-5);
      const weights = Array.isArray(expect.weights[0][0]) ? expect.weights[head] : expect.weights;
      close(weight, weights[row][col], 1e-4);
      close(softmax.power / softmax.total, weights[row][col], 1e-4);
      close(masked, scaled, 1e-6);
      const said = await writtenLine(page);
      const written = (value, digits) => String(Number(value.toPrecision(digits))).replace('-', '−');
      assert.ok(said.includes(written(score, 4)) && said.includes(written(scaled, 4)), said);
      assert.ok(weight < 1e-4 || said.includes(written(weight, 4)), said);
    }));
}

test('the arithmetic holds with every option, and says what it cannot show', () =>
  onPage({}, async (page) => {
    const { Q, K, V } = JSON.parse(readFileSync(new URL('../notebooks/000-attention.request.json', import.meta.url)));
    await open(page, '/#example=own-matrices');
    const cases = [
      [{ softcap: 2 }, /capped at 2 =/],
      [{ sink: [1.5] }, /÷ \([^=]* \+ 4\.482 of the sink = \S+\) = /],
      [{ bias: Q.map(() => [0.5, 0, 1, -0.25]) }, /\+ bias −0\.25 =/],
      [{ alibi: true }, /\+ bias/],
      [{ scale: 0.25 }, /× 0\.25 =/],
      [{ scale: [0.25] }, /× 0\.25 =/],
      [{ scale: 30 }, /e\^\(/],
      [{ normalization: 'none' }, /no softmax: weight/],
      [{ normalization: 'sigmoid', sigmoid_bias: -1 }, /sigmoid of/],
      [{ rotary: true, Q: [[1, 0, 2, 0], [0, 1, 0, 1]], K: [[1, 1, 0, 2], [2, 0, 1, 1]], V: [[1], [2]] }, /^ score [^×]* → ×/], // prettier-ignore
    ];
    for (const [option, said] of cases) {
      await setBody(page, { Q, K, V, ...option });
      await point(page, 'weights', 1, option.rotary ? 0 : 3);
      const text = await writtenLine(page);
      assert.match(text, said, JSON.stringify(option));
      const { softmax, squashed, weight, masked, scaled, added, q } = await found(page);
      if (squashed !== null) close(1 / (1 + Math.exp(1 - masked)), weight);
      else if (softmax === null) close(weight, masked);
      else close(softmax.power / softmax.total, weight, 1e-5);
      close(added, masked - scaled, 1e-6);
      assert.equal(q === null, option.rotary === true, 'rotary turns q and k, so their products are not the score');
    }
    await setBody(page, { Q, K, V, mask: Q.map(() => [1, 0, 1, 1]) });
    await point(page, 'weights', 1, 1);
    assert.equal((await found(page)).forbidden, true);
    assert.equal(await writtenTitle(page), 'q1 → k1: ');
    assert.match(await writtenLine(page), /→ \+ mask = −∞ → e\^−∞ = 0 → ÷ .* = 0$/);
    await setBody(page, { Q, K, V, mask: Q.map(() => [false, false, false, false]) });
    assert.match(await writtenLine(page), /→ all keys of the row are masked: weight 0$/);
  }));

test('heads: the arithmetic is that of the head, also if the server gives the mean over heads', () =>
  onPage({}, async (page) => {
    const random = { generator: 'numpy', seed: 4 };
    const drawn = (...shape) => ({ random: 'randn', shape });
    const body = { random, X: drawn(5, 8), heads: 2, W_Q: drawn(8, 8), W_K: drawn(8, 8), W_V: drawn(8, 8) };
    await open(page, '/#example=own&head=1');
    for (const more of [{}, { W_O: drawn(8, 3) }, { mean_over_heads: true }]) {
      await page.evaluate(() => (document.getElementById('path').value = '/multi-head-attention'));
      await setBody(page, { ...body, ...more });
      if (!more.mean_over_heads) await page.click('#heads [data-head="1"]');
      await point(page, 'scores', 2, 3);
      const { weight, softmax, mean } = await found(page);
      const head = (await state(page)).head;
      const masked = await matrix(page, 'masked_scores', head);
      const powers = masked[2].map((score) => Math.exp(score));
      const weights = powers.map((value) => value / sum(powers));
      close(weight, weights[3], 1e-5);
      close(softmax.power / softmax.total, weights[3], 1e-5);
      assert.equal(mean !== null, 'mean_over_heads' in more);
    }
  }));

test('the arithmetic of keys that the request adds, of a drawn sink, and of keys of the past', () =>
  onPage({}, async (page) => {
    const random = { generator: 'numpy', seed: 4 };
    const drawn = (...shape) => ({ random: 'randn', shape });
    const projected = { random, X: drawn(3, 4), heads: 2, W_Q: drawn(4, 4), W_K: drawn(4, 4), W_V: drawn(4, 4) };
    await open(page, '/#example=own');
    for (const drawnKey of [false, true]) {
      const more = drawnKey ? { bias_K: drawn(4), bias_V: drawn(4) } : { zero_key: true };
      await page.evaluate(() => (document.getElementById('path').value = '/multi-head-attention'));
      await setBody(page, { ...projected, W_O: drawn(4, 4), ...more });
      await point(page, 'weights', 1, 3);
      const { extra, q, softmax, weight } = await found(page);
      assert.deepEqual([extra, q === null], [drawnKey, drawnKey]);
      close(softmax.power / softmax.total, weight, 1e-5);
      assert.equal(/bias_K or zero_key adds this key/.test(await writtenLine(page)), drawnKey);
      // The output is not the product of the weights and V.
      await openStep(page, 'output');
      await point(page, 'output', 1, 0);
      assert.equal(/ × /.test(await writtenLine(page)), !drawnKey);
    }
    const { Q, K, V } = JSON.parse(readFileSync(new URL('../notebooks/000-attention.request.json', import.meta.url)));
    await setBody(page, { random, Q, K, V, sink: drawn(1) });
    await point(page, 'weights', 1, 2);
    const { softmax, weight } = await found(page);
    close(softmax.power / softmax.total, weight, 1e-6);
    // A row of X is the key that stands after the keys of the past.
    await setBody(page, { X: Q, past_K: [K[0], K[1]], past_V: [V[0], V[1]] });
    await point(page, 'X', 2, 0);
    assert.equal(await writtenTitle(page), 'X of x2, column 0: ');
    const marked = async (step) => {
      await openStep(page, step);
      return pane(page, step)
        .locator('.figure-over i')
        .evaluateAll(
          (marks, rows) => marks.map(({ style, parentElement }) => Math.round((parseFloat(style.top) / parentElement.clientHeight) * rows)),
          (await matrix(page, step)).length,
        );
    };
    assert.deepEqual([await marked('K'), await marked('V'), await marked('Q')], [[4], [4], [2]]);
    // All items of a batch share K and V that have no axis of the batch.
    await setBody(page, { Q: [[Q], [Q]], K, V });
    await point(page, 'weights', 1, 2);
    close((await found(page)).sum, dot(Q[1], K[2]), 1e-12);
  }));

for (const [size, options] of Object.entries({ desktop: { viewport: { width: 1440, height: 900 } }, phone: PHONE })) {
  test(`the first screen shows the words, the steps, the matrices and the arithmetic, ${size}`, () =>
    onPage(options, async (page) => {
      const { height } = options.viewport;
      for (const [i, example] of ['000', '003', '004'].entries()) {
        await open(page, `/?${i}#example=${example}`);
        const { y: floor } = await page.locator('#written').boundingBox();
        for (const part of ['#words', '#steps', size === 'phone' ? '#flow .node' : '#flow [data-node="weights"]', '.written-line']) {
          const box = await page.locator(part).first().boundingBox();
          const least = part.startsWith('.written') ? height : floor;
          assert.ok(box.y >= 0 && box.y + Math.min(box.height, 150) <= least + 1, `${example}: ${part} at ${JSON.stringify(box)}`);
        }
      }
      await page.evaluate(() => window.scrollTo({ top: 200, behavior: 'instant' }));
      const written = await page.locator('#written').boundingBox();
      if (size === 'phone') assert.ok(written.y > 0 && written.y + written.height <= height + 1, 'the arithmetic stays at the lower edge');
      await picture(page, `arithmetic-${size}`);
    }));
}

test('a step opens in the place of the one before, by click, key and link', () =>
  onPage({}, async (page) => {
    await open(page);
    const place = async (step) => (await page.locator(`#single[data-step="${step}"] h2`).boundingBox()).y;
    assert.equal((await state(page)).step, 'flow');
    await page.click('[data-frame="weights"]');
    const before = await place('weights');
    await page.click('[data-frame="scores"]');
    assert.equal(await place('scores'), before);
    assert.equal(await page.locator('#single[data-step="weights"]').isVisible(), false);
    assert.equal(await page.locator('#flow').isVisible(), false);
    assert.equal(await page.getAttribute('[data-frame="scores"]', 'aria-current'), 'step');
    await page.waitForFunction(() => /step=scores/.test(location.hash));
    await page.keyboard.press('.');
    assert.equal((await state(page)).step, 'scaled_scores');
    await page.keyboard.press(',');
    await page.keyboard.press('a');
    assert.equal(await page.locator('.node:visible').count(), 15);
    await page.keyboard.press('.');
    assert.equal((await state(page)).step, 'X');
    await page.goBack();
    await page.waitForFunction(() => window.explorer.state.step === 'flow');
  }));

test('axes have names, and colours a bar with numbers and a title; a figure for a paper is black on white', () =>
  onPage({ colorScheme: 'dark' }, async (page) => {
    await open(page, '/#example=003');
    await painted(page, 'weights');
    const saved = async (format, step) => {
      await openStep(page, step);
      await page.click('#single .menu summary');
      const [download] = await Promise.all([page.waitForEvent('download'), page.click(`#single [data-download="${format}"]`)]);
      return page.evaluate(
        (text) => {
          const svg = new DOMParser().parseFromString(text, 'image/svg+xml');
          const all = (name, attribute) => [...svg.querySelectorAll(name)].map((one) => one.getAttribute(attribute));
          return {
            texts: [...svg.querySelectorAll('text')].map(({ textContent }) => textContent),
            inks: [...new Set(all('text', 'fill'))],
            ground: all('rect', 'fill')[0],
            images: all('image', 'href').length,
          };
        },
        readFileSync(await download.path(), 'utf8'),
      );
    };
    for (const format of ['svg', 'paper']) {
      const { texts } = await saved(format, 'weights');
      for (const text of ['query ↓', 'key →', 'weight', '0', '0.2', '1', 'Grant']) assert.ok(texts.includes(text), `${text} in ${texts}`);
      assert.ok((await saved(format, 'output')).texts.includes('column →'));
    }
    const paper = await saved('paper', 'scores');
    assert.equal(paper.ground, '#ffffff');
    assert.deepEqual(paper.inks.filter((ink) => ink !== '#ffffff' && ink !== '#101014'), ['#000000']); // prettier-ignore
    assert.equal(paper.images, 0, 'it has vectors only');
    assert.notEqual((await saved('svg', 'scores')).ground, '#ffffff');
    const label = await page.getAttribute('#single .colours', 'aria-label');
    assert.match(label, /^Colours: score from −[\d.]+ to [\d.]+$/);
  }));

test('the words are tinted by the weights of the word that one points at', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=001-vanilla');
    const tints = () =>
      page.locator('#words .word').evaluateAll((all) => all.map((word) => Number(word.style.getPropertyValue('--weight'))));
    const weights = await matrix(page, 'weights');
    await page.hover('#words [data-word="4"]');
    (await tints()).forEach((tint, key) => close(tint, weights[4][key], 1e-3));
    assert.match(await page.textContent('.written-row'), /^self-contradictory gives/);
    await page.click('#words [data-word="9"]');
    assert.equal((await state(page)).row, 9);
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'is');
    // With other words as keys, the keys are a line of their own.
    await setBody(page, { Q: [[1, 0], [0, 1]], K: [[1, 0], [0, 1], [1, 1]], V: [[1], [2], [3]] }); // prettier-ignore
    assert.equal(await page.locator('#words .words-line').count(), 2);
    assert.equal((await tints()).length, 5);
  }));

test('64 heads of two batch items: all are there, sorted, found by number, chosen with their item', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own-matrices');
    const drawn = (d) => ({ random: 'randn', shape: [2, 64, 6, d] });
    await setBody(page, { random: { generator: 'numpy', seed: 9 }, Q: drawn(4), K: drawn(4), V: drawn(3) });
    assert.equal(await page.locator('#heads .head:not([data-head="mean"])').count(), 128);
    assert.equal(await page.textContent('#heads small'), '64 heads of 2 batch items.');
    await page.fill('#heads-search', '37');
    assert.equal(await page.locator('#heads .head:visible').count(), 2);
    await page.press('#heads-search', 'Enter');
    assert.deepEqual([(await state(page)).head, (await state(page)).batch], [37, 0]);
    await page.click('#heads [data-head="37"][data-batch="1"]');
    assert.equal((await state(page)).batch, 1);
    await page.fill('#heads-search', '');
    const orders = {
      entropy: (weights) => sum(weights.map((row) => -sum(row.map((weight) => weight * Math.log(weight))))),
      distance: (weights) => sum(weights.map((row, i) => sum(row.map((weight, j) => weight * Math.abs(i - j))))),
    };
    const all = [];
    for (let batch = 0; batch < 2; batch++) {
      for (let head = 0; head < 64; head++) (all[head] ??= []).push(await matrix(page, 'weights', head, batch));
    }
    for (const [name, number] of Object.entries(orders)) {
      await page.selectOption('#heads-order', name);
      const shown = await page
        .locator('#heads .head[data-batch="0"]')
        .evaluateAll((list) => list.map(({ dataset }) => Number(dataset.head)));
      const keys = all.map((items) => sum(items.map(number)));
      const order = keys.map((_, head) => head).sort((a, b) => keys[a] - keys[b]);
      assert.deepEqual(shown, order, name);
    }
    for (let top = 0; top < 2000; top += 100) {
      await page.locator('.heads-grid').evaluate((grid, to) => (grid.scrollTop = to), top);
      await page.waitForTimeout(30);
    }
    await page.waitForFunction(() => Array.from(document.querySelectorAll('#heads .thumb')).every(({ width }) => width === 6));
    await picture(page, 'arithmetic-heads');
  }));

test('a slider changes the request and the result while it moves; one step back undoes it', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000');
    await openDrawer(page);
    const request = async () => JSON.parse((await state(page)).text);
    const press = async (key, times, slider) => {
      await page.focus(`[data-slider="${slider}"]`);
      for (let i = 0; i < times; i++) await page.keyboard.press(key);
    };
    const first = (await matrix(page, 'weights'))[0][2];
    await press('ArrowLeft', 10, 'scale');
    close((await request()).scale, 0.5 / Math.sqrt(3), 1e-2);
    await page.waitForFunction((before) => window.explorer.matrix('weights').data[2] < before - 0.05, first);
    const { scale } = await request();
    const Q = await matrix(page, 'Q');
    const K = await matrix(page, 'K');
    const powers = K.map((key) => Math.exp(scale * dot(Q[0], key)));
    await page.waitForFunction((want) => Math.abs(window.explorer.matrix('weights').data[2] - want) < 1e-5, powers[2] / sum(powers));
    await press('ArrowRight', 10, 'scale');
    assert.equal('scale' in (await request()), false, 'the middle is the default');
    await press('ArrowLeft', 1, 'softcap');
    assert.equal((await request()).softcap, 100);
    await press('Home', 1, 'window');
    assert.deepEqual((await request()).window, [0, -1]);
    await press('End', 1, 'sink');
    assert.equal((await request()).sink, 10);
    await press('Home', 1, 'sink');
    assert.equal('sink' in (await request()), false);
    await page.waitForFunction(() => window.explorer.result.request.includes('"window"'));
    await page.waitForTimeout(600); // the sliders are at rest
    const steps = await page.evaluate(() => history.length);
    await page.locator('[data-slider="scale"]').fill('-20');
    await page.waitForFunction(() => /"scale"/.test(window.explorer.result.request));
    await page.waitForFunction((before) => history.length === before + 1, steps);
    await answered(page, () => page.goBack());
    assert.equal('scale' in (await request()), false);
  }));

test('pointing at the old answer is harmless while the page waits for an answer with more heads', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=001&head=3');
    await answered(page, () => page.click('[data-example="003"]'));
    await page.route('**/*attention', async (route) => {
      await new Promise((resolve) => setTimeout(resolve, 600));
      await route.continue();
    });
    await answered(page, async () => {
      await page.goBack();
      await page.waitForFunction(() => window.explorer.state.head === 3);
      await page.evaluate(() => {
        for (const word of document.querySelectorAll('#words .word'))
          word.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
      });
    });
    assert.equal((await state(page)).head, 3);
  }));

test('a slider and its field show the request of the page that one goes back to', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000');
    await openDrawer(page);
    await page.focus('[data-slider="scale"]');
    await answered(page, () => page.keyboard.press('ArrowRight'));
    await page.waitForFunction(() => location.hash.includes('request='));
    await answered(page, () => page.goBack());
    assert.equal(await page.inputValue('[data-slider="scale"]'), '0');
    assert.equal(await page.inputValue('#option-scale'), '');
  }));

test('the box beside the pointer covers neither its cell, nor its row and column, nor the arithmetic', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000');
    await page.click('text=No, thanks');
    for (const [row, col] of [
      [0, 0],
      [1, 3],
      [3, 0],
      [3, 3],
    ]) {
      // prettier-ignore
      await point(page, 'weights', row, col);
      const box = await page.locator('#tooltip').boundingBox();
      const over = await pane(page, 'weights').locator('.figure-over').boundingBox();
      const [left, top] = [over.x + (col * over.width) / 4, over.y + (row * over.height) / 4];
      const apart = (a, b, from, to) => a >= to || b <= from;
      assert.ok(apart(box.x, box.x + box.width, left, left + over.width / 4), `column ${col}`);
      assert.ok(apart(box.y, box.y + box.height, top, top + over.height / 4), `row ${row}`);
      assert.ok(box.y + box.height <= (await page.locator('#written').boundingBox()).y);
    }
  }));

// ---------------------------------------------------------------- options at random

const TINY = 1.2e-38; // the server computes in float32, whose smaller numbers may be 0
const CHAIN = ['scores', 'scaled_scores', 'masked_scores', 'weights'];

// Returns a function that draws numbers from 0 to 1, the same ones for the same seed.
function drawsOf(seed) {
  let at = seed * 7919 + 1;
  return () => (at = (at * 16807) % 2147483647) / 2147483647;
}

// Returns a request with options at random, as {path, body, heads, head}.
function anyRequest(draw) {
  const chance = (part) => draw() < part;
  const among = (list) => list[Math.floor(draw() * list.length)];
  const factor = among([1, 1, 1e-3, 30]);
  const number = () => Number((factor * (4 * draw() - 2)).toPrecision(6));
  const vector = (count) => Array.from({ length: count }, number);
  const rows = (down, across) => Array.from({ length: down }, () => vector(across));
  const [n, heads] = [among([2, 3, 6]), among([1, 2])];
  const group = heads > 1 && chance(0.3) ? 1 : heads; // how many heads K and V have
  const [d, width] = [among([2, 5]), among([3, 9])];
  const projected = chance(0.7);
  const own = projected && chance(0.3);
  const m = own ? n + 1 : n;
  const maybe = (part, more) => (chance(part) ? more() : {});
  const options = () => ({
    ...maybe(0.4, () => ({ scale: heads > 1 && chance(0.6) ? [0.5, -0.25] : 0.5 })),
    ...maybe(0.2, () => ({ softcap: 2 })),
    ...maybe(0.3, () => ({ normalization: among(['none', 'sigmoid', 'stick_breaking']) })),
    ...maybe(0.3, () => ({ causal: true })),
    ...maybe(0.2, () => ({ mean_over_heads: heads > 1 })),
    ...maybe(0.3, () => ({ bias: rows(n, m) })),
  });
  const sink = (body) => (body.normalization || chance(0.5) ? body : { ...body, sink: vector(heads) });
  const past = () => ({ past_K: among([[0, 1]]).map(() => vector(d)), past_V: rows(2, d) });
  if (!projected) {
    const body = { Q: rows(n, d), K: rows(m, d), V: rows(m, d), ...options() };
    for (const name of ['b_Q', 'b_K', 'b_V']) if (chance(0.5)) body[name] = vector(d);
    const more = body.bias ? {} : maybe(0.3, past);
    const single = { ...body, ...more, scale: typeof body.scale === 'number' ? body.scale : undefined, mean_over_heads: undefined };
    return { path: '/attention', body: single.normalization || chance(0.5) ? single : { ...single, sink: 0.7 }, heads: 1, head: 0 };
  }
  const body = { X: rows(n, width), heads, W_Q: rows(width, heads * d), W_K: rows(width, group * d), W_V: rows(width, group * d) };
  if (group < heads) body.kv_heads = group;
  if (own) body.context = rows(m, width);
  if (chance(0.4)) body.value_context = rows(m, width);
  for (const [name, count] of [['b_Q', heads * d], ['b_K', group * d], ['b_V', group * d]]) if (chance(0.3)) body[name] = vector(count); // prettier-ignore
  if (chance(0.5)) Object.assign(body, { W_O: rows(heads * d, 4) }, chance(0.5) ? { b_O: vector(4) } : {});
  Object.assign(body, options());
  if (chance(0.3)) Object.assign(body, { bias_K: vector(group * d), bias_V: vector(group * d) });
  if (chance(0.3)) body.zero_key = true;
  if (chance(0.2) && !body.bias) {
    const all = () => Array.from({ length: group }, () => rows(2, d));
    Object.assign(body, { past_K: heads > 1 ? all() : all()[0], past_V: heads > 1 ? all() : all()[0] });
  }
  return { path: '/multi-head-attention', body: sink(body), heads, head: Math.floor(draw() * heads) };
}

// Points at every cell of the flow. Returns the matrices as they are drawn, by id, and what is written and marked for each cell.
const everyCell = (page) =>
  page.evaluate(() => {
    const { head, batch } = window.explorer.state;
    const matrices = {};
    const cells = [];
    for (const {
      dataset: { node: id },
    } of document.querySelectorAll('#flow .node')) {
      // prettier-ignore
      const { rows, cols, data } = window.explorer.matrix(id.length > 1 ? id : id.toUpperCase(), head, batch);
      const whole = Array.from({ length: rows }, (_, row) => Array.from(data.subarray(row * cols, (row + 1) * cols)));
      matrices[id] = id === 'k' ? whole[0].map((_, col) => whole.map((values) => values[col])) : whole;
    }
    const placeOf = (mark) => {
      const node = mark.parentElement;
      const drawn = matrices[node.dataset.node];
      const at = (from, length, side, count) => (length > side * 0.99 - 2 && count > 1 ? null : Math.round((from / side) * count));
      const [left, top, width, height] = ['left', 'top', 'width', 'height'].map((name) => parseFloat(mark.style[name]));
      const place = { row: at(top, height, node.clientHeight, drawn.length), col: at(left, width, node.clientWidth, drawn[0].length) };
      return { kind: mark.className, id: node.dataset.node, ...place };
    };
    for (const [id, drawn] of Object.entries(matrices)) {
      const node = document.querySelector(`#flow [data-node="${id}"]`);
      drawn.forEach((values, row) =>
        values.forEach((value, col) => {
          const { left, top, width, height } = node.getBoundingClientRect();
          const at = { clientX: left + ((col + 0.5) * width) / values.length, clientY: top + ((row + 0.5) * height) / drawn.length };
          node.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, ...at }));
          const parts = [...document.querySelectorAll('.written-line span')].map((one) => [one.textContent, one.className]);
          const marks = [...document.querySelectorAll('#flow .node i')].map(placeOf);
          const lit = document.querySelector('#heads .mark-before')?.dataset.head;
          cells.push({
            id,
            row,
            col,
            value: value ?? -Infinity,
            parts,
            marks,
            lit,
            title: document.querySelector('.written-line b').textContent,
          });
        }),
      );
    }
    return { matrices, cells };
  });

const numberOf = (text) => Number(text.replace(/[()]/g, '').replaceAll('−', '-').replace('∞', 'Infinity'));
const unitOf = (x) => (x === 0 || !Number.isFinite(x) ? 0 : 0.50001 * 10 ** (Math.floor(Math.log10(Math.abs(x))) - 3)); // of 4 digits
function assertNear(written, value, most, where) {
  assert.ok(
    written === value || Math.abs(written - value) <= most + unitOf(written) + TINY,
    `${where}: ${written} is written, not ${value}`,
  );
}

// Asserts that each link of a line follows from the numbers that are written before it.
function checkLinks(line, where) {
  let before = NaN;
  let power = NaN;
  line
    .trim()
    .split(' → ')
    .forEach((link, at) => {
      const [how, said] = / = \S+$/.test(link) ? [link.slice(0, link.lastIndexOf(' = ')), link.slice(link.lastIndexOf(' = ') + 3)] : [link, link.split(' ').at(-1)]; // prettier-ignore
      const result = numberOf(said);
      const error = unitOf(before);
      const is = (pattern) => pattern.exec(how)?.slice(1);
      let found;
      if (at === 0 && / × /.test(how)) {
        if (/… \(/.test(how))
          found = []; // not all products are written
        else {
          const terms = how
            .split(' + ')
            .map((term) => (/^bias/.test(term) ? [numberOf(term.slice(5)), 1] : term.split(' × ').map(numberOf)));
          const blur = sum(terms.map(([a, b]) => unitOf(a) * Math.abs(b) + unitOf(b) * Math.abs(a)));
          assertNear(result, sum(terms.map(([a, b]) => a * b)), blur + 1e-6 * sum(terms.map(([a, b]) => Math.abs(a * b))), where);
        }
      } else if ((found = is(/^× (?:1\/√(\d+)|([^\s,]+))(?:, capped at (\S+))?$/))) {
        const factor = found[0] ? 1 / Math.sqrt(found[0]) : numberOf(found[1]);
        const times = before * factor;
        const blur = Math.abs(factor) * error + Math.abs(before) * (found[0] ? 0 : unitOf(factor));
        assertNear(result, found[2] ? found[2] * Math.tanh(times / found[2]) : times, blur, where);
      } else if (/^\+ mask$/.test(how)) assert.equal(result, -Infinity, where);
      else if ((found = is(/^\+ bias (\S+)$/))) assertNear(result, before + numberOf(found[0]), error + unitOf(numberOf(found[0])), where);
      else if ((found = is(/^e\^(?:\((\S+) ([+−]) (\S+)\)|(\S+))$/))) {
        const shift = found[0] ? numberOf(found[2]) * (found[1] === '+' ? 1 : -1) : 0;
        const exponent = before + shift;
        assert.equal(numberOf(found[0] ?? found[3]), before, where);
        power = result;
        assertNear(result, Math.exp(exponent), Math.exp(exponent) * (Math.exp(error + unitOf(shift)) - 1), where);
      } else if ((found = is(/^÷ (?:\((.*) = (\S+)\)|(\S+), the row’s sum(?: with the sink’s \S+| with that of the sink)?)$/))) {
        const total = numberOf(found[1] ?? found[2]);
        const terms = found[0]?.split(' + ').map((term) => numberOf(term.replace(' of the sink', '')));
        if (terms) assertNear(total, sum(terms), sum(terms.map(unitOf)), `${where}: the row’s sum`);
        assertNear(result, power / total, (unitOf(power) + (power / total) * unitOf(total)) / total, where);
      } else if ((found = is(/^sigmoid of (\S+)$/)))
        assertNear(result, 1 / (1 + Math.exp(-numberOf(found[0]))), unitOf(numberOf(found[0])), where);
      else if (/^no softmax: weight/.test(how)) assert.equal(result, before === -Infinity ? 0 : before, where);
      else assert.match(how, /^(?:score |weight |mean over heads: |all keys of the row are masked: weight )?[−\d.e∞]+$/, where);
      before = result;
    });
}

// Asserts what must hold for any cell of any answer.
function checkCell({ id, row, col, value, parts, marks, lit }, { matrices, head, heads, body }, where) {
  const line = parts.map(([text]) => text).join('');
  assertNear(numberOf(parts.findLast(([, kind]) => kind === 'is')[0]), value, 0, `${where}: ${line}`);
  checkLinks(line, `${where}: ${line}`);
  const factors = (kind) => parts.filter(([, one]) => one === kind).map(([text]) => numberOf(text));
  const [left, right] = ['mark-row', 'mark-col'].map((kind) => marks.find((mark) => mark.kind === kind && mark.id !== 'masked_scores'));
  const products = factors('row').length > 0;
  if (id === 'X' || id.endsWith('context') || id.startsWith('W_')) return products;
  if (left || right) assert.ok(products, `${where}: ${JSON.stringify(marks)} is marked, and no product is written`);
  if (left && right) {
    const [a, b] = [matrices[left.id][left.row], matrices[right.id].map((values) => values[right.col])];
    if (!line.includes('…')) {
      assert.equal(factors('row').length, a.length, where);
      factors('row').forEach((factor, at) => assertNear(factor, a[at], 0, where));
      factors('col').forEach((factor, at) => assertNear(factor, b[at], 0, where));
    }
    const bias = numberOf(/\+ bias (\S+) = /.exec(line.split(' → ')[0])?.[1] ?? '0');
    const said = numberOf(/ = (\S+)/.exec(line)[1]);
    assertNear(said, dot(a, b) + bias, 1e-5 * sum(a.map((x, at) => Math.abs(x * b[at]))) + unitOf(bias), where);
  }
  // A number of another head comes from no matrix in sight, so its head is marked.
  if (id === 'output' && !body.W_O && heads > 1 && !body.mean_over_heads)
    assert.equal(lit !== undefined, !marks.some(({ kind }) => kind === 'mark-before'), where);
  if (lit !== undefined) assert.notEqual(Number(lit), head, where);
  return products;
}

test('options at random: each written number is that of the service, follows from what is written before it, and has its factors marked', () =>
  onPage({ viewport: { width: 1920, height: 1080 } }, async (page) => {
    await open(page, '/#example=own');
    const address = await base();
    const seen = new Set();
    let answers = 0;
    for (let seed = 1; answers < 24; seed++) {
      assert.ok(seed < 400, `${answers} requests of ${seed} were answered`);
      const { path, body, heads, head } = anyRequest(drawsOf(seed));
      const steps = ['weights', 'scores', 'output'];
      const call = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ ...body, return: steps }) };
      const response = await fetch(new URL(path, address), call);
      if (!response.ok) continue;
      const answer = await response.json();
      answers++;
      await page.evaluate((path) => (document.getElementById('path').value = path), path);
      await setBody(page, body);
      if (heads > 1 && !body.mean_over_heads) await page.click(`#heads [data-head="${head}"]`);
      const now = (await state(page)).head;
      const where = `${seed}, head ${now}, ${Object.keys(body)
        .filter((key) => body[key] !== undefined)
        .join(' ')} ${body.normalization ?? ''}`;
      const { matrices, cells } = await everyCell(page);
      for (const step of steps) {
        const given = answer[step];
        assert.deepEqual(matrices[step], Array.isArray(given[0][0]) ? given[given.length > 1 ? now : 0] : given, `${where}: ${step}`);
      }
      for (const cell of cells) {
        const at = `${where}: ${cell.id} ${cell.row} ${cell.col}, ${cell.title}`;
        const products = checkCell(cell, { matrices, head: now, heads, body }, at);
        if (products) seen.add(cell.id);
        // The page knows the products of all these numbers.
        const known = CHAIN.includes(cell.id) || (['mixed', 'joined', 'output'].includes(cell.id) && !body.mean_over_heads);
        if (known) assert.ok(products, `${at}: no products`);
      }
      for (const key of Object.keys(body)) seen.add(key);
    }
    const wanted = 'Q K V q k v scores weights mixed joined output value_context bias_K zero_key past_K sink b_Q b_O scale softcap mean_over_heads'; // prettier-ignore
    assert.deepEqual(wanted.split(' ').filter((one) => !seen.has(one)), []); // prettier-ignore
  }));
