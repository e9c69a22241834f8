// linear.test.mjs tests the example "Without softmax": its weights, gates, corrections and states, the words between a key and a query, the
// slider of the state, and the change from rule to rule. NumPy has computed the expected numbers by the plain recurrence
// (../data/gen/make_linear_words.py).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
  answered,
  cell,
  done,
  matrix,
  open,
  openDrawer,
  openStep,
  pane,
  painted,
  setBody,
  writtenLine,
  writtenTitle,
} from './explorer.mjs';
import { findings, onPage, picture } from './harness.mjs';

const { words, cases } = JSON.parse(readFileSync(new URL('../data/golden_linear_words.json', import.meta.url)));
const caseOf = (id) => cases.find((one) => one.id === id);
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
const state = (page) => page.evaluate(() => window.explorer.state);
const found = (page) => page.evaluate(() => window.explorer.arithmetic);
const request = async (page) => JSON.parse(await page.inputValue('#request'));
const said = (value, digits = 4) => String(Number(value.toPrecision(digits))).replace('-', '−');
const signed = (value, digits = 3) => `${value < 0 ? '−' : '+'} ${said(Math.abs(value), digits)}`;
const after = (page) => page.textContent('.player-word');

function assertNear(got, expected, what, most = 1e-12) {
  assert.deepEqual([got.length, got[0].length], [expected.length, expected[0].length], what);
  expected.forEach((row, i) =>
    row.forEach((value, j) => {
      const fits = value === null ? got[i][j] === -Infinity : Math.abs(got[i][j] - value) <= most;
      assert.ok(fits, `${what}: row ${i}, column ${j} is ${got[i][j]}, not ${value}`);
    }),
  );
}

// Goes with the arrow keys from the first word to the last, and compares each state.
async function assertStates(page, states, what, head = 0) {
  await openStep(page, 'states');
  await page.focus('#position');
  await page.keyboard.press('Home');
  for (const [at, expected] of states.entries()) {
    if (at) await page.keyboard.press('ArrowRight');
    assertNear(await matrix(page, 'states', head), expected, `${what}: the state after word ${at}`);
  }
}

const point = async (page, row, col) => {
  const { x, y } = await cell(page, 'weights', row, col);
  await page.mouse.move(x, y);
};

for (const { id, path, request: body, expect } of cases.filter(({ id }) => id.startsWith('005'))) {
  test(`eight words, ${id}: the request and every step are those of NumPy`, () =>
    onPage({}, async (page) => {
      await open(page, `/#example=${id}`);
      assert.deepEqual(await request(page), body);
      assert.equal(await page.inputValue('#path'), path);
      assert.deepEqual((await state(page)).labels, words);
      const [{ states, changes, ...steps }] = expect;
      for (const [name, expected] of Object.entries(steps)) assertNear(await matrix(page, name), expected, name);
      const shown = await page.locator('[data-frame]').evaluateAll((all) => all.map(({ dataset }) => dataset.frame));
      const usual = ['Q', 'K', 'V', 'products', ...Object.keys(steps), ...(states ? ['states'] : [])];
      assert.deepEqual(shown.filter((name) => !['flow', 'lines'].includes(name)).sort(), usual.sort());
      if (states) await assertStates(page, states, id);
      assert.deepEqual(await findings(page), []);
      await openStep(page, 'flow');
      await picture(page, `linear-${id}`, { fullPage: true });
    }));
}

