// explorer.test.mjs tests the explorer at /: it does what users do, and checks what the page shows then.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { readCase } from './expected.mjs';
import {
  answered,
  cell,
  done,
  flowCell,
  matrix,
  numbers,
  open,
  openDrawer,
  openStep,
  pane,
  painted,
  setBody,
  writtenLine,
} from './explorer.mjs';
import { base, findings, onPage, picture, serious, startDaemon } from './harness.mjs';

const run = promisify(execFile);
// Chromium writes each refused request to the console. Some tests make the server refuse requests on purpose.
const refused = /status of (401|422|400|503)/;
const close = (a, b, most = 1e-6) => assert.ok(Math.abs(a - b) <= most, `${a} is not ${b}`);
const result = (page) => page.evaluate(() => window.explorer.result);
const state = (page) => page.evaluate(() => window.explorer.state);
const shown = (number) => Number(number.replace('−∞', '-Infinity').replace('−', '-'));

// Returns the texts of the tooltip by the names of its entries.
const tooltip = (page) =>
  page.locator('#tooltip dl').evaluate((list) => {
    const texts = (tag) => Array.from(list.querySelectorAll(tag), ({ textContent }) => textContent);
    const values = texts('dd');
    return Object.fromEntries(texts('dt').map((name, i) => [name, values[i]]));
  });

// Returns whether the upper part of a cell, above its number, has more than one colour on the canvas.
const isHatched = (page, step, row, col) =>
  pane(page, step)
    .locator('.figure[data-drawn="true"]')
    .evaluate(
      (figure, [row, col, step]) => {
        const canvas = figure.querySelector('.figure-canvas');
        const over = figure.querySelector('.figure-over');
        const { rows, cols } = window.explorer.matrix(step);
        const ratio = canvas.width / canvas.clientWidth;
        const [width, height] = [over.clientWidth / cols, over.clientHeight / rows];
        const x = (over.offsetLeft + col * width + 2) * ratio;
        const y = (over.offsetTop + row * height + 2) * ratio;
        const { data } = canvas.getContext('2d').getImageData(x, y, (width - 5) * ratio, Math.max(4, height / 5) * ratio);
        return new Set(new Uint32Array(data.buffer)).size > 1;
      },
      [row, col, step],
    );

test('opens with notebook 000 computed, under a strict policy', () =>
  onPage({}, async (page) => {
    const response = await page.goto('/');
    const policy = response.headers()['content-security-policy'];
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe/);
    await done(page);
    const { expect } = readCase('000-self-attention');
    const output = await matrix(page, 'output');
    output.forEach((row, i) => row.forEach((value, j) => close(value, expect.output[i][j])));
    assert.equal((await result(page)).path, '/self-attention');
    await picture(page, 'explorer', { fullPage: true });
  }));

test('pointing at a cell of a step tells query, key, weight and score, and the cell is that of the other steps', () =>
  onPage({}, async (page) => {
    await open(page, '/#step=weights');
    for (const step of ['weights', 'scores']) {
      const { x, y } = await cell(page, step, 1, 2);
      await page.mouse.move(x, y);
      await page.waitForSelector('#tooltip:not([hidden])');
      const said = await tooltip(page);
      assert.equal(said.query, 'word 2');
      assert.equal(said.key, 'word 3');
      close(shown(said.weight), (await matrix(page, 'weights'))[1][2], 1e-4);
      close(shown(said.score), (await matrix(page, 'scores'))[1][2], 1e-3);
      assert.ok((await writtenLine(page)).includes(said[step === 'weights' ? 'weight' : 'score']));
      const factors = { weights: ['Q', 'K', 'V', 'output'], scores: ['Q', 'K'] }[step];
      for (const other of ['scores', 'scaled_scores', 'masked_scores', 'weights', ...factors]) {
        await page.keyboard.press('Escape');
        const { x, y } = await flowCell(page, step, 1, 2);
        await page.mouse.move(x, y);
        await openStep(page, other);
        assert.ok((await pane(page, other).locator('.figure-over i').count()) > 0, `${other} is marked`);
      }
    }
    await page.mouse.move(2, 2);
    await page.waitForSelector('#tooltip', { state: 'hidden' });
  }));

test('the numbers beside the pointer go with the answer that has them', () =>
  onPage({}, async (page) => {
    await open(page, '/#step=weights');
    const { x, y } = await cell(page, 'weights', 1, 0);
    await page.mouse.move(x, y);
    await page.keyboard.press('n');
    assert.equal(await page.isVisible('#tooltip'), true, 'the same answer has the same numbers');
    await answered(page, () => page.keyboard.press('c'));
    assert.equal(await page.isHidden('#tooltip'), true);
    await page.mouse.move(x + 1, y);
    close(shown((await tooltip(page)).weight), (await matrix(page, 'weights'))[1][0], 1e-4);
  }));

test('a click keeps a row, Escape lets it go', () =>
  onPage({}, async (page) => {
    await open(page, '/#step=weights');
    const { x, y } = await cell(page, 'weights', 2, 0);
    await page.mouse.click(x, y);
    assert.equal((await state(page)).row, 2);
    await page.mouse.move(2, 2);
    assert.match(await page.textContent('#explanation'), /^word 3 gives [\d.]+ to word \d/);
    await page.waitForFunction(() => /row=2/.test(location.hash));
    await page.keyboard.press('Escape');
    assert.deepEqual([(await state(page)).row, (await state(page)).step], [null, 'weights']);
    await page.keyboard.press('Escape');
    assert.equal((await state(page)).step, 'flow');
  }));

test('the keyboard goes through a heat map, keeps a row, and has keys for the rest', () =>
  onPage({}, async (page) => {
    await open(page);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the result');
    await openStep(page, 'weights');
    await pane(page, 'weights').locator('.figure').focus();
    for (const key of ['ArrowRight', 'ArrowRight', 'ArrowDown']) {
      await page.keyboard.press(key);
    }
    const weight = (await matrix(page, 'weights'))[1][1];
    assert.ok((await page.textContent('#say')).includes(String(Number(weight.toPrecision(4)))), await page.textContent('#say'));
    await page.keyboard.press('Enter');
    assert.equal((await state(page)).row, 1);
    await page.keyboard.press('Escape');
    assert.equal((await state(page)).row, null);
    await answered(page, () => page.keyboard.press('c'));
    assert.equal((await result(page)).request.includes('"causal"'), true);
    await answered(page, () => page.keyboard.press('3'));
    assert.equal((await state(page)).example, '003');
    await page.keyboard.press('n');
    assert.equal((await numbers(page, 'weights')).length, 4);
    await page.keyboard.press('?');
    await page.waitForSelector('#help[open]');
    await page.keyboard.press('Escape');
    await page.waitForSelector('#help', { state: 'hidden' });
  }));

