// views.test.mjs tests the lines, the softmax curve and the downloads on a page that has nothing else (views/), under the
// Content-Security-Policy of the explorer.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname } from 'node:path';
import { after, before, test } from 'node:test';
import { base, onPage, picture, serious, strict } from './harness.mjs';

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'";
const TYPES = { '.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript' };
const WORDS = 'mathematics catalogues everything not self-contradictory within its vast inventory'.split(' ');
const notebook = JSON.parse(readFileSync(new URL('../notebooks/001-softmax-curve.expected.json', import.meta.url)));

let server;
let origin;

// Serves views/ and the sources of the explorer, and passes POST requests on to the daemon.
async function serve(request, response) {
  if (request.method === 'POST') {
    const parts = await request.toArray();
    const headers = { 'Content-Type': 'application/json' };
    const answer = await fetch((await base()) + request.url, { method: 'POST', headers, body: Buffer.concat(parts) });
    response.writeHead(answer.status, headers).end(await answer.text());
    return;
  }
  const name = request.url === '/' ? 'index.html' : request.url.slice(1);
  for (const folder of ['./views/', '../../server/explorer/src/']) {
    try {
      const file = readFileSync(new URL(folder + name, import.meta.url));
      response.writeHead(200, { 'Content-Type': TYPES[extname(name)], 'Content-Security-Policy': POLICY }).end(file);
      return;
    } catch {
      // The file may be in the other folder.
    }
  }
  response.writeHead(404).end();
}