test('pointing at a weight says how product, share, gates and corrections made it, in numbers that fit together', () =>
  onPage({}, async (page) => {
    const [{ scores, scaled_scores, uncorrected, corrections, weights, changes, gates }] = caseOf('005').expect;
    const { beta } = caseOf('005').request;
    await open(page, '/#example=005');
    for (const [i, j] of [
      [5, 1],
      [7, 3],
      [7, 0],
      [6, 6],
    ]) {
      // prettier-ignore
      await point(page, i, j);
      const { parts, weight } = await found(page);
      assert.ok(Math.abs(weight - weights[i][j]) < 1e-12);
      assert.ok(Math.abs(parts.uncorrected + parts.corrected - weight) < 1e-12);
      const line = await writtenLine(page);
      const product = gates.slice(j + 1, i + 1).reduce((all, [gate]) => all * gate, 1);
      const { Q, K } = caseOf('005').request;
      const factor = (x) => (x < 0 ? `(${said(x)})` : said(x));
      const expected = [
        `${Q[i].map((q, at) => `${factor(q)} × ${factor(K[j][at])}`).join(' + ')} = ${said(scores[i][j])}`,
        `× 1/√4 = ${said(scaled_scores[i][j])}`,
        `× ${said(beta[j], 3)}, the share that ${words[j]} writes = ${said(scaled_scores[i][j] * beta[j])}`,
        ...(i > j
          ? [
              `× ${said(product, 3)}, the gates since then = ${said(uncorrected[i][j])}`,
              `${signed(corrections[i][j])} by corrections = ${said(weights[i][j])}`,
            ]
          : []),
      ];
      assert.equal(line, expected.join(' → '));
      const table = await page.locator('.way tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((one) => one.textContent)));
      const between = words.map((_, t) => t).slice(j + 1, i + 1);
      assert.deepEqual(
        table,
        i > j
          ? [
              ['then', ...between.map((t) => words[t])],
              ['gate', ...between.map((t) => `× ${said(gates[t][0], 3)}`)],
              ['corrects', ...between.map((t) => (Math.abs(changes[t][i][j]) < 1e-15 ? '0' : signed(changes[t][i][j])))],
            ]
          : [],
      );
      const tooltip = await page.textContent('#tooltip');
      assert.ok(tooltip.includes(`corrections${i > j ? said(corrections[i][j]) : '0'}`), tooltip);
    }
    // “shut” replaces “open”: its correction is the largest, and it is marked.
    await point(page, 5, 1);
    assert.equal(await page.textContent('.way .strong'), signed(changes[5][5][1]));
    assert.equal(await page.textContent('.way caption'), 'From open to shut');
    await picture(page, 'linear-way');
    // A later word is not in the state, and a keyboard gets the same numbers.
    await point(page, 2, 4);
    assert.match(await writtenLine(page), /a later word, which is not in the state yet: weight 0$/);
    await page.mouse.move(2, 2);
    await pane(page, 'weights').locator('.figure').focus();
    for (const key of ['ArrowUp', ...Array(4).fill('ArrowLeft')]) await page.keyboard.press(key);
    assert.match(
      await page.textContent('#say'),
      new RegExp(`^open → door: weight ${said(weights[1][0])}, .*corrections ${said(corrections[1][0])}`),
    );
    // The rules that have no gates or no corrections do not speak of them.
    await answered(page, () => page.click('[data-variant="005-gated"]'));
    await point(page, 5, 1);
    const [gated] = caseOf('005-gated').expect;
    assert.match(await writtenLine(page), new RegExp(`the gates since then = ${said(gated.weights[5][1])}$`));
    assert.equal(await page.locator('.way tr').count(), 2);
    await answered(page, () => page.click('[data-variant="005-delta"]'));
    await point(page, 5, 1);
    assert.deepEqual(await page.locator('.way th[scope="row"]').allTextContents(), ['then', 'corrects']);
    await answered(page, () => page.click('[data-variant="005-linear"]'));
    await point(page, 5, 1);
    assert.match(await writtenLine(page), /no softmax: weight 1?\d*\.?\d+$/);
    assert.equal(await page.locator('.way tr').count(), 0);
  }));

test('the slider goes from word to word; a link keeps its place; the sentence and the cells say what a word did', () =>
  onPage({}, async (page) => {
    const [{ states, gates }] = caseOf('005').expect;
    const { K, V, beta } = caseOf('005').request;
    await open(page, '/#example=005');
    assert.equal(await page.locator('#position').isVisible(), true, 'the flow has the state');
    await openStep(page, 'weights');
    assert.equal(await page.locator('#position').isVisible(), false, 'the slider stands with the state');
    await openStep(page, 'states');
    assert.equal(await after(page), 'after out, word 8 of 8');
    await page.focus('#position');
    for (let i = 0; i < 2; i++) await page.keyboard.press('ArrowLeft');
    assert.equal(await after(page), 'after shut, word 6 of 8');
    assert.equal(await page.getAttribute('#position', 'aria-valuetext'), 'shut, word 6 of 8');
    assert.equal((await state(page)).position, 5);
    assert.equal(await page.locator('.player-thumb.current').textContent(), 'shut');
    assert.equal(await page.locator('.word.asks').textContent(), 'shut', 'the words show what this word asks');
    // The state held something under the key of “shut”, which writes most of the difference.
    const held = V[0].map((_, col) => states[4].reduce((sum, row, at) => sum + gates[5][0] * K[5][at] * row[col], 0));
    const told = `shut keeps ${said(gates[5][0], 3)} of the state. Under the key of shut, the state holds ${held.map((x) => said(x, 2)).join(', ')}. shut writes ${beta[5]} of the way to its value (−1, 0, 0).`;
    assert.equal(await page.textContent('.written-row'), told);
    // A cell of the map says what it was, what the gate left, and what was written.
    const { x, y } = await cell(page, 'states', 0, 0);
    await page.mouse.move(x, y);
    const kept = gates[5][0] * states[4][0][0];
    const tip = await page.textContent('#tooltip');
    assert.equal(
      tip,
      `row 0, column 0State${said(states[5][0][0])}before shut${said(states[4][0][0])}× its gate ${said(gates[5][0], 3)}${said(kept)}written${signed(states[5][0][0] - kept, 4)}`,
    );
    await page.mouse.move(2, 2);
    await picture(page, 'linear-state');
    await page.waitForFunction(() => location.hash.includes('position=5'));
    await page.reload();
    await done(page);
    assertNear(await matrix(page, 'states'), states[5], 'after the page is opened again');
    await page.locator('.player-thumb').nth(0).click();
    await page.waitForFunction(() => location.hash.includes('position=0'));
    await page.reload();
    await done(page);
    assertNear(await matrix(page, 'states'), states[0], 'the first word');
    // All states share their colours, and arrow keys in the map go from cell to cell, not from word to word.
    const ends = (rows) => [Math.min(...rows.flat(3)), Math.max(...rows.flat(3))];
    const most = Math.max(...ends(states).map(Math.abs));
    const bar = await page.getAttribute('#single canvas.colours', 'aria-label');
    assert.equal(bar, `Colours: entry of the state from ${said(-most, 3)} to ${said(most, 3)}`);
    await pane(page, 'states').locator('.figure').focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    assert.match(await page.textContent('#say'), /^row 0, column 1: State /);
    assert.equal(await after(page), 'after door, word 1 of 8');
    assert.deepEqual(await findings(page), []);
  }));

test('Play goes from word to word and stops at the last one, at Pause, and at another step', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=005&step=states&position=5');
    const button = page.locator('#player button');
    await painted(page, 'states');
    await button.click();
    assert.equal(await button.textContent(), 'Pause');
    await page.waitForFunction(() => window.explorer.state.position === 6);
    await page.waitForFunction(() => window.explorer.state.position === null);
    await page.waitForFunction(() => document.querySelector('#player button').textContent === 'Play');
    // Play begins again at the end.
    await button.click();
    assert.equal((await state(page)).position, 0);
    await page.waitForFunction(() => window.explorer.state.position === 1);
    await button.click();
    assert.equal(await button.textContent(), 'Play');
    await page.waitForTimeout(1300);
    assert.equal((await state(page)).position, 1, 'it waits');
    await button.focus();
    await page.keyboard.press('Space');
    await openStep(page, 'weights');
    await page.waitForTimeout(1300);
    assert.equal((await state(page)).position, 1, 'another step stops it');
    await openStep(page, 'states');
    assert.equal(await button.textContent(), 'Play');
    await button.click();
    await page.focus('#position');
    await page.keyboard.press('End');
    assert.equal(await button.textContent(), 'Play', 'the slider stops it, too');
  }));