test('who goes by keyboard sees the numbers, too, and keeps the page where it is', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'result');
    assert.equal((await state(page)).example, '003');
    await page.press('[data-frame="weights"]', 'Enter');
    await pane(page, 'weights').locator('.figure').focus();
    for (const key of ['ArrowRight', 'ArrowDown', 'ArrowRight']) {
      await page.keyboard.press(key);
    }
    assert.equal((await tooltip(page)).query, 'name');
    await page.keyboard.press('Escape');
    assert.equal(await page.isHidden('#tooltip'), true);
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.isHidden('#tooltip'), false);
    await page.keyboard.press('Tab');
    assert.equal(await page.isHidden('#tooltip'), true);
  }));

test('heads: chosen, as a mean, two side by side', () =>
  onPage({}, async (page) => {
    const { weights } = readCase('002-heads-of-any-size').expect;
    const same = (rows, expected) => rows.forEach((row, i) => row.forEach((value, j) => close(value, expected[i][j], 1e-9)));
    await open(page, '/#example=002-heads&numbers&step=weights');
    await openDrawer(page);
    assert.equal(await page.locator('#heads [data-head]').count(), 4, 'three heads and their mean');
    await page.click('#heads [data-head="2"]');
    same(await numbers(page, 'weights'), weights[2]);
    assert.equal((await numbers(page, 'Q'))[0].length, 4, 'the queries of the third head have 4 columns');
    await openStep(page, 'weights');
    await page.click('#heads [data-head="0"]', { modifiers: ['Shift'] });
    same(await numbers(page, 'weights', 0), weights[2]);
    same(await numbers(page, 'weights', 1), weights[0]);
    await picture(page, 'explorer-side-by-side', { fullPage: true });
    await page.click('#heads [data-head="mean"]');
    await page.waitForFunction(() => /mean of 3/.test(document.querySelector('#single .pane-title').textContent));
    const mean = weights[0].map((row, i) => row.map((_, j) => (weights[0][i][j] + weights[1][i][j] + weights[2][i][j]) / 3));
    same(await numbers(page, 'weights'), mean);
    await page.fill('#labels', 'a, b, c, d, e');
    same(await numbers(page, 'weights'), mean);
  }));

// Returns the colour of a cell at the middle of its upper edge, where it has no number.
const colourOf = (page, step, row, col, place = 0) =>
  pane(page, step, place)
    .locator('.figure[data-drawn="true"]')
    .evaluate(
      (figure, [row, col, step]) => {
        const canvas = figure.querySelector('.figure-canvas');
        const over = figure.querySelector('.figure-over');
        const { rows, cols } = window.explorer.matrix(step);
        const ratio = canvas.width / canvas.clientWidth;
        const x = (over.offsetLeft + ((col + 0.5) * over.clientWidth) / cols) * ratio;
        const y = (over.offsetTop + (row * over.clientHeight) / rows + 2) * ratio;
        return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].join();
      },
      [row, col, step],
    );

// Saves a figure as SVG, and returns the labels of the rows and columns in it and its number of cells.
const inSight = async (page, step) => {
  await openStep(page, step);
  await page.locator('#single .menu summary').click();
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#single [data-download="svg"]').click()]);
  return page.evaluate(
    (text) => {
      const found = new DOMParser().parseFromString(text, 'image/svg+xml');
      const texts = (anchor) => Array.from(found.querySelectorAll(`text[text-anchor="${anchor}"]`), ({ textContent }) => textContent);
      return {
        rows: texts('end').slice(1),
        cells: found.querySelectorAll('g g g g g > rect').length,
        picture: found.querySelectorAll('image').length,
      };
    },
    readFileSync(await download.path(), 'utf8'),
  );
};

const rowsOf = (first, count) => Array.from({ length: count }, (_, i) => `x${first + i}`);

test('a rectangle that is dragged zooms in, to whole cells; a double click or the button shows all of it', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    const X = Array.from({ length: 30 }, (_, i) => Array.from({ length: 20 }, (_, j) => Math.sin(i * 20 + j)));
    await setBody(page, { X });
    const reset = pane(page, 'X').locator('.reset');
    const drag = async (from, to, finish = () => page.mouse.up()) => {
      const [a, b] = [await cell(page, 'X', ...from), await cell(page, 'X', ...to)];
      await page.mouse.move(a.x, a.y);
      await page.mouse.down();
      await page.mouse.move(b.x, b.y, { steps: 4 });
      assert.equal(await pane(page, 'X').locator('.zoom-band').isVisible(), true);
      assert.equal(await page.isHidden('#tooltip'), true);
      await finish();
      await page.mouse.up();
      assert.equal(await pane(page, 'X').locator('.zoom-band').isVisible(), false);
    };
    assert.deepEqual((await inSight(page, 'X')).cells, 600);
    await drag([9, 12], [4, 2]);
    assert.deepEqual(await inSight(page, 'X'), { rows: rowsOf(4, 6), cells: 6 * 11, picture: 0 });
    assert.equal((await state(page)).row, null, 'a drag is no click');
    // The rectangle covers half of the columns in sight. Because it is thin, it takes all rows.
    const over = await pane(page, 'X').locator('.figure-over').boundingBox();
    await page.mouse.move(over.x + 1, over.y + over.height / 2);
    await page.mouse.down();
    await page.mouse.move(over.x + over.width * 0.45, over.y + over.height / 2 + 2, { steps: 3 });
    await page.mouse.up();
    assert.deepEqual(await inSight(page, 'X'), { rows: rowsOf(4, 6), cells: 6 * 5, picture: 0 });
    const corner = await cell(page, 'X', 0, 0);
    await page.mouse.dblclick(corner.x, corner.y);
    assert.equal((await inSight(page, 'X')).cells, 600);
    assert.equal(await reset.isVisible(), false);
    await drag([4, 2], [9, 12], () => page.keyboard.press('Escape'));
    assert.equal((await inSight(page, 'X')).cells, 600, 'Escape ends a drag');
    await drag([4, 2], [9, 12]);
    await reset.click();
    assert.equal((await inSight(page, 'X')).cells, 600);
    await drag([4, 2], [9, 12]);
    await openStep(page, 'weights');
    assert.equal((await inSight(page, 'weights')).cells, 900);
    assert.equal(await pane(page, 'weights').locator('.reset').isVisible(), false, 'a matrix of another size is shown whole');
  }));

