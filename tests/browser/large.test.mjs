// large.test.mjs tests that the page stays quick with 1024 × 1024 weights. It prints the longest task; with STRICT=yes it asserts its time.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answered, cell, flowCell, matrix, open, openDrawer, pane, painted } from './explorer.mjs';
import { onPage, picture, strict } from './harness.mjs';

const N = 1024;
const MOST_MS = 100;

// Returns a causal request with rows of 16 columns. A simple generator makes the numbers, so that they are always the same.
function body() {
  let seed = 5;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const rows = () => Array.from({ length: N }, () => Array.from({ length: 16 }, () => Math.round(4000 * (random() - 0.5)) / 1000));
  return JSON.stringify({ causal: true, Q: rows(), K: rows(), V: rows() });
}

test('1024 × 1024: shown, pointed at, scrolled, as lines, with the page never frozen', () =>
  onPage({}, async (page) => {
    await page.addInitScript(() => {
      window.long = [];
      new PerformanceObserver((list) => {
        window.long.push(...list.getEntries().map(({ startTime, duration }) => [Math.round(startTime), duration]));
      }).observe({ type: 'longtask' });
    });
    await open(page);
    await painted(page, 'weights');
    const buffer = Buffer.from(body());
    const begin = await page.evaluate(() => performance.now());
    await answered(page, () => page.setInputFiles('#file', { name: 'body.json', mimeType: 'application/json', buffer }));
    await painted(page, 'weights');
    const done = await page.evaluate(() => performance.now());
    const { x, y } = await cell(page, 'weights', 700, 300);
    await page.mouse.move(x, y, { steps: 5 });
    await page.waitForSelector('#tooltip:not([hidden])');
    await page.mouse.wheel(0, 400);
    await openDrawer(page);
    await page.click('#log');
    await page.click('[data-frame="lines"]');
    await page.waitForSelector('.lines-word');
    await page.locator('.lines-scroll').evaluate((scroll) => (scroll.scrollTop = 9000));
    await page.waitForTimeout(1000);
    await picture(page, 'large-lines');
    await page.click('[data-frame="flow"]');
    for (const id of ['scores', 'v', 'weights']) {
      const place = await flowCell(page, id, 800, 7);
      await page.mouse.move(place.x, place.y);
      assert.equal(await page.locator(`[data-node="${id}"] .mark-cell`).count(), 1);
    }
    await page.waitForTimeout(500);
    await picture(page, 'large-flow');
    await painted(page, 'weights');
    await picture(page, 'large', { fullPage: true });
    const long = (await page.evaluate(() => window.long)).filter(([start]) => start >= begin);
    const longest = Math.max(0, ...long.map(([, duration]) => duration));
    console.log(`1024 × 1024: there after ${Math.round(done - begin)} ms; ${long.length} tasks over 50 ms, the longest ${longest} ms`);
    assert.equal(await pane(page, 'weights').locator('.figure').getAttribute('data-masked'), String((N * (N - 1)) / 2));
    const [first] = await matrix(page, 'weights');
    assert.equal(first[0], 1);
    if (strict) {
      assert.ok(longest <= MOST_MS, `a task took ${longest} ms: ${JSON.stringify(long)}`);
    }
  }));

test('a map of 1024 words takes the width, has many colours, and its bar says what they are', () =>
  onPage({ viewport: { width: 1366, height: 768 } }, async (page) => {
    await open(page, '/#example=own');
    const words = Array.from(
      { length: N },
      (_, at) => `${'abcdefgh'[at % 8]}${'ijklmnop'[(at >> 3) % 8]}${'rstu'[(at * at) % 4]}${at % 11}`,
    );
    await openDrawer(page);
    await answered(page, () => page.fill('#sentence', words.join(' ')));
    await page.click('#drawer-open');
    await painted(page, 'weights');
    const { x, width } = await page.locator('#single .figure-over').first().boundingBox();
    assert.ok(x + width > 600, `the cells end at ${x + width}`);
    await page.waitForSelector('#single .colours[aria-label*="mean weight in a pixel"][aria-label$="or more"]');
    // The colours of the pictures, in eight steps of green, which grows along the palette.
    const shares = (selector) =>
      page.locator(selector).evaluate((canvas) => {
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const counts = new Array(8).fill(0);
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) counts[data[at + 1] >> 5]++;
        const all = counts.reduce((a, b) => a + b);
        return counts.map((count) => count / all);
      });
    for (const head of [0, 1, 2, 3]) {
      const thumb = `.head[data-head="${head}"] .thumb`;
      await page.waitForFunction((selector) => document.querySelector(selector).width > 60, thumb);
      const found = await shares(thumb);
      assert.ok(Math.max(...found) < 0.8, `head ${head}: ${found}`);
    }
  }));