test('with reduced motion nothing moves by itself, and the states follow each other at once', () =>
  onPage({ reducedMotion: 'reduce' }, async (page) => {
    const [{ states }] = caseOf('005').expect;
    await open(page, '/#example=005&step=states');
    await painted(page, 'states');
    assert.equal(await page.locator('#player button').isVisible(), false);
    await page.focus('#position');
    await page.keyboard.press('ArrowLeft');
    assertNear(await matrix(page, 'states'), states[6], 'the slider works');
    await page.emulateMedia({ reducedMotion: 'no-preference' });
    await page.waitForSelector('#player button:visible');
    await page.click('#player button');
    await page.emulateMedia({ reducedMotion: 'reduce' });
    const before = (await state(page)).position;
    await page.waitForTimeout(1300);
    assert.equal((await state(page)).position, before, 'the wish stops what plays');
  }));

test('another rule keeps the words, the edited matrices, the step, the row and the cell', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=005');
    const choose = (rule) => answered(page, () => page.click(`[data-variant="005${rule}"]`));
    const cellOf = () => writtenTitle(page);
    await point(page, 5, 1);
    await page.mouse.click(...Object.values(await cell(page, 'weights', 5, 1)));
    for (const rule of ['-softmax', '-linear', '-gated', '-delta', '']) {
      await choose(rule);
      const { row, labels } = await state(page);
      assert.deepEqual([row, labels], [5, words]);
      assert.equal(await cellOf(), 'shut → open: ', rule);
      assert.equal(await page.isHidden('#back'), true, 'nothing is edited');
      const name = `005${rule}`;
      assertNear(await matrix(page, 'weights'), caseOf(name).expect[0].weights, name);
    }
    // An edited value and an edited gate go through all rules.
    const edited = { ...(await request(page)), decay: [0, 0, 0, 0, -2, 0, 0, 0] };
    edited.V = edited.V.map((row, at) => (at === 1 ? [3, 0, 0] : row));
    await setBody(page, edited);
    assert.match(await page.textContent('#look'), /^Edited: V is not the example’s\. decay is not the example’s\.$/);
    const view = await matrix(page, 'weights');
    for (const rule of ['-softmax', '-linear', '-gated', '-delta', '']) {
      await choose(rule);
      const body = await request(page);
      assert.deepEqual(body.V, edited.V, rule);
      assert.deepEqual(body.decay, ['-gated', ''].includes(rule) ? edited.decay : undefined, rule);
      assert.equal(await page.isVisible('#back'), true, rule);
    }
    assertNear(await matrix(page, 'weights'), view, 'the same request');
    await openStep(page, 'states');
    await page.focus('#position');
    await page.keyboard.press('Home');
    await choose('-linear');
    assert.deepEqual([(await state(page)).step, await after(page)], ['states', 'after door, word 1 of 8']);
    await answered(page, () => page.click('#back'));
    await choose('');
    assert.deepEqual(await request(page), caseOf('005').request, 'what is taken back stays back in all rules');
    // An option that only softmax takes waits until softmax comes back.
    await choose('-softmax');
    await openDrawer(page);
    await answered(page, () => page.fill('#option-softcap', '2'));
    await choose('-delta');
    assert.equal('softcap' in (await request(page)), false);
    assert.match(await page.textContent('#reason-softcap'), /softmax/);
    assert.equal(await page.isDisabled('#mask-edit'), true);
    await choose('-softmax');
    assert.equal((await request(page)).softcap, 2);
  }));