test('+ and − zoom by keyboard, arrows move what is in sight; a small matrix is not zoomed', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    const X = Array.from({ length: 30 }, (_, i) => Array.from({ length: 20 }, (_, j) => Math.sin(i * 20 + j)));
    await setBody(page, { X });
    await openStep(page, 'X');
    await pane(page, 'X').locator('.figure').focus();
    const press = async (...keys) => {
      for (const key of keys) await page.keyboard.press(key);
    };
    await press('ArrowDown', '+');
    assert.match(await page.textContent('#say'), /rows 0 to 14 of 30, columns 0 to 9 of 20/);
    assert.deepEqual(await inSight(page, 'X'), { rows: rowsOf(0, 15), cells: 150, picture: 0 });
    await pane(page, 'X').locator('.figure').focus();
    // The pointer has been over the picture on its way, so the keys go to the first cell at first.
    await press(...Array(30).fill('ArrowUp'), ...Array(20).fill('ArrowLeft'), ...Array(15).fill('ArrowDown'));
    close(shown((await tooltip(page)).Words), Math.sin(15 * 20), 1e-4);
    assert.deepEqual((await inSight(page, 'X')).rows, rowsOf(1, 15));
    await pane(page, 'X').locator('.figure').focus();
    await press('-');
    assert.equal((await inSight(page, 'X')).cells, 600);
    assert.equal(await pane(page, 'X').locator('.reset').isVisible(), false);

    await answered(page, () => page.click('[data-example="000"]'));
    await openStep(page, 'weights');
    await pane(page, 'weights').locator('.figure').focus();
    await press('ArrowDown', '+');
    assert.equal(await pane(page, 'weights').locator('.reset').isVisible(), false);
  }));

test('a finger that is held draws the rectangle; one that moves at once scrolls', () =>
  onPage({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }, async (page, { context }) => {
    await open(page, '/#example=own');
    const X = Array.from({ length: 30 }, (_, i) => Array.from({ length: 20 }, (_, j) => Math.sin(i * 20 + j)));
    await setBody(page, { X });
    const session = await context.newCDPSession(page);
    const touch = (type, ...points) => session.send('Input.dispatchTouchEvent', { type, touchPoints: points });
    const band = pane(page, 'X').locator('.zoom-band');
    const [a, b] = [await cell(page, 'X', 4, 2), await cell(page, 'X', 9, 12)];
    await touch('touchStart', a);
    await touch('touchMove', b);
    await page.waitForTimeout(600);
    assert.equal(await band.isVisible(), false);
    await touch('touchEnd');
    const [c, d] = [await cell(page, 'X', 4, 2), await cell(page, 'X', 9, 12)];
    await touch('touchStart', c);
    await band.waitFor();
    const before = await page.evaluate(() => scrollY);
    await touch('touchMove', { x: (c.x + d.x) / 2, y: (c.y + d.y) / 2 });
    await touch('touchMove', d);
    await touch('touchEnd');
    assert.equal(await page.evaluate(() => scrollY), before);
    assert.equal((await inSight(page, 'X')).cells, 66);
  }));

test('two heads beside each other: each with its own legend and file, bars and colours of one scale', () =>
  onPage({ viewport: { width: 1800, height: 900 } }, async (page) => {
    await open(page, '/#example=002-heads&step=weights&compare=2&range=largest');
    const heads = [await matrix(page, 'weights', 0), await matrix(page, 'weights', 2)];
    const bars = [];
    for (const [place, head] of [0, 2].entries()) {
      const one = pane(page, 'weights', place);
      const most = Math.max(...heads[place].flat());
      close(Number(await one.locator('.high').textContent()), most, 5e-4 + most * 1e-3);
      assert.equal(await one.locator('.menu summary').getAttribute('aria-label'), `Save Weights, head ${head}`);
      await one.locator('.menu summary').click();
      const [download] = await Promise.all([page.waitForEvent('download'), one.locator('[data-download="json"]').click()]);
      assert.match(download.suggestedFilename(), new RegExp(`head-${head}\\.json$`));
      assert.deepEqual(JSON.parse(readFileSync(await download.path())).values, heads[place]);
      bars.push(
        await one.locator('.bars').evaluate((canvas) => {
          const bar = getComputedStyle(document.documentElement).getPropertyValue('--bar').trim();
          const wanted = [1, 3, 5].map((at) => parseInt(bar.slice(at, at + 2), 16)).join();
          const ratio = canvas.width / canvas.clientWidth;
          const { data } = canvas.getContext('2d').getImageData(0, 0, 90 * ratio, canvas.height);
          let longest = 0;
          for (let i = 0, x = 0; i < data.length; i += 4, x = (x + 1) % Math.round(90 * ratio)) {
            if (data.slice(i, i + 3).join() === wanted) longest = Math.max(longest, x / ratio);
          }
          return longest - 18;
        }),
      );
    }
    const share = Math.max(...heads[1].flat()) / Math.max(...heads[0].flat());
    close(bars[1] / bars[0], share, 0.05);
    assert.equal(await page.locator('#single > footer').isVisible(), false);
    await page.selectOption('#compare', '');
    assert.equal(await page.locator('#single > footer').isVisible(), true);
    assert.equal(await page.locator('#single .pane footer:visible').count(), 0);
  }));

test('equal weights keep their colour while a mask is edited, unless colours go to the largest', () =>
  onPage({}, async (page) => {
    const Q = [
      [1, 0],
      [0, 1],
    ];
    const K = [
      [0, 0],
      [0, 0],
      [3, 3],
    ];
    const ask = (mask) => setBody(page, { scale: 1, Q, K, V: [[1], [1], [1]], mask });
    await open(page, '/#example=own');
    await openDrawer(page);
    const seen = [];
    for (const range of ['one', 'largest']) {
      await ask([
        [1, 1, 0],
        [1, 1, 0],
      ]);
      await page.selectOption('#range', range);
      await openStep(page, 'weights');
      seen.push(await colourOf(page, 'weights', 0, 0));
      await ask([
        [1, 1, 0],
        [1, 1, 1],
      ]);
      close((await matrix(page, 'weights'))[0][0], 0.5);
      seen.push(await colourOf(page, 'weights', 0, 0));
    }
    assert.equal(seen[0], seen[1]);
    assert.notEqual(seen[2], seen[3]);
    await page.waitForFunction(() => /range=largest/.test(location.hash));
    await open(page, '/?2#example=001');
    assert.equal(await page.inputValue('#range'), 'one');
  }));

test('what is masked is hatched, not coloured as zero', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    for (const step of ['masked_scores', 'weights']) {
      await painted(page, step);
      assert.equal(await pane(page, step).locator('.figure').getAttribute('data-masked'), '6');
      assert.equal(await isHatched(page, step, 0, 3), true, `${step}: a masked cell`);
      assert.equal(await isHatched(page, step, 3, 0), false, `${step}: an open cell`);
    }
    await painted(page, 'scores');
    assert.equal(await isHatched(page, 'scores', 0, 3), false, 'scores are not masked yet');
    const { x, y } = await cell(page, 'weights', 0, 3);
    await page.mouse.move(x, y);
    await page.waitForSelector('#tooltip:not([hidden])');
    assert.equal((await tooltip(page)).weight, 'masked');
  }));

