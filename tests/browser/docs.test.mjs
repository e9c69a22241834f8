// docs.test.mjs tests the reference at /docs. Without a script, the page shows every path, key and example of openapi.yaml, and it has at
// most 30 kB as it is sent. The tests run its examples with curl and open them in the explorer.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { PATHS } from '../../server/explorer/src/request.js';
import { done } from './explorer.mjs';
import { findings, onPage, picture, startDaemon } from './harness.mjs';

const ON_THE_WIRE = 30_000; // bytes of the page and its style as they are sent to browsers
const ADDRESS = 'http://127.0.0.1:8080'; // the address in the examples

const read = 'import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1], encoding="utf-8")), sys.stdout)';
const file = fileURLToPath(new URL('../../openapi.yaml', import.meta.url));
const document = JSON.parse(execFileSync('/usr/bin/python3', ['-c', read, file], { encoding: 'utf8' }));
const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method, operation })),
);
function resolve(node) {
  if (!node.$ref) return node;
  const [, ...names] = node.$ref.split('/');
  return resolve(names.reduce((inner, name) => inner[name], document));
}
const json = (part) => resolve(part ?? {}).content?.['application/json'];

// Compares two answers. Numbers of float32 may differ in their last digit from machine to machine.
function near(got, wanted) {
  if (typeof wanted === 'number') return typeof got === 'number' && Math.abs(got - wanted) <= 1e-6 * Math.abs(wanted) + 1e-7;
  if (wanted === null || typeof wanted !== 'object') return got === wanted;
  const names = Object.keys(wanted);
  return String(Object.keys(got ?? {})) === String(names) && names.every((name) => near(got[name], wanted[name]));
}

// Returns the links within the page, and the keys of tables, that are below a heading, as [text, hash]. heading: "GET /layers", or the hash of the heading.
const links = (page, heading) =>
  page.evaluate((heading) => {
    const own = [...document.querySelectorAll('main h3')].find(({ textContent, id }) => textContent === heading || `#${id}` === heading);
    const found = [];
    for (let part = own?.nextElementSibling; part && !/^H[23]$/.test(part.tagName); part = part.nextElementSibling) {
      for (const { textContent, hash } of part.querySelectorAll('a[href^="#"]')) found.push([textContent, hash]);
      for (const { textContent, id } of part.querySelectorAll('th span[id]')) found.push([textContent, `#${id}`]);
    }
    return found;
  }, heading);

test('docs: every path, and every key of what it takes and returns, without a script', () =>
  onPage({ javaScriptEnabled: false }, async (page, { requests }) => {
    await page.goto('/docs');
    assert.equal(requests.length, 2, 'the page and its style');
    assert.equal(await page.locator('script').count(), 0);
    assert.ok(operations.length > 10);
    for (const { path, method, operation } of operations) {
      const linked = await links(page, `${method.toUpperCase()} ${path}`);
      // If another path has the same keys, the page lists them there and links to it.
      for (const [, other] of linked.filter(([text]) => text in document.paths)) {
        linked.push(...(await links(page, other)));
      }
      const schemas = [json(operation.requestBody), json(operation.responses['200'])].filter(Boolean).map(({ schema }) => resolve(schema));
      for (const key of schemas.flatMap(({ properties }) => Object.keys(properties ?? {}))) {
        const hashes = linked.filter(([name]) => name === key).map(([, hash]) => hash);
        assert.ok(hashes.length > 0, `${path} names ${key}`);
        for (const hash of hashes) {
          const row = page.locator('tr', { has: page.locator(`[id="${hash.slice(1)}"]`) });
          assert.match(await row.locator('td').last().textContent(), /\w{2}/, `${hash} has a meaning`);
        }
      }
      for (const status of Object.keys(operation.responses).filter((status) => /^[45]/.test(status))) {
        assert.ok(
          linked.some(([name, hash]) => name === status && hash === `#error-${status}`),
          `${path} names ${status}`,
        );
      }
    }
    await picture(page, 'docs');
  }));