test('Compare shows two rules beside each other, also their states after the same word', () =>
  onPage({}, async (page) => {
    const difference = (a, b) => b.map((row, i) => row.map((value, j) => value - a[i][j]));
    const compared = async () => {
      const { name, difference: { rows, cols, data } } = await page.evaluate(() => window.explorer.comparison); // prettier-ignore
      const numbers = Object.values(data);
      return { name, shown: Array.from({ length: rows }, (_, row) => numbers.slice(row * cols, (row + 1) * cols)) };
    };
    await open(page, '/#example=005-softmax&step=weights');
    await page.click('#compare-open');
    await page.waitForFunction(() => window.explorer.comparison !== null);
    for (const id of ['005-linear', '005']) {
      await answered(page, () => page.click(`[data-variant="${id}"]`));
      const { name, shown } = await compared();
      assert.equal(name, 'weights');
      assertNear(shown, difference(caseOf('005-softmax').expect[0].weights, caseOf(id).expect[0].weights), id);
    }
    assert.equal(await page.textContent('.compare-head strong'), 'A: without softmax, softmax. B: the request now.');
    await picture(page, 'linear-compare', { fullPage: true });
    await page.click('[data-frame="states"]');
    assert.match(await page.textContent('#compare-told'), /^A has no states\.$/);
    await page.click('text=Keep B as A');
    await answered(page, () => page.click('[data-variant="005-linear"]'));
    const [gated, linear] = ['005', '005-linear'].map((id) => caseOf(id).expect[0].states);
    assertNear((await compared()).shown, difference(gated[7], linear[7]), 'after the last word');
    await page.focus('#position');
    for (let i = 0; i < 3; i++) await page.keyboard.press('ArrowLeft');
    assertNear((await compared()).shown, difference(gated[4], linear[4]), 'after the fifth word');
    assert.deepEqual(await findings(page), []);
    await page.click('text=Stop comparing');
    assert.equal(await page.locator('#steps').isVisible(), true);
  }));