test('the mask is edited by clicking cells; a query that may attend to nothing is marked', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000&numbers&step=weights');
    await openDrawer(page);
    await page.click('#mask-edit');
    for (const [col, place] of [2, 0, 1, 3].entries()) {
      const { x, y } = await cell(page, 'weights', 1, place);
      await answered(page, () => page.mouse.click(x, y));
      const [, row] = await numbers(page, 'weights');
      assert.equal(row[place], 0);
      close(
        row.reduce((sum, value) => sum + value, 0),
        col === 3 ? 0 : 1,
      );
    }
    assert.match(await page.locator('#single table tbody th').nth(1).textContent(), /∅/);
    await answered(page, () => page.click('#mask-clear'));
    close((await numbers(page, 'weights'))[1][0], readCase('000-self-attention').expect.weights[1][0]);
    // A mask of another shape is not replaced by a click.
    const mask = [[[1, 1], [0, 1]]]; // prettier-ignore
    await setBody(page, { Q: [[[1], [2]]], K: [[[1], [2]]], V: [[[1], [2]]], mask });
    const { x, y } = await cell(page, 'weights', 0, 0);
    await page.mouse.click(x, y);
    assert.match(await page.textContent('#problem'), /mask of this request has another shape.*2 × 2/s);
    assert.deepEqual(JSON.parse(await page.inputValue('#request')).mask, mask);
  }));

// Sets the control of an option as a user does.
async function setOption(page, key, value) {
  const control = page.locator(`[data-option="${key}"]`).first();
  await openDrawer(page);
  if (await control.evaluate((element) => element.tagName === 'SELECT')) {
    await control.selectOption(value);
  } else if (typeof value === 'boolean') {
    await control.setChecked(value);
  } else if (Array.isArray(value)) {
    await control.fill(String(value[0]));
    await page.locator(`[data-option="${key}"][data-side="right"]`).fill(String(value[1]));
  } else {
    await control.fill(value);
  }
}

test('every option is computed anew by the service', () =>
  onPage({}, async (page) => {
    const cases = [
      ['causal', 'true', { causal: true }],
      ['causal', 'bottom_right', { causal: 'bottom_right' }],
      ['alignment', 'bottom_right', { alignment: 'bottom_right' }],
      ['window', [1, 0], { window: [1, 0] }],
      ['scale', '0.25', { scale: 0.25 }],
      ['softcap', '2', { softcap: 2 }],
      ['alibi', true, { alibi: true }],
      ['sink', '1.5', { sink: [1.5] }],
      ['lengths', '3', { lengths: [3] }],
      ['normalization', 'none', { normalization: 'none' }],
      ['dtype', 'float64', { dtype: 'float64' }],
      ['digits', '3', { digits: 3 }],
    ];
    const { Q, K, V } = JSON.parse(readFileSync(new URL('../notebooks/000-attention.request.json', import.meta.url)));
    const ask = async (option) => {
      const answer = await fetch(`${await base()}/attention`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ ...option, Q, K, V }),
      });
      return answer.json();
    };
    await open(page, '/#example=own');
    await setBody(page, { Q, K, V });
    const plain = await matrix(page, 'weights');
    for (const [key, value, option] of cases) {
      const { weights, output, detail } = await ask(option);
      assert.equal(detail, undefined, key);
      await setBody(page, { Q, K, V });
      assert.deepEqual(await matrix(page, 'weights'), plain, `without ${key}`);
      await answered(page, () => setOption(page, key, value));
      assert.deepEqual(await matrix(page, 'weights'), weights, `${key}: weights`);
      assert.deepEqual(await matrix(page, 'output'), output, `${key}: output`);
    }
  }));

test('the page is busy from the moment its request is changed', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000');
    const changed = await page.evaluate(() => {
      const area = document.getElementById('request');
      area.value += ' ';
      area.dispatchEvent(new Event('input', { bubbles: true }));
      return document.getElementById('status').dataset.state;
    });
    assert.equal(changed, 'busy');
    await done(page);
  }));

test('an option that cannot be read says its rule, and the request keeps the value it had', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    await openDrawer(page);
    const field = (key) => page.locator(`[data-option="${key}"]`).first();
    const now = async (key) => JSON.parse(await page.inputValue('#request'))[key];
    const cases = {
      scale: ['0.5', '0,5', 'abc', '1/', '1/0'],
      softcap: ['2', 'x'],
      lengths: ['3', '[3]'],
      timeout: ['5', 'x'],
      window: ['1', 'x'],
    };
    for (const [key, [good, ...bad]] of Object.entries(cases)) {
      await openDrawer(page);
      await answered(page, () => field(key).fill(good));
      const kept = await now(key);
      assert.notEqual(kept, undefined, key);
      for (const text of bad) {
        await field(key).fill(text);
        assert.equal(await field(key).getAttribute('aria-invalid'), 'true', `${key}: ${text}`);
        assert.match(await page.textContent(`#error-${key}`), /needs .*number.* such as \d/, `${key}: ${text}`);
        assert.deepEqual(await now(key), kept, `${key}: ${text}`);
      }
      const border = () => field(key).evaluate((element) => getComputedStyle(element).borderTopColor);
      const red = await border();
      await field(key).fill(good);
      assert.equal(await field(key).getAttribute('aria-invalid'), 'false', key);
      assert.equal(await page.textContent(`#error-${key}`), '');
      assert.notEqual(await border(), red, key);
    }
    for (const [text, value] of [
      ['1/8', 0.125],
      ['1/sqrt(8)', 1 / Math.sqrt(8)],
      ['1/√8', 1 / Math.sqrt(8)],
    ]) {
      await field('scale').fill(text);
      assert.equal(await now('scale'), value, text);
    }
    await field('heads').fill('two');
    assert.match(await page.textContent('#error-heads'), /whole number/);
    await answered(page, () => page.click('[data-example="000"]'));
    assert.equal(await field('heads').inputValue(), '');
    assert.equal(await page.textContent('#error-heads'), '');
  }));

test('options that do not apply are off, and say why', () =>
  onPage({}, async (page) => {
    await open(page);
    assert.equal(await page.locator('[data-option="mean_over_heads"]').isDisabled(), true);
    assert.equal(await page.textContent('#reason-mean_over_heads'), 'one head');
    await open(page, '/?2#example=002-heads');
    assert.equal(await page.locator('[data-option="heads"]').isDisabled(), true);
  }));

test('what is pasted goes to the path that it fits; a body for /softmax is not sent', () =>
  onPage({ expected: refused }, async (page, { requests }) => {
    await open(page, '/#example=own');
    await openDrawer(page);
    const paste = async (body) => {
      await page.evaluate((text) => navigator.clipboard.writeText(text), JSON.stringify(body));
      await page.focus('#request');
      await page.keyboard.press('Control+A');
      await page.keyboard.press('Control+V');
    };
    const X = [
      [1, 0],
      [0, 1],
    ];
    const projected = { X, W_Q: X, W_K: X, W_V: X };
    const cases = [
      [projected, '/self-attention'],
      [{ X }, '/attention'],
      [{ X, heads: [projected, projected].map(({ W_Q, W_K, W_V }) => ({ W_Q, W_K, W_V })) }, '/multi-head-attention'],
      [{ random: { generator: 'torch', seed: 1 }, text: 'the cat sat', embedding_dim: 4 }, '/attention'],
    ];
    for (const [body, path] of cases) {
      await answered(page, () => paste(body));
      assert.equal((await result(page)).path, path);
      assert.equal(await page.inputValue('#path'), path);
    }
    await answered(page, () => page.fill('#request', JSON.stringify(projected)));
    assert.equal((await result(page)).path, '/self-attention');
    const sent = requests.length;
    await answered(page, () => paste({ X: [1, 2, 3] }), 'error');
    assert.match(await page.textContent('#problem'), /for \/softmax/);
    assert.equal(requests.slice(sent).filter((request) => request.method() === 'POST').length, 0);
    await answered(page, () => paste({ X }));
    assert.equal(await page.isHidden('#problem'), true);
  }));

