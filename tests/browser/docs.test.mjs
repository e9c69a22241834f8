// The reference of the API at /docs: it renders every operation of openapi.yaml, tries a request, and asks nobody else.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { onPage, picture, serious } from './harness.mjs';

const document = readFileSync(new URL('../../openapi.yaml', import.meta.url), 'utf8');
// A path stands two spaces in, its methods four.
const operations = document.match(/^ {2}\/|^ {4}(get|post|put|delete):$/gm).filter((line) => line.startsWith('    ')).length;

// What axe-core finds in Swagger UI; nothing may come on top. (Each operation's heading is a button that holds a link.)
const VIEWERS_OWN = ['nested-interactive'];

async function open(page) {
  await page.goto('/docs');
  await page.waitForSelector('.opblock');
}

test('docs: every operation of openapi.yaml is there', () =>
  onPage({}, async (page) => {
    await open(page);
    assert.equal(await page.locator('.opblock').count(), operations);
    await picture(page, 'docs');
  }));

test('docs: a request is tried against this server', () =>
  onPage({}, async (page) => {
    await open(page);
    await page.locator('.opblock', { has: page.locator('[data-path="/softmax"]') }).locator('.opblock-summary-control').click();
    const body = page.locator('.opblock.is-open textarea');
    await body.fill('{"X": [0, 0]}');
    const [answer] = await Promise.all([
      page.waitForResponse((response) => response.url().endsWith('/softmax')),
      page.locator('.opblock.is-open .execute').click(),
    ]);
    assert.equal(answer.status(), 200);
    assert.deepEqual(await answer.json(), { output: [0.5, 0.5] });
    await page.waitForSelector('.live-responses-table .response-col_status:has-text("200")');
    assert.match(await page.locator('.live-responses-table .highlight-code').first().textContent(), /0\.5/);
    await picture(page, 'docs-tried');
  }));

test('docs: on a phone, light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    await onPage({ colorScheme, viewport: { width: 390, height: 844 } }, async (page) => {
      await open(page);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing to scroll sideways');
      await picture(page, `docs-phone-${colorScheme}`);
      const findings = await serious(page);
      const rules = findings.map((finding) => finding.split(':')[0]);
      console.log(`docs, ${colorScheme}: ${findings.length} findings of axe-core in Swagger UI: ${[...new Set(rules)].join(', ')}`);
      assert.deepEqual(findings.filter((finding, i) => !VIEWERS_OWN.includes(rules[i])), []);
    });
  }
});