test('docs: every link within the page leads somewhere, and a key shows that it is one', () =>
  onPage({}, async (page) => {
    await page.goto('/docs');
    const dead = await page.evaluate(() =>
      [...document.querySelectorAll('a[href^="#"]')].filter((a) => !document.getElementById(a.hash.slice(1))).map((a) => a.hash),
    );
    assert.deepEqual(dead, []);
    const key = page.locator('#option-causal');
    const mark = () =>
      key.evaluate((element) => [getComputedStyle(element, '::after').content, getComputedStyle(element, '::after').opacity]);
    assert.equal((await mark())[1], '0');
    await key.focus();
    assert.match(String(await mark()), /#.*,1$/);
    await page.keyboard.press('Enter');
    assert.equal(new URL(page.url()).hash, '#option-causal');
    const top = await key.evaluate((element) => element.getBoundingClientRect().top);
    assert.ok(top >= 0 && top < 200, `the key is ${top} px below the top`);
  }));

test('docs: curl gets the answers that the page shows', async () => {
  // The examples have a stored layer.
  const daemon = await startDaemon('--layers', fileURLToPath(new URL('../data/layers', import.meta.url)));
  await onPage({}, async (page) => {
    await page.goto('/docs');
    const examples = operations.flatMap(({ operation }) => Object.keys(json(operation.requestBody)?.examples ?? {}));
    const shown = await page
      .locator('.title + pre')
      .evaluateAll((all) => all.map((pre) => [pre.textContent, pre.nextElementSibling.textContent]));
    assert.equal(shown.length, examples.length);
    for (const [command, answer] of shown) {
      assert.ok(command.startsWith(`curl ${ADDRESS}/`), command);
      const { stdout } = await promisify(execFile)('sh', ['-c', `${command.replace(ADDRESS, daemon.base)} -sS`]);
      assert.ok(near(JSON.parse(stdout), JSON.parse(answer)), `${command}\n${stdout}`);
    }
  }).finally(daemon.stop);
});

test('docs: the explorer opens the examples and computes them', () =>
  onPage({}, async (page) => {
    await page.goto('/docs');
    const wanted = operations
      .filter(({ path }) => PATHS.includes(path))
      .flatMap(({ path, operation }) =>
        Object.values(json(operation.requestBody).examples).map((example) => [path, resolve(example).value]),
      );
    const links = page.getByRole('link', { name: 'Open in the explorer' });
    assert.equal(await links.count(), wanted.length);
    for (const [i, [path, body]] of wanted.entries()) {
      await page.goto('/docs');
      await links.nth(i).click();
      await done(page);
      assert.equal(await page.inputValue('#path'), path);
      assert.deepEqual(JSON.parse(await page.inputValue('#request')), body);
      assert.match(await page.textContent('#status'), /: server\s+[\d.]+ ms/);
    }
  }));

for (const colorScheme of ['light', 'dark']) {
  for (const [screen, viewport] of Object.entries({
    wide: { width: 1440, height: 900 },
    tablet: { width: 820, height: 1180 },
    phone: { width: 360, height: 780 },
  })) {
    test(`docs: ${colorScheme}, ${screen}`, () =>
      onPage({ colorScheme, viewport }, async (page) => {
        await page.goto('/docs');
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing to scroll sideways');
        const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
        assert.equal(Math.min(...paper) > 128, colorScheme === 'light');
        assert.deepEqual(await findings(page), []);
        await picture(page, `docs-${screen}-${colorScheme}`);
      }));
  }
}

test('docs: the page and its style are small', () =>
  onPage({}, async (page, { requests }) => {
    await page.goto('/docs', { waitUntil: 'networkidle' });
    const sizes = await Promise.all(requests.map((request) => request.sizes()));
    const bytes = sizes.reduce((sum, { responseBodySize, responseHeadersSize }) => sum + responseBodySize + responseHeadersSize, 0);
    assert.ok(bytes > 0 && bytes <= ON_THE_WIRE, `${bytes} bytes`);
  }));