test('notes and headings are about the request at hand; an edited one says what was edited', () =>
  onPage({}, async (page) => {
    const note = () => page.textContent('#look');
    const text = async (step) => (await openStep(page, step), page.textContent('#single .text'));
    await open(page, '/#example=003');
    const own = await note();
    assert.match(own, /No word sees what comes after/);
    await answered(page, () => setOption(page, 'causal', ''));
    assert.equal(await note(), 'Edited: causal is off; in the notebook it is on.');
    await answered(page, () => setOption(page, 'causal', 'true'));
    assert.equal(await note(), own);
    await page.fill('#labels', 'a, b, c, d');
    assert.equal(await note(), own, 'other labels are no other request');
    const scaled = await text('scaled_scores');
    assert.match(scaled, /more equal/);
    await answered(page, () => setOption(page, 'scale', '1'));
    assert.match(await text('scaled_scores'), /scale is 1$/);
    await answered(page, () => setOption(page, 'scale', '0.1'));
    assert.equal(await text('scaled_scores'), scaled);
    assert.match(await text('weights'), /each row sums to 1$/);
    await answered(page, () => page.click('[data-example="001"]'));
    const notes = new Set();
    for (const variant of ['001-heads', '001-head', '001-vanilla', '001-raw']) {
      await answered(page, () => page.click(`[data-variant="${variant}"]`));
      notes.add(await note());
      assert.match(await note(), /^See shapes and how numbers flow, not what words mean: [^.]* are random\./, variant);
      assert.equal(/ and projections .*random/.test(await note()), /head/.test(variant), variant);
    }
    assert.equal(notes.size, 4);
    assert.match(await text('weights'), /^the masked scores themselves/);
    assert.equal(await page.textContent('#single math'), 'A=Smasked');
  }));

test('edits are kept while other examples are looked at, until they are taken back', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=002');
    await openDrawer(page);
    const choose = (what) => answered(page, () => page.click(what));
    const request = () => page.inputValue('#request');
    await choose('[data-variant="002-head"]');
    const made = await request();
    assert.equal(await page.isHidden('#back'), true);
    await answered(page, () => setOption(page, 'causal', 'true'));
    await page.fill('#labels', 'a, b, c, d, e');
    const edited = await request();
    assert.notEqual(edited, made);
    await choose('[data-example="004"]');
    assert.equal(await page.isHidden('#back'), true);
    await choose('[data-example="own"]');
    await answered(page, () => page.fill('#request', '{"X": [[1, 2]]}'));
    await choose('[data-example="002"]');
    assert.equal(await request(), edited);
    assert.equal(await page.inputValue('#labels'), 'a, b, c, d, e');
    assert.match(await page.textContent('#look'), /causal is on; in the notebook it is off/);
    await choose('[data-variant="002-heads"]');
    assert.equal(await page.isHidden('#back'), true);
    await choose('[data-variant="002-head"]');
    assert.equal(await request(), edited);
    await choose('#back');
    assert.equal(await request(), made);
    assert.equal(await page.inputValue('#labels'), '');
    await choose('[data-example="own"]');
    assert.equal(await request(), '{"X": [[1, 2]]}');
    await choose('[data-example="002"]');
    assert.equal(await request(), made);
  }));

test('what is wrong with a request is told, and marked where it is', () =>
  onPage({ expected: refused }, async (page) => {
    await open(page, '/#example=own');
    await openDrawer(page);
    const wrong = (text) => answered(page, () => page.fill('#request', text), 'error');
    await wrong('{"Q": [[1, 2]], "K": [[1, 2, 3]], "V": [[1]]}');
    assert.match(await page.textContent('#problem'), /^The request does not fit together.*K has 3 columns but Q has 2/s);
    for (const old of ['.words', '.flow', '.written'])
      assert.equal(await page.$eval(old, (element) => getComputedStyle(element).opacity), '0.4', `${old} is old`);
    assert.equal(await page.textContent('#problem-pointer'), '/K');
    assert.equal(await page.textContent('#marks mark'), '"K": [[1, 2, 3]]');
    await page.click('#problem-show');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'request');
    await picture(page, 'explorer-problem');
    await wrong('{\n "X": [[1, 2],\n [3, x]]}');
    assert.equal(await page.textContent('#marks mark'), 'x');
    assert.match(await page.textContent('#problem-show'), /line 3, column 6/);
    await answered(page, () => page.fill('#request', '{"X": [[1, 2], [3, 4]]}'));
    assert.equal(await page.isHidden('#problem'), true);
  }));

test('words in place of JSON are not sent; one line says so, and the options wait', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    await openDrawer(page);
    assert.match(
      await page.textContent('#look'),
      /^See shapes .* are random\. Paste a text, a table, CSV, JSON, or matrices as Python prints them/,
    );
    const note = () => page.textContent('#options-note');
    await answered(page, () => page.fill('#request', 'the cat sat'), 'error');
    assert.match(await page.textContent('#problem'), /^This is not JSON: a request begins with {/);
    assert.equal(await note(), '(the request is not a JSON object)');
    assert.equal(await page.isDisabled('#option-causal'), true);
    assert.equal((await page.locator('[id^="reason-"]').allTextContents()).join(''), '');
    await answered(page, () => page.fill('#request', '{"X": [[1, 2], [3, 4]]}'));
    assert.match(await page.textContent('#look'), /^Paste a text, a table/, 'nothing of this request is random');
    assert.equal(await note(), '');
    assert.equal(await page.isDisabled('#option-causal'), false);
    await answered(page, () => page.click('[data-variant="own-matrices"]'));
    await answered(page, () => page.click('[data-variant="own"]'));
    await answered(page, () => page.click('#back'));
    assert.match(await page.textContent('#look'), / are random\./);
  }));

test('a row with nearly all its weight on one key says so', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    const told = async (K) => {
      await setBody(page, { scale: 1, Q: [[1]], K, V: [[1], [2]] });
      const { x, y } = await cell(page, 'weights', 0, 0);
      await page.mouse.click(x, y);
      return page.locator('#explanation .note').first().textContent();
    };
    assert.match(await told([[9], [0]]), /^entropy [\d.]+: nearly all weight on 1 key$/);
    await page.keyboard.press('Escape');
    assert.match(await told([[0], [0]]), /: as much as 2 equal weights$/);
  }));