before(async () => {
  server = createServer((request, response) => {
    serve(request, response).catch((error) => response.writeHead(500).end(String(error)));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  origin = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections?.();
  server.close();
});

// Shows weights as lines. Each row of the weights is the softmax of invented numbers. causal: whether the upper triangle is masked.
function show(page, { rows, cols, heads = 1, causal = false, labels = [], ...options }) {
  return page.evaluate(
    ({ rows, cols, heads, causal, labels, options }) => {
      let seed = 1;
      const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
      const masked = new Uint8Array(rows * cols);
      const head = (_, index) => {
        const weights = new Float32Array(rows * cols);
        for (let row = 0; row < rows; row++) {
          const open = causal ? row + 1 : cols;
          const values = Array.from({ length: open }, () => Math.exp(4 * random()));
          const sum = values.reduce((total, value) => total + value, 0);
          for (let col = 0; col < cols; col++) {
            weights[row * cols + col] = col < open ? values[col] / sum : 0;
            masked[row * cols + col] = col < open ? 0 : 1;
          }
        }
        return { weights, masked, name: `head ${index}`, index };
      };
      const all = Array.from({ length: heads }, head);
      const [queryLabels, keyLabels] = [rows, cols].map((count, side) => Array.from({ length: count }, (_, at) => labels[at] ?? `${'qk'[side]}${at}`));
      window.data = { rows, cols, heads: all, queryLabels, keyLabels, threshold: 0, mode: 'weight', row: null, ...options };
      window.views.lines.update(window.data);
    },
    { rows, cols, heads, causal, labels, options },
  );
}

const settled = (page) => page.waitForFunction(() => window.views.lines.frame === 0);
const told = (page) => page.evaluate(() => window.views.told);
const open = (page) => page.goto(origin).then(() => page.waitForFunction(() => window.views));

test('lines: every open pair has one, no masked pair has', () =>
  onPage({ origin }, async (page) => {
    await open(page);
    await show(page, { rows: 9, cols: 9, causal: true, labels: WORDS });
    await settled(page);
    const lines = await page.locator('.lines-line').evaluateAll((all) => all.map(({ dataset }) => [+dataset.query, +dataset.key]));
    assert.equal(lines.length, 45);
    assert.ok(lines.every(([query, key]) => key <= query));
    assert.deepEqual(await page.locator('.lines-queries .lines-label').allTextContents(), WORDS);
    assert.equal(await page.locator('.lines-keys .lines-word[data-key="4"]').getAttribute('title'), 'key 4: self-contradictory');
    await picture(page, 'views-lines');
  }));

test('lines: a word pointed at shows its lines alone, with the weights as numbers and bars; a click locks it', () =>
  onPage({ origin }, async (page) => {
    await open(page);
    await show(page, { rows: 9, cols: 9, causal: true, labels: WORDS });
    await page.hover('.lines-word[data-query="2"]');
    await page.waitForFunction(() => document.querySelectorAll('.lines-line').length === 3);
    const weights = await page.evaluate(() => Array.from(window.data.heads[0].weights.slice(18, 27)));
    const values = await page.locator('.lines-keys .lines-value').allTextContents();
    assert.deepEqual(values, [...weights.slice(0, 3).map((weight) => weight.toFixed(3)), ...Array(6).fill('masked')]);
    assert.equal(await page.locator('.lines-keys .lines-bar').count(), 3);
    assert.deepEqual((await told(page)).hover.at(-1), { query: 2, key: null });

    await page.click('.lines-word[data-query="2"]');
    assert.deepEqual((await told(page)).lock, [2]);
    await page.hover('.lines-word[data-query="7"]');
    await page.waitForTimeout(50);
    assert.equal(await page.locator('.lines-line').count(), 3, 'the locked word stays');
    assert.equal(await page.locator('.lines-word[aria-pressed="true"]').getAttribute('data-query'), '2');
    await picture(page, 'views-lines-locked');
    await page.keyboard.press('Escape');
    assert.deepEqual((await told(page)).lock, [2, null]);

    await page.click('.lines-word[data-key="0"]');
    await page.mouse.move(1, 1);
    await page.waitForFunction(() => document.querySelectorAll('.lines-line').length === 9);
    assert.equal((await page.locator('.lines-queries .lines-value').allTextContents())[0], '1.000');
    assert.equal((await told(page)).hover.at(-1), null);
  }));

test('lines: thresholds of weight and of mass', () =>
  onPage({ origin }, async (page) => {
    await open(page);
    const weights = async (options) => {
      await show(page, { rows: 9, cols: 9, ...options });
      await settled(page);
      await page.waitForTimeout(50);
      return page.evaluate(() => {
        const { weights, cols } = { ...window.data.heads[0], cols: 9 };
        return Array.from(document.querySelectorAll('.lines-line'), ({ dataset }) => weights[dataset.query * cols + +dataset.key]);
      });
    };
    const above = await weights({ threshold: 0.2 });
    assert.ok(above.length > 0 && above.length < 81 && Math.min(...above) >= 0.2);
    const sums = async (threshold) => (await weights({ threshold, mode: 'mass' })).reduce((sum, weight) => sum + weight, 0);
    assert.ok((await sums(0.5)) >= 9 * 0.5 && (await sums(0.5)) < 9 * 0.9);
    assert.ok((await sums(0.9)) >= 9 * 0.9);
  }));

test('lines: heads in colours of their own', () =>
  onPage({ origin }, async (page) => {
    await open(page);
    await show(page, { rows: 9, cols: 9, heads: 4, labels: WORDS, threshold: 0.1 });
    await settled(page);
    // The lines are found and read in one step. A line that is removed in between would have no colour.
    const colours = await page.evaluate(() => [
      ...new Set(Array.from(document.querySelectorAll('.lines-line'), (line) => getComputedStyle(line).stroke)),
    ]);
    assert.equal(colours.length, 4);
    assert.deepEqual(await page.locator('.lines-legend li').allTextContents(), ['head 0', 'head 1', 'head 2', 'head 3']);
    await page.hover('.lines-word[data-query="3"]');
    await page.waitForFunction(() => document.querySelectorAll('.lines-keys .lines-bar').length === 36);
    await picture(page, 'views-lines-heads');
  }));

test('lines: the keyboard goes from word to word, locks and unlocks', () =>
  onPage({ origin }, async (page) => {
    await open(page);
    await show(page, { rows: 60, cols: 60 });
    await page.waitForSelector('.lines-word');
    await page.keyboard.press('Tab');
    const focused = () => page.evaluate(() => ({ ...document.activeElement.dataset }));
    assert.deepEqual(await focused(), { query: '0' });
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowRight');
    assert.deepEqual(await focused(), { key: '1' });
    await page.keyboard.press('End');
    assert.deepEqual(await focused(), { key: '59' });
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    assert.deepEqual((await told(page)).lock, [59]);
    await page.keyboard.press('Escape');
    assert.deepEqual((await told(page)).lock, [59, null]);
    await page.keyboard.press('Home');
    assert.deepEqual(await focused(), { query: '0' });
    assert.equal(await page.locator('.lines [tabindex="0"]').count(), 2, 'one stop of Tab a column');
  }));

test('lines: 1024 words of 4 heads scroll, with no long task', () =>
  onPage({ origin }, async (page) => {
    await open(page);
    await page.evaluate(() => {
      window.long = [];
      new PerformanceObserver((list) => window.long.push(...list.getEntries().map(({ duration }) => duration))).observe({
        type: 'longtask',
      });
    });
    await show(page, { rows: 1024, cols: 1024, heads: 4, threshold: 0.9, mode: 'mass' });
    await settled(page);
    // Making the numbers is work of the test, so the tasks until now are not counted.
    await page.waitForTimeout(200);
    await page.evaluate(() => (window.long.length = 0));
    await page.evaluate(() => window.views.lines.update({ ...window.data, threshold: 0.8 }));
    for (let at = 0; at <= 20000; at += 4000) {
      await page.evaluate((top) => (document.querySelector('.lines-scroll').scrollTop = top), at);
      await page.waitForTimeout(100);
      await settled(page);
    }
    assert.match(await page.textContent('.lines-note'), /^the 600 strongest of \d+ lines of the queries in view$/);
    const drawn = await page.locator('.lines-line').count();
    assert.ok(drawn > 0 && drawn <= 600, `${drawn} lines`);
    assert.ok((await page.locator('.lines-word').count()) < 100, 'words out of view are not there');
    await picture(page, 'views-lines-1024');
    await page.hover('.lines-word[data-query="780"]');
    await page.waitForFunction(() => document.querySelector('.lines').dataset.active === 'query-780');
    await settled(page);
    const long = await page.evaluate(() => window.long);
    console.log(`longest task with 1024 words: ${Math.max(0, ...long)} ms`);
    if (strict) {
      assert.deepEqual(long, []);
    }
  }));

test('lines and curve: dark, on a phone, and nothing that axe-core finds', () =>
  onPage({ origin, viewport: { width: 390, height: 844 } }, async (page) => {
    await open(page);
    for (const dark of [false, true]) {
      await page.evaluate((theme) => (document.documentElement.dataset.theme = theme), dark ? 'dark' : 'light');
      await show(page, { rows: 9, cols: 9, heads: 8, labels: WORDS, row: 3 });
      await page.waitForSelector('.curve[data-state="done"]');
      await settled(page);
      assert.deepEqual(await serious(page), []);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing to scroll sideways');
      await picture(page, `views-phone-${dark ? 'dark' : 'light'}`, { fullPage: true });
    }
  }));

test("curve: the notebook's numbers, from the service; the temperature asks again", () =>
  onPage({ origin }, async (page) => {
    await open(page);
    await page.waitForSelector('.curve[data-state="done"]');
    const largest = Math.max(...notebook.expect.output).toFixed(6);
    assert.equal(await page.textContent('.curve-readout'), `sum 1.000000, largest ${largest}`);
    const plot = await page.locator('.curve-plot').boundingBox();
    await page.mouse.move(plot.x + plot.width - 1, plot.y + 100);
    assert.equal(await page.textContent('.curve-readout'), `softmax at 4.9 is ${notebook.expect.output.at(-1).toPrecision(4)}`);
    const before = await page.getAttribute('.curve-line', 'd');
    await page.focus('.curve input');
    await page.keyboard.press('End');
    await page.waitForSelector('.curve[data-temperature="10"][data-state="done"]');
    assert.notEqual(await page.getAttribute('.curve-line', 'd'), before);
    assert.equal(await page.locator('.curve-reference').count(), 1);
    await page.mouse.move(1, 1);
    assert.match(await page.textContent('.curve-readout'), /^sum 1\.000000, largest 0\.0157/);
    await picture(page, 'views-curve');
  }));

test('curve: saved as SVG and PNG, it looks as on the page', () =>
  onPage({ origin }, async (page) => {
    await open(page);
    await page.waitForSelector('.curve[data-state="done"]');
    const saved = async (format) => {
      const [download] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: `Save the curve as ${format}` }).click(),
      ]);
      assert.equal(download.suggestedFilename(), `softmax.${format.toLowerCase()}`);
      return readFileSync(await download.path());
    };
    const { width } = await page.locator('.curve-plot').boundingBox();
    const png = await saved('PNG');
    assert.deepEqual([...png.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    assert.equal(png.readUInt32BE(16), 2 * Math.round(width));
    const svg = String(await saved('SVG'));
    assert.ok(!svg.includes('var('));
    // The file has the colours of the page although it has no style sheet.
    const colours = await page.evaluate(async (text) => {
      const image = new Image();
      image.src = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
      await image.decode();
      const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
      canvas.getContext('2d').drawImage(image, 0, 0);
      const { data } = canvas.getContext('2d').getImageData(0, 0, image.width, image.height);
      const found = new Set();
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] === 255) found.add(`rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`);
      }
      return [...found];
    }, svg);
    const stroke = await page.locator('.curve-line').evaluate((line) => getComputedStyle(line).stroke);
    assert.ok(colours.includes(stroke), `${stroke} is not among ${colours}`);
  }));
