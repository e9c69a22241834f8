// play.test.mjs presses Play, and computes every number again that the page writes meanwhile. It also tests what stops it, the keyboard,
// reduced motion, and that Play takes no room from the matrices.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answered, flowCell, matrix, open, openStep, setBody, writtenTitle } from './explorer.mjs';
import { findings, onPage, picture } from './harness.mjs';

const SIZES = {
  phone: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true },
  zoomed: { viewport: { width: 683, height: 384 } },
};
const said = (value) => String(Number(value.toPrecision(4))).replace('-', '−');
const sum = (values) => values.reduce((total, value) => total + value, 0);
const largest = (row) => row.reduce((best, value, at) => (Math.abs(value) > Math.abs(row[best]) ? at : best), 0);
const button = '#player button';
const label = (page) => page.textContent(button);
const playing = (page, is = true) =>
  page.waitForFunction((text) => document.querySelector('#player button').textContent === text, is ? 'Pause' : 'Play');

// Keeps what the page shows each time when it writes about another number: [matrix, title, number, word that asks].
const record = (page) =>
  page.evaluate(() => {
    window.shown = [];
    const written = document.getElementById('written');
    const keep = () => {
      const text = (query) => document.querySelector(query)?.textContent;
      const node = document.querySelector('#flow:not([hidden]) .node:has(.mark-cell)')?.dataset.node;
      const one = JSON.stringify([node ?? null, text('.written-line b'), text('.written-line .is'), text('.word.asks')]);
      if (window.shown.at(-1) !== one) window.shown.push(one);
    };
    new MutationObserver(keep).observe(written, { childList: true });
  });
const recorded = async (page) => (await page.evaluate(() => window.shown)).map((one) => JSON.parse(one));

// Returns what Play shows of an answer: for each query its largest weight, with the score of its key, and the largest number of its output.
async function expected(page, words) {
  const [Q, K, V] = await Promise.all(['Q', 'K', 'V'].map((name) => matrix(page, name)));
  return Q.flatMap((q, row) => {
    const scores = K.map((k) => sum(q.map((x, at) => x * k[at])));
    const powers = scores.map((score) => Math.exp(score / Math.sqrt(q.length)));
    const weights = powers.map((power) => power / sum(powers));
    const output = V[0].map((_, col) => sum(weights.map((weight, key) => weight * V[key][col])));
    const [key, col] = [largest(weights), largest(output)];
    const title = `${words[row]} → ${words[key]}: `;
    return [
      ['scores', title, said(scores[key]), words[row]],
      ['weights', title, said(weights[key]), words[row]],
      ['output', `output of ${words[row]}, column ${col}: `, said(output[col]), words[row]],
    ];
  });
}

test('in the flow, Play shows of each query its score, its weight and its output, and stops after the last one', () =>
  onPage({}, async (page) => {
    await open(page);
    const words = await page.locator('.word').allTextContents();
    // Play begins at the query that is shown, so the first query is shown by hand.
    await page.hover('.word >> nth=0');
    await record(page);
    await page.click(button);
    await playing(page, false);
    assert.deepEqual(await recorded(page), await expected(page, words));
    // Play begins again at the end, and Pause keeps the place.
    await page.click(button);
    await page.waitForFunction(() => document.querySelector('.word.asks').textContent === 'word 1');
    await page.waitForFunction(() => document.querySelector('#flow .node:has(.mark-cell)').dataset.node === 'output');
    await page.click(button);
    assert.equal(await label(page), 'Play');
    assert.match(await writtenTitle(page), /^output of word 1/);
    assert.deepEqual(await findings(page), []);
  }));

test('in the view of one matrix, Play goes from row to row', () =>
  onPage({ colorScheme: 'dark' }, async (page) => {
    await open(page, '/#example=003&step=scores');
    const words = await page.locator('.word').allTextContents();
    const scores = await matrix(page, 'scores');
    const weights = await matrix(page, 'weights');
    await page.hover('.word >> nth=0');
    await record(page);
    await page.click(button);
    await playing(page, false);
    const shown = scores.map((row, at) => {
      const key = largest(weights[at]);
      return [null, `${words[at]} → ${words[key]}: `, said(row[key]), words[at]];
    });
    assert.deepEqual((await recorded(page)).slice(-shown.length), shown);
    assert.deepEqual(await findings(page), []);
  }));

test('Play works by the keyboard, and a click, a key, another step and another answer stop it; the pointer does not', () =>
  onPage({}, async (page) => {
    const { x, y } = (await open(page), await flowCell(page, 'weights', 3, 0));
    await page.focus(button);
    await page.keyboard.press('Enter');
    await playing(page);
    const title = await writtenTitle(page);
    await page.mouse.move(x, y);
    await page.mouse.move(x + 2, y);
    await page.waitForFunction((old) => document.querySelector('.written-line b').textContent !== old, title);
    assert.equal((await writtenTitle(page)).startsWith('word 4 → word 1'), false, 'the pointer points at nothing');
    await page.keyboard.press('Space');
    assert.equal(await label(page), 'Play');
    await page.mouse.move(x, y);
    assert.equal(await writtenTitle(page), 'word 4 → word 1: ', 'the pointer points again');
    const acts = {
      click: () => page.click('#look'),
      key: () => page.locator('#flow [data-node="weights"]').press('ArrowDown'),
      step: () => openStep(page, 'weights'),
      example: () => answered(page, () => page.keyboard.press('3')),
      request: () => setBody(page, { X: [[1, 2], [2, 1], [0, 1]] }), // prettier-ignore
    };
    for (const [name, act] of Object.entries(acts)) {
      await page.click(button);
      await playing(page);
      await act();
      assert.equal(await label(page), 'Play', name);
      if (name === 'step') await openStep(page, 'flow');
    }
    await setBody(page, { X: [[1, 2]] });
    assert.equal(await page.isVisible(button), false, 'one query is not played');
  }));

test('with reduced motion there is no Play', () =>
  onPage({ reducedMotion: 'reduce' }, async (page) => {
    await open(page);
    assert.equal(await page.isVisible(button), false);
    await page.emulateMedia({ reducedMotion: 'no-preference' });
    await page.click(button);
    await playing(page);
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await playing(page, false);
    assert.equal(await page.isVisible(button), false, 'the wish stops what plays');
  }));

for (const [size, options] of Object.entries(SIZES)) {
  test(`Play takes no room from the matrices, ${size}`, () =>
    onPage(options, async (page) => {
      for (const id of ['000', '001', '002', '003', 'pronoun']) {
        await open(page, `/?${id}#example=${id}`);
        assert.equal(await page.isVisible(button), true, id);
        const tops = await page.evaluate(() => {
          const top = () => document.getElementById('picture').getBoundingClientRect().top;
          const [player, with_] = [document.getElementById('player'), top()];
          player.hidden = true;
          return [with_, top()];
        });
        assert.equal(tops[0], tops[1], id);
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= options.viewport.width, id);
      }
      await open(page, `/?${size}`);
      await picture(page, `play-${size}`);
      assert.deepEqual(await findings(page), []);
    }));
}