test('a body of one’s own: from a file, with labels; infinity as Python writes it', () =>
  onPage({}, async (page) => {
    await open(page);
    const body = readFileSync(new URL('../notebooks/003-masked-head-bias-infinity.request.json', import.meta.url));
    await answered(page, () => page.setInputFiles('#file', { name: 'body.json', mimeType: 'application/json', buffer: body }));
    const { expect } = readCase('003-masked-head-bias-infinity');
    (await matrix(page, 'weights')).forEach((row, i) => row.forEach((value, j) => close(value, expect.weights[i][j], 1e-12)));
    await openDrawer(page);
    await page.fill('#labels', 'a, <b>b</b>, c, d');
    const { x, y } = await cell(page, 'weights', 1, 0);
    await page.mouse.move(x, y);
    await page.waitForSelector('#tooltip:not([hidden])');
    assert.equal((await tooltip(page)).query, '<b>b</b>');
  }));

test('a link that says nonsense shows a page all the same', () =>
  onPage({}, async (page) => {
    const links = [
      '#example=003&head=0.5&row=1.5&batch=1e9&threshold=7',
      '#example=__proto__&palette=constructor',
      '#request=AAAA&example=003',
      '#%',
      '#result',
    ];
    for (const [i, link] of links.entries()) {
      await open(page, `/?${i}${link}`).catch((error) => assert.match(String(error), /damaged/));
      assert.equal((await matrix(page, 'weights')).length, 4, link);
      assert.deepEqual([(await state(page)).row, (await state(page)).threshold], [null, 0], link);
    }
  }));

test('a file that is dropped anywhere is the request; text that is dragged is not', () =>
  onPage({}, async (page) => {
    await open(page);
    const drop = (type, data) =>
      page.evaluate(
        ([type, data]) => {
          const dataTransfer = new DataTransfer();
          if (type === 'file') dataTransfer.items.add(new File([data], 'body.json'));
          else dataTransfer.setData('text', data);
          document.getElementById('steps').dispatchEvent(new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer }));
        },
        [type, data],
      );
    await drop('text', '{"X": [[1]]}');
    assert.equal((await state(page)).example, '000');
    await answered(page, () => drop('file', '{"X": [[1, 0], [0, 1]]}'));
    assert.equal((await state(page)).example, 'own');
    assert.equal((await matrix(page, 'weights')).length, 2);
  }));

test('lines: the page hands on its weights, mask, row and threshold', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    await page.click('[data-frame="lines"]');
    await page.waitForFunction(() => document.querySelectorAll('.lines-line').length === 10);
    assert.deepEqual(await page.locator('.lines-queries .lines-label').allTextContents(), ['My', 'name', 'is', 'Grant']);
    await page.click('.lines-word[data-query="3"]');
    assert.equal((await state(page)).row, 3);
    await page.waitForFunction(() => document.querySelectorAll('.lines-line').length === 4);
    await picture(page, 'explorer-lines', { fullPage: true });
    await page.keyboard.press('Escape');
    await page.locator('#threshold').fill('0.5');
    const strong = (await matrix(page, 'weights')).flat().filter((weight) => weight >= 0.5).length;
    await page.waitForFunction((count) => document.querySelectorAll('.lines-line').length === count, strong);
    // The lines of two heads are one picture: what stands below it is of this answer, without a bar of colours.
    await open(page, '/#example=002&step=weights');
    await page.selectOption('#compare', '1');
    await page.click('[data-frame="lines"]');
    await page.waitForFunction(() => document.querySelectorAll('.lines-legend li').length === 2);
    assert.deepEqual(await page.locator('footer .shape:visible').allTextContents(), ['5 × 5']);
    assert.equal(await page.locator('canvas.colours:visible').count(), 0);
  }));

test('the softmax curve of notebook 001 is there', () =>
  onPage({}, async (page) => {
    await open(page);
    await page.locator('#curve').scrollIntoViewIfNeeded();
    await page.waitForSelector('.curve[data-state="done"]');
    assert.match(await page.textContent('.curve-readout'), /^sum 1\.000000/);
  }));

test('the address says what is seen; back and forward go through it', () =>
  onPage({}, async (page, { context }) => {
    await open(page, '/#example=002-heads');
    await page.click('#heads [data-head="1"]');
    await openDrawer(page);
    await page.check('#log');
    await page.selectOption('#palette', 'cividis');
    await answered(page, () => setOption(page, 'causal', 'true'));
    const { x, y } = await cell(page, 'weights', 3, 0);
    await page.mouse.click(x, y);
    await page.waitForFunction(() => /row=3/.test(location.hash) && /request=/.test(location.hash));
    const before = await state(page);
    const other = await context.newPage();
    await open(other, page.url());
    assert.deepEqual(await state(other), before);
    assert.deepEqual(await matrix(other, 'weights', 1), await matrix(page, 'weights', 1));
    await other.close();

    await answered(page, () => page.click('[data-example="004"]'));
    assert.equal((await state(page)).example, '004');
    await answered(page, () => page.goBack());
    assert.equal((await state(page)).example, '002-heads');
    assert.equal((await result(page)).request.includes('"causal"'), true);
    await answered(page, () => page.goForward());
    assert.equal((await state(page)).example, '004');
  }));

test('the code that is copied gives the page’s own answer', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    await openDrawer(page);
    const inside = await page.locator('#code').evaluate(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight);
    assert.ok(inside <= 1, 'the code scrolls with its column only');
    const folder = mkdtempSync(join(tmpdir(), 'explorer-'));
    const commands = {
      curl: (code) => ['sh', ['-c', code]],
      python: (code) => ['python3', ['-c', code]],
      javascript: (code) => (writeFileSync(join(folder, 'ask.mjs'), code), [process.execPath, [join(folder, 'ask.mjs')]]),
    };
    try {
      for (const [language, command] of Object.entries(commands)) {
        await page.click(`[data-language="${language}"]`);
        await page.click('#copy', { clickCount: 2 });
        await page.waitForFunction(() => document.getElementById('copy').textContent === 'Copy');
        const code = await page.evaluate(() => navigator.clipboard.readText());
        assert.equal(code.trim(), (await page.textContent('#code')).trim());
        const { stdout } = await run(...command(code));
        const answer = JSON.parse(stdout);
        assert.deepEqual(answer.weights, await matrix(page, 'weights'), language);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  }));

