// reach.test.mjs tests that the page reaches everybody: in a frame of a notebook, in the tour, on paper, with forced colours, at 400 %, and
// with fingers.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import { promisify } from 'node:util';
import { answered, done, matrix, open, painted } from './explorer.mjs';
import { base, onPage, picture, serious, startDaemon } from './harness.mjs';

const run = promisify(execFile);
const state = (page) => page.evaluate(() => window.explorer.state);

// Runs the program of README that shows a figure, with an IFrame that prints its address. Returns this address.
async function addressOfReadme() {
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
  const [, code] = /```python\n((?:(?!```).)*IFrame\((?:(?!```).)*)```/s.exec(readme);
  const folder = mkdtempSync(join(tmpdir(), 'readme-'));
  try {
    mkdirSync(join(folder, 'IPython'));
    writeFileSync(join(folder, 'IPython', '__init__.py'), '');
    writeFileSync(join(folder, 'IPython', 'display.py'), 'def IFrame(src, width, height):\n    print(src)\n');
    const { stdout } = await run('python3', ['-c', code], { env: { ...process.env, PYTHONPATH: folder } });
    return new URL(stdout.trim());
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('README’s figure stands in a frame of a page whose origin is named, and in no other', async () => {
  const { pathname, search, hash } = await addressOfReadme();
  let src;
  const host = createServer((_, response) => {
    response.setHeader('Content-Type', 'text/html');
    response.end(`<!doctype html><title>a notebook</title><iframe title="figure" width="640" height="400" src="${src}"></iframe>`);
  });
  await new Promise((resolve) => host.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${host.address().port}`;
  const daemon = await startDaemon('--frame-ancestors', `https://a.example,${origin}`);
  try {
    for (const [address, allowed] of [
      [daemon.base, true],
      [await base(), false],
    ]) {
      // prettier-ignore
      src = `${address.replace(/\/$/, '')}${pathname}${search}${hash}`;
      await onPage({ origin, baseURL: origin, also: new URL(address).origin, expected: /frame/i }, async (page) => {
        await page.goto(origin);
        const frame = page.frameLocator('iframe');
        if (!allowed) {
          await page.waitForTimeout(1000);
          assert.equal(await frame.locator('#steps').count(), 0);
          return;
        }
        await frame.locator('[data-step="weights"] .figure[data-drawn="true"]').waitFor();
        const inner = page.frames().find((one) => one.url().startsWith(address));
        const { data } = await inner.evaluate(() => window.explorer.matrix('weights'));
        assert.deepEqual([data[0], data[1]], [1, 0], 'the first word sees itself alone');
        assert.deepEqual(await inner.evaluate(() => window.explorer.state.labels), ['the', 'cat', 'sat']);
        for (const part of ['.top', '#examples', '#film', '#dock .arithmetic', 'aside[aria-label="The request"]', '#curve']) {
          assert.equal(await frame.locator(part).isVisible(), false, part);
        }
        const { wide, high } = await inner.evaluate(() => ({
          wide: document.documentElement.scrollWidth,
          high: document.documentElement.scrollHeight,
        }));
        assert.ok(wide <= 640 && high <= 400, `${wide} × ${high}`);
        await picture(page, 'reach-frame');
      });
    }
  } finally {
    await daemon.stop();
    host.close();
  }
});

test('a step that does not exist cannot be embedded, and this is said', () =>
  onPage({}, async (page) => {
    await open(page, '/?embed=weight#example=003');
    assert.match(await page.textContent('#problem'), /^There is no step weight to embed.*The steps are X, .*weights, states, output\./);
    assert.equal(await page.locator('#film').isVisible(), true);
  }));

test('the tour: five stops with the page’s own numbers, by keyboard; it is gone once it is closed', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    assert.equal(await page.locator('#tour').isVisible(), true);
    await page.focus('#tour button');
    await answered(page, () => page.keyboard.press('Enter'));
    await page.waitForSelector('#tour h2');
    assert.equal((await state(page)).example, '000');
    const Q = await matrix(page, 'Q');
    const weights = await matrix(page, 'weights');
    const short = (value) => String(Number(value.toPrecision(3)));
    const stops = [];
    for (let at = 1; at <= 5; at++) {
      assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H2', 'the focus is on the stop');
      const text = await page.textContent('#tour');
      assert.ok(text.startsWith(`${at} of 5: `), text);
      stops.push([(await state(page)).step, text]);
      assert.deepEqual(await serious(page), []);
      if (at < 5) await page.keyboard.press('ArrowRight');
    }
    assert.deepEqual(stops.map(([step]) => step), ['Q', 'K', 'weights', 'output', 'weights']); // prettier-ignore
    assert.ok(stops[0][1].includes(`The query of word 1 is ${Q[0].join(', ')}`), stops[0][1]);
    assert.ok(stops[1][1].includes('2 × 2 + 0 × 4 + 2 × 3 = 10'), stops[1][1]);
    assert.ok(stops[2][1].includes(weights[0].map(short).join(', ')), stops[2][1]);
    assert.match(stops[3][1], / = 0\.9852\. /);
    await picture(page, 'reach-tour');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('#tour').isVisible(), false);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'tour-open');
    await page.reload();
    await done(page);
    assert.equal(await page.locator('#tour').isVisible(), false, 'it is not offered again');
    await page.click('#tour-open');
    await page.waitForSelector('#tour h2');
    await answered(page, () => page.click('[data-example="004"]'));
    assert.equal(await page.locator('#tour').isVisible(), false, 'another example ends it');
  }));

test('the tour ends when the request changes, except at its last stop, which asks for that', () =>
  onPage({}, async (page) => {
    await open(page);
    const go = (name) => page.click(`#tour button:has-text("${name}")`);
    await go('Start the tour');
    await go('Next');
    await answered(page, () => page.selectOption('#option-causal', 'true'));
    assert.equal(await page.locator('#tour').isVisible(), false);
    await answered(page, () => page.click('#tour-open'));
    assert.equal(await page.inputValue('#option-causal'), '', 'the tour has the numbers of the notebook itself');
    for (let at = 0; at < 4; at++) await go('Next');
    await answered(page, () => page.selectOption('#option-causal', 'true'));
    assert.match(await page.textContent('#tour'), /^5 of 5/);
    await answered(page, () => go('Back'));
    assert.equal(await page.inputValue('#option-causal'), '');
    await page.waitForFunction(() => document.getElementById('tour').textContent.startsWith('4 of 5'));
  }));

test('a link that unpacks to 40 MB is refused, and a notice does not hide what is wrong with the request', () =>
  onPage({ expected: /status of 422|400/ }, async (page) => {
    const packed = (request) => deflateRawSync(JSON.stringify({ path: '/attention', labels: [], ...request })).toString('base64url');
    for (const request of [{ text: ' '.repeat(40e6) }, { text: '{}', labels: new Array(1e6).fill(1) }]) {
      await open(page, `/#example=003&request=${packed(request)}`);
      assert.match(await page.textContent('#problem'), /^This link is damaged/);
      await page.goto('about:blank');
    }
    await open(page, '/#example=003');
    await answered(page, () => page.fill('#request', '{"X": [[1, 2], [3]]}'), 'error');
    const wrong = await page.textContent('#problem');
    await page.setInputFiles('#file', { name: 'X.npy', mimeType: 'application/octet-stream', buffer: Buffer.from('no array') });
    await page.waitForFunction(() => document.getElementById('problem').textContent.startsWith('X.npy: not opened'));
    assert.equal(await page.locator('#result.stale').count(), 1);
    await page.click('#problem button:has-text("Close")');
    assert.equal(await page.textContent('#problem'), wrong);
    assert.equal(await page.locator('#marks mark').count(), 1);
  }));

// The size of A4 without margins of 15 mm, in pixels of CSS.
const SHEET = { width: 680, height: 1009 };

test('every notebook prints in light colours, with no map that a page cuts', async () => {
  for (const [i, hash] of ['000', '001', '002', '003&step=output', '004&lines', 'own-large'].entries()) {
    await onPage({ colorScheme: 'dark' }, async (page) => {
      await open(page, `/?${i}#example=${hash}`);
      const before = await state(page);
      await page.emulateMedia({ media: 'print' });
      await page.setViewportSize(SHEET);
      await page.evaluate(() => window.dispatchEvent(new Event('beforeprint')));
      const seen = await page.evaluate(() => {
        const boxes = [...document.querySelectorAll('.step:not([hidden])')].map((step) => {
          const { right, height } = step.getBoundingClientRect();
          return { step: step.dataset.step, right, height, kept: getComputedStyle(step).breakInside };
        });
        const blank = [...document.querySelectorAll('.step:not([hidden]) .pane:not([hidden]) .figure')].filter(
          ({ dataset }) => dataset.drawn !== 'true',
        );
        const grounds = [document.documentElement, document.body].map((element) => getComputedStyle(element).backgroundColor);
        return {
          boxes,
          blank: blank.length,
          grounds,
          ink: getComputedStyle(document.body).color,
          wide: document.documentElement.scrollWidth,
        };
      });
      assert.ok(seen.boxes.length >= 7, `${hash}: ${seen.boxes.length} steps`);
      assert.equal(seen.blank, 0, `${hash}: every map is drawn`);
      for (const { step, right, height, kept } of seen.boxes) {
        assert.ok(right <= SHEET.width + 1 && height <= SHEET.height, `${hash}: ${step} ends at ${right} and is ${height} high`);
        assert.equal(kept, 'avoid', step);
      }
      assert.ok(seen.wide <= SHEET.width, `${hash}: ${seen.wide} pixels wide`);
      assert.deepEqual(seen.grounds[1], 'rgb(255, 255, 255)');
      assert.match(seen.ink, /^rgb\((\d|[1-4]\d), /, 'the ink is dark');
      await picture(page, `reach-print-${i}`, { fullPage: true });
      await page.evaluate(() => window.dispatchEvent(new Event('afterprint')));
      await page.emulateMedia({ media: 'screen' });
      assert.deepEqual(await state(page), before);
      assert.equal(await page.getAttribute('html', 'data-theme'), 'dark');
      // The browser itself calls both events when it prints.
      const pdf = await page.pdf({ format: 'A4' });
      assert.equal(pdf.subarray(0, 4).toString(), '%PDF');
    });
  }
});

test('with forced colours, what is chosen can be seen, and axe-core finds nothing', () =>
  onPage({ forcedColors: 'active' }, async (page) => {
    await open(page, '/#example=001');
    await painted(page, 'weights');
    for (const [chosen, other] of [
      ['[data-example="001"]', '[data-example="000"]'],
      ['[data-variant="001-heads"]', '[data-variant="001-head"]'],
      ['[data-frame="weights"]', '[data-frame="scores"]'],
      ['#heads [data-head="0"]', '#heads [data-head="1"]'],
      ['#as-map', '#as-lines'],
    ]) {
      const outline = (selector) => page.locator(selector).evaluate((element) => getComputedStyle(element).outlineStyle);
      assert.deepEqual([await outline(chosen), await outline(other)], ['solid', 'none'], chosen);
    }
    assert.deepEqual(await serious(page), []);
    await picture(page, 'reach-forced');
  }));

test('at 400 % nothing is hidden by what stays in sight, and axe-core finds nothing', () =>
  onPage({ viewport: { width: 360, height: 225 } }, async (page) => {
    await open(page, '/#example=003');
    const { position } = await page.locator('#dock').evaluate((element) => ({ position: getComputedStyle(element).position }));
    assert.equal(position, 'static');
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing scrolls sideways');
    await page.evaluate(() => document.querySelectorAll('details').forEach((one) => (one.open = true)));
    assert.deepEqual(await serious(page), []);
    await picture(page, 'reach-400', { fullPage: true });
  }));

test('every target has at least 24 × 24 pixels, or a label of this size', async () => {
  for (const options of [{}, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }]) {
    await onPage(options, async (page) => {
      await open(page, '/#example=001&lines&numbers');
      await page.evaluate(() => document.querySelectorAll('details').forEach((one) => (one.open = true)));
      const small = await page.evaluate(() => {
        const all = [...document.querySelectorAll('button, input, select, summary, textarea, [tabindex="0"]')];
        const size = (element) => {
          const { width, height } = element.getBoundingClientRect();
          return Math.min(width, height);
        };
        const named = (element) =>
          `${element.localName}#${element.id}.${element.className} ${element.textContent.slice(0, 20)} ${size(element)}`;
        return all
          .filter(
            (element) => element.checkVisibility() && !element.closest('.unseen, .menu > div') && !element.classList.contains('unseen'),
          )
          .filter((element) => Math.max(size(element), ...[...(element.labels ?? [])].map(size)) < 24)
          .map(named);
      });
      assert.deepEqual(small, []);
    });
  }
});