test('two heads with a gate for each column, rows of length 1 and a state from before', () =>
  onPage({}, async (page) => {
    const { request: body, expect } = caseOf('heads');
    await open(page, '/#example=own');
    await setBody(page, body);
    assert.equal(await page.inputValue('#path'), '/linear-attention', 'the keys say the path');
    for (const [head, { states, changes, output, ...steps }] of expect.entries()) {
      await page.click(`#heads [data-head="${head}"]`);
      for (const [name, expected] of Object.entries(steps)) assertNear(await matrix(page, name, head), expected, `head ${head}: ${name}`);
      assertNear(await matrix(page, 'output', head), output, 'output');
      await assertStates(page, states, `head ${head}`, head);
      await point(page, 4, 1);
      const table = await page.locator('.way tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((one) => one.textContent)));
      const range = (t) => [Math.min, Math.max].map((of) => said(of(...steps.gates[t]), 3)).join(' to ');
      assert.deepEqual(table[1], ['gate', ...[2, 3, 4].map((t) => `× ${range(t)}`)]);
      assert.deepEqual(table[2], ['corrects', ...[2, 3, 4].map((t) => signed(changes[t][4][1]))]);
      assert.match(await writtenLine(page), /after the gates of its columns =/);
    }
    await openStep(page, 'states');
    await page.focus('#position');
    await page.keyboard.press('Home');
    const { x, y } = await cell(page, 'states', 1, 1);
    await page.mouse.move(x, y);
    assert.ok(
      (await page.textContent('#tooltip')).includes(`before k0${said(body.past_state[1][1][1])}`),
      'the state before the first word',
    );
  }));

test('requests whose numbers the page does not have, or does not explain, still show weights and states', () =>
  onPage({ expected: /status of 422/ }, async (page) => {
    await open(page, '/#example=own');
    const random = { generator: 'numpy', seed: 4 };
    const drawn = (...shape) => ({ random: 'randn', shape });
    const frames = () => page.locator('[data-frame]').evaluateAll((all) => all.map(({ dataset }) => dataset.frame));
    await setBody(page, { random, Q: drawn(4, 9, 3), K: drawn(2, 9, 3), V: drawn(2, 9, 2), decay: [-0.5, 0] });
    assert.equal((await frames()).includes('scaled_scores'), true, 'drawn numbers are asked for');
    await page.click('#heads [data-head="1"]');
    await point(page, 5, 1);
    const drawnOne = await found(page);
    assert.ok(Math.abs(drawnOne.parts.weight - drawnOne.weight) < 1e-5, JSON.stringify(drawnOne));
    // The page does not have drawn shares.
    await setBody(page, { random, Q: drawn(9, 3), K: drawn(9, 3), V: drawn(9, 2), beta: { random: 'rand', shape: [9] } });
    assert.deepEqual(await frames(), ['flow', 'Q', 'K', 'V', 'weights', 'states', 'output']);
    await point(page, 5, 1);
    assert.match(await writtenLine(page), /^ weight/);
    await setBody(page, { random: { generator: 'torch', seed: 3 }, text: 'a cat and a dog', embedding_dim: 4, update: 'linear' });
    assert.equal(await page.locator('.word').count(), 5);
    // Packed heads, and fewer heads of keys.
    const rows = (n, d, from) => Array.from({ length: n }, (_, i) => Array.from({ length: d }, (_, j) => Math.sin(from + i * d + j) / 2));
    const packed = { heads: 4, kv_heads: 2, Q: rows(6, 12, 1), K: rows(6, 6, 2), V: rows(6, 4, 3) };
    await setBody(page, {
      ...packed,
      decay: rows(6, 2, 4).map((row) => row.map((x) => -Math.abs(x))),
      beta: rows(6, 2, 5).map((row) => row.map(Math.abs)),
    });
    assert.equal((await frames()).includes('corrections'), true);
    await page.click('#heads [data-head="3"]');
    await point(page, 5, 1);
    const { weight, parts } = await found(page);
    assert.ok(Math.abs(parts.weight - weight) < 1e-6, `${parts.weight} ${weight}`);
    // The page does not explain the weights of rows beyond `lengths`.
    await setBody(page, { Q: rows(6, 3, 1), K: rows(6, 3, 2), V: rows(6, 2, 3), update: 'linear', lengths: 4 });
    assert.equal((await frames()).includes('scores'), false);
    // Many words have no small pictures, and the page itself draws the pictures of their matrices.
    await setBody(page, { Q: rows(120, 3, 1), K: rows(120, 3, 2), V: rows(120, 2, 3), decay: rows(1, 120, 1)[0].map((x) => -Math.abs(x)) });
    await painted(page, 'weights');
    await point(page, 119, 2);
    assert.match(await page.textContent('.way .note'), /^and 105 more words/);
    await openStep(page, 'states');
    assert.equal(await page.locator('.player-thumb').first().isVisible(), false);
    assert.equal(await after(page), 'after k119, word 120 of 120');
    // States of too many numbers are not asked for.
    await setBody(page, { random, Q: drawn(300, 64), K: drawn(300, 64), V: drawn(300, 64), update: 'linear' });
    assert.deepEqual([(await frames()).includes('weights'), (await frames()).includes('states')], [true, false]);
    assert.equal(await page.locator('#position').isVisible(), false);
    // A wrong request is told by the server.
    await setBody(page, { Q: [[1]], K: [[1]], V: [[1]], decay: [0.5], update: 'gated' }, 'error');
    assert.match(await page.textContent('#problem'), /decay/);
  }));

test('the script of this example is loaded with its first answer; one figure of it stands alone in a frame', () =>
  onPage({}, async (page, { requests }) => {
    const loaded = () => requests.filter((one) => /\/linear-[0-9a-f]+\.js/.test(one.url())).length;
    await open(page);
    assert.equal(loaded(), 0);
    await answered(page, () => page.keyboard.press('5'));
    assert.equal((await state(page)).example, '005');
    assert.equal(loaded(), 1);
    await open(page, '/?embed=states#example=005&position=3');
    await painted(page, 'states');
    assert.equal(await page.locator('#player').isVisible(), true);
    assert.equal(await page.locator('#steps').isVisible(), false);
    assertNear(await matrix(page, 'states'), caseOf('005').expect[0].states[3], 'in a frame');
    await open(page, '/?embed=gates#example=005');
    await painted(page, 'gates');
    assert.equal(await page.locator('#player').isVisible(), false);
  }));

test('on a phone and in the dark', () =>
  onPage({ ...PHONE, colorScheme: 'dark' }, async (page) => {
    await open(page, '/#example=005&step=states&position=5');
    await painted(page, 'states');
    assert.deepEqual(await findings(page), []);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, `${wide} pixels`);
    await picture(page, 'linear-phone', { fullPage: true });
  }));