test('a page without a clipboard copies all the same; if it cannot, the text stays selected', () =>
  onPage({}, async (page) => {
    await page.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
    await open(page, '/#example=003');
    await openDrawer(page);
    const code = await page.textContent('#code');
    await page.click('#copy');
    await page.waitForFunction(() => document.getElementById('copy').textContent === 'Copied');
    assert.equal(await page.locator('.to-copy').count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'copy');
    await page.fill('#labels', '');
    await page.keyboard.press('Control+V');
    const pasted = await page.inputValue('#labels');
    assert.ok(pasted.length > 50 && pasted.replaceAll(/\s/g, '').startsWith(code.replaceAll(/\s/g, '').slice(0, 50)), pasted);

    await page.evaluate(() => (document.execCommand = () => false));
    await page.click('#copy-link');
    assert.match(await page.textContent('#say'), /^Not copied.*selected.*Ctrl\+C/);
    assert.equal(await page.textContent('#copy-link'), 'Not copied');
    const selected = await page.evaluate(() => {
      const { value, selectionStart, selectionEnd } = document.activeElement;
      return value.slice(selectionStart, selectionEnd);
    });
    assert.equal(selected, page.url());
    assert.deepEqual(await serious(page), []);
    await page.focus('#labels');
    assert.equal(await page.locator('.to-copy').count(), 0);
  }));

test('a request that is too long for a link is offered as a file', () =>
  onPage({}, async (page) => {
    await open(page);
    let seed = 3;
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    const text = JSON.stringify({ X: Array.from({ length: 100 }, () => Array.from({ length: 100 }, random)) });
    assert.equal(await page.isHidden('#no-link'), true);
    await answered(page, () => page.setInputFiles('#file', { name: 'body.json', mimeType: 'application/json', buffer: Buffer.from(text) }));
    await page.waitForSelector('#no-link:not([hidden])');
    assert.doesNotMatch(page.url(), /request=/);
    assert.equal(await page.isDisabled('#copy-link'), true);
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#save-request')]);
    assert.equal(readFileSync(await download.path(), 'utf8'), text);
    await answered(page, () => page.click('[data-example="000"]'));
    await page.waitForSelector('#no-link', { state: 'hidden' });
    assert.equal(await page.isDisabled('#copy-link'), false);
  }));

test('an error is in sight wherever the page is scrolled to, and leaves the focus where it was', async () => {
  for (const viewport of [
    { width: 1440, height: 900 },
    { width: 390, height: 844 },
  ]) {
    await onPage({ viewport, expected: refused }, async (page) => {
      await open(page, '/#step=weights');
      await openDrawer(page);
      await setBody(page, '{"X": [[1, 2], [3, 4]]}'); // so that the note about what was edited is there already
      for (const place of ['#single .pane:first-child .figure', '[data-option="scale"]']) {
        await page.locator(place).evaluate((element) => element.scrollIntoView({ block: 'start', behavior: 'instant' }));
        await page.focus(place);
        // The stage is drawn again for the room that the drawer leaves, so its place is read when it stays the same.
        await page.waitForFunction(async (place) => {
          const top = () => document.querySelector(place).getBoundingClientRect().top;
          const first = top();
          await new Promise((resolve) => setTimeout(resolve, 200));
          return top() === first;
        }, place);
        const before = await page.locator(place).boundingBox();
        await setBody(page, '{"X": [[1, 2], [3]]}', 'error');
        assert.equal(await page.evaluate((place) => document.activeElement === document.querySelector(place), place), true, place);
        close((await page.locator(place).boundingBox()).y, before.y, 2);
        const box = await page.locator('#problem').boundingBox();
        assert.ok(box.y >= 0 && box.y + box.height <= viewport.height, `${place}: ${JSON.stringify(box)} of ${viewport.width}`);
        assert.equal(await page.getAttribute('#problem', 'role'), 'alert');
        await picture(page, `explorer-error-${viewport.width}`);
        await setBody(page, '{"X": [[1, 2], [3, 4]]}');
      }
    });
  }
});

test('a drawn Q is shown, as K and V are, also at 1024 × 1024', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    const random = { generator: 'numpy', seed: 5 };
    const drawn = (n, d) => ({ random: 'randn', shape: [n, d] });
    const ask = async (body) => {
      const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
      return (await fetch(`${await base()}/attention`, options)).json();
    };
    for (const [n, m, d] of [
      [3, 4, 2],
      [1024, 1024, 8],
    ]) {
      const body = { random, V: drawn(m, d), Q: drawn(n, d), K: drawn(m, d) };
      await setBody(page, body);
      for (const name of ['Q', 'K', 'V']) {
        assert.equal(await page.locator(`[data-frame="${name}"]`).isVisible(), true, `${name} of ${n} rows`);
        assert.equal(await page.locator(`#flow [data-node="${name.toLowerCase()}"]`).isVisible(), true, `${name} of ${n} rows`);
      }
      // If the Q on the page is right, the service makes the shown scores of this Q and of the K on the page.
      const [Q, K] = [await matrix(page, 'Q'), await matrix(page, 'K')];
      const { scores } = await ask({ Q: Q.slice(0, 3), K, V: K, return: ['scores'] });
      const shown = await page.evaluate(() => {
        const { cols, data } = window.explorer.matrix('scores');
        return [0, 1, 2].map((row) => [...data.subarray(row * cols, (row + 1) * cols)]);
      });
      scores.forEach((row, i) => row.forEach((score, j) => close(shown[i][j], score, 1e-4)));
    }
  }));

test('a step is saved as CSV, JSON, SVG and PNG', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    await painted(page, 'masked_scores');
    const saved = async (format, step) => {
      if (step) await openStep(page, step);
      await page.locator('#single .menu summary').click();
      const [download] = await Promise.all([page.waitForEvent('download'), page.locator(`#single [data-download="${format}"]`).click()]);
      assert.equal(download.suggestedFilename().endsWith(`.${format}`), true);
      return readFileSync(await download.path());
    };
    const scores = await matrix(page, 'masked_scores');
    const lines = String(await saved('csv', 'masked_scores'))
      .trimEnd()
      .split('\r\n')
      .map((line) => line.split(','));
    assert.deepEqual(lines[0], ['', 'My', 'name', 'is', 'Grant']);
    assert.deepEqual(
      lines.slice(1).map(([label]) => label),
      ['My', 'name', 'is', 'Grant'],
    );
    assert.deepEqual(
      lines.slice(1).map(([, ...row]) => row.map((x) => (x === '-inf' ? -Infinity : Number(x)))),
      scores,
    );
    const { rows, values } = JSON.parse(String(await saved('json', 'masked_scores')));
    assert.deepEqual(rows, ['My', 'name', 'is', 'Grant']);
    assert.deepEqual(
      values.map((row) => row.map((x) => x ?? -Infinity)),
      scores,
    );
    const svg = String(await saved('svg', 'weights'));
    const parsed = await page.evaluate((text) => {
      const found = new DOMParser().parseFromString(text, 'image/svg+xml');
      const fills = Array.from(found.querySelectorAll('g g g g g > rect'), (rect) => rect.getAttribute('fill'));
      const hatched = fills.filter((fill) => /hatch/.test(fill)).length;
      return { error: Boolean(found.querySelector('parsererror')), cells: fills.length, hatched };
    }, svg);
    assert.deepEqual(parsed, { error: false, cells: 16, hatched: 6 });
    await page.click('[data-frame="lines"]');
    await page.waitForFunction(() => document.querySelectorAll('.lines-line').length === 10);
    const drawn = String(await saved('svg'));
    assert.equal(drawn.match(/<path /g).length, 10);
    assert.deepEqual(drawn.match(/(?<=>)[A-Za-z]+(?=<\/text>)/g), ['My', 'name', 'is', 'Grant', 'My', 'name', 'is', 'Grant']);
    const height = Number(/ height="(\d+)"/.exec(drawn)[1]);
    assert.ok(height >= 4 * 26, 'four words and the legend');
    assert.equal((await saved('png')).readUInt32BE(20), 2 * height);
    const png = await saved('png', 'weights');
    assert.deepEqual([...png.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    assert.ok(png.readUInt32BE(16) > 100);
  }));

// Returns whether the ground of the page is light.
const isLight = (page) =>
  page.evaluate(() => {
    const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    return (red + green + blue) / 3 > 128;
  });

for (const colorScheme of ['light', 'dark']) {
  test(`${colorScheme}, in every view: nothing that axe-core finds`, () =>
    onPage({ colorScheme }, async (page) => {
      const check = async (name) => {
        assert.deepEqual(await findings(page), [], name);
        assert.equal(await isLight(page), colorScheme === 'light', name);
        await picture(page, `explorer-${name}-${colorScheme}`, { fullPage: true });
      };
      const views = {
        numbers: '#example=003&numbers&step=masked_scores',
        heads: '#example=002-heads&step=weights&compare=1&numbers',
        lines: '#example=002-heads&step=weights&lines&compare=1',
        state: '#example=005&step=states',
        own: '#example=own',
        alone: '?embed=output#example=004',
        'alone-flow': '?embed=flow#example=004',
      };
      for (const [name, hash] of Object.entries(views)) {
        await open(page, `/${hash}`);
        if (hash.startsWith('#')) await openDrawer(page);
        await check(name);
      }
      // Every step of one example, and what looks otherwise with heads and large matrices.
      const steps = { '000': null, '001': ['flow', 'lines', 'weights', 'output'] };
      for (const [example, some] of Object.entries(steps)) {
        await open(page, `/?${example}#example=${example}`);
        const all = await page.locator('[data-frame]').evaluateAll((frames) => frames.map(({ dataset }) => dataset.frame));
        for (const step of some ?? all) {
          await openStep(page, step);
          await check(`${example}-${step}`);
        }
      }
      await page.click('#compare-open');
      await page.waitForFunction(() => window.explorer.comparison !== null);
      await answered(page, () => setOption(page, 'causal', 'true'));
      await check('compare');
    }));
}

test('the button for light and dark overrides the system', () =>
  onPage({ colorScheme: 'light' }, async (page) => {
    await open(page);
    const grounds = new Set();
    const titles = [];
    const widths = new Set();
    for (let i = 0; i < 3; i++) {
      grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      titles.push(await page.textContent('#theme'));
      widths.add((await page.locator('#theme').boundingBox()).width);
      await page.click('#theme');
    }
    assert.equal(grounds.size, 2);
    assert.deepEqual(titles, ['Theme: auto', 'Theme: light', 'Theme: dark']);
    assert.equal(widths.size, 1, `its widths are ${[...widths].join(', ')}`);
  }));

test('on a phone nothing scrolls sideways', () =>
  onPage({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }, async (page) => {
    for (const [i, hash] of [
      '#example=000',
      '#example=002-heads&step=weights&compare=1',
      '#example=003&step=weights&numbers',
      '#example=004&step=weights&lines',
    ].entries()) {
      await open(page, `/?${i}${hash}`);
      await openDrawer(page);
      const { inner, wide } = await page.evaluate(() => ({ inner: innerWidth, wide: document.documentElement.scrollWidth }));
      assert.ok(wide <= inner && inner <= 390, `${hash}: ${wide} of ${inner} pixels`);
      await picture(page, `explorer-phone-${i}`, { fullPage: true });
    }
    const { x, y } = await cell(page, 'scores', 1, 1);
    await page.touchscreen.tap(x, y);
    await page.waitForFunction(() => window.explorer.state.row === 1);
  }));

test('a server that wants a key is given one', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'explorer-'));
  writeFileSync(join(folder, 'keys'), 'a-key-of-the-tests\n');
  const daemon = await startDaemon('--api-key-file', join(folder, 'keys'));
  try {
    await onPage({ baseURL: daemon.base, origin: daemon.base, expected: refused }, async (page) => {
      await page.goto('/');
      await page.waitForSelector('#key-dialog[open]');
      await page.fill('#key', 'another-key');
      await page.keyboard.press('Enter');
      await page.waitForFunction(() => /does not know/.test(document.getElementById('key-title').textContent));
      await page.fill('#key', 'a-key-of-the-tests');
      await answered(page, () => page.keyboard.press('Enter'));
      assert.equal((await matrix(page, 'output')).length, 4);
      assert.equal(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])), '[{},{},""]');
    });
  } finally {
    await daemon.stop();
    rmSync(folder, { recursive: true });
  }
});

test('a server that is busy is asked again, one that is gone is told of', () =>
  onPage({ expected: /503|ERR_|Failed to load/ }, async (page, { context }) => {
    const busy = { status: 503, headers: { 'Retry-After': '1' }, contentType: 'application/problem+json', body: '{"detail": "too much"}' };
    let times = 1;
    await context.route('**/self-attention', (route) => (times-- > 0 ? route.fulfill(busy) : route.continue()));
    await page.goto('/');
    await page.waitForFunction(() => /busy/.test(document.getElementById('status').textContent));
    await done(page);
    await context.unroute('**/self-attention');
    await context.route('**/self-attention', (route) => route.abort());
    await answered(page, () => setOption(page, 'causal', 'true'), 'error');
    assert.match(await page.textContent('#problem'), /cannot be reached/);
    await context.unroute('**/self-attention');
    await answered(page, () => page.getByRole('button', { name: 'Try again' }).click());
    assert.equal(await page.isHidden('#problem'), true);
  }));

test('works behind a prefix of the path', async () => {
  const address = await base();
  const server = createServer(async (request, response) => {
    const body = request.method === 'POST' ? Buffer.concat(await request.toArray()) : undefined;
    const headers = { 'Content-Type': request.headers['content-type'] ?? '' };
    const answer = await fetch(address + request.url.replace(/^\/at\/this/, ''), { method: request.method, headers, body });
    const { status } = answer;
    if (!request.url.startsWith('/at/this/')) {
      response.writeHead(404).end();
      return;
    }
    const kept = ['content-type', 'content-security-policy'].filter((name) => answer.headers.has(name));
    response.writeHead(status, Object.fromEntries(kept.map((name) => [name, answer.headers.get(name)])));
    response.end(Buffer.from(await answer.arrayBuffer()));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  try {
    await onPage({ origin }, async (page) => {
      await open(page, `${origin}/at/this/`);
      await painted(page, 'weights');
      assert.equal((await matrix(page, 'output')).length, 4);
    });
  } finally {
    server.closeAllConnections?.();
    server.close();
  }
});
