// docs.test.mjs tests the reference at /docs. Without a script, the page shows every path, key and example of openapi.yaml. What it loads at
// first has at most 30 kB as it is sent. The tests run its examples in four languages, send them from the page and open them in the explorer.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request as ask } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { PATHS } from '../../server/explorer/src/request.js';
import { done } from './explorer.mjs';
import { findings, onPage, picture, startDaemon } from './harness.mjs';

const ON_THE_WIRE = 30_000; // bytes of the page, its style and its script as they are sent to browsers
const SCREENS = 15; // of 1280 × 800, if nothing more is opened
const KEY = 'a-key-of-more-than-16-characters';
const SMALL = { width: 1280, height: 800 };

const run = promisify(execFile);
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

let folder;
let daemon;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'docs-'));
  writeFileSync(join(folder, 'keys'), `${KEY}\n`);
  // The examples have a stored layer.
  daemon = await startDaemon('--layers', fileURLToPath(new URL('../../server/models', import.meta.url)));
});
after(async () => {
  await daemon.stop();
  rmSync(folder, { recursive: true });
});

// Opens the reference of a daemon.
const onDocs = (options, does, at = daemon, hash = '') =>
  onPage({ baseURL: at.base, origin: at.base, ...options }, async (page, more) => {
    await page.goto(`/docs${hash}`);
    await does(page, more);
  });

// Compares two answers. Numbers of float32 may differ in their last digit from machine to machine.
function near(got, wanted) {
  if (typeof wanted === 'number') return typeof got === 'number' && Math.abs(got - wanted) <= 1e-6 * Math.abs(wanted) + 1e-7;
  if (wanted === null || typeof wanted !== 'object') return got === wanted;
  const names = Object.keys(wanted);
  return String(Object.keys(got ?? {})) === String(names) && names.every((name) => near(got[name], wanted[name]));
}

// Returns the links and the keys in the part of the page about a path: [text, hash] of each link, [text, ''] of each key, and [text, hash,
// true] of the keys that it does not have, of all shared options or results.
const partOf = (page, method, path) =>
  page.evaluate((label) => {
    const titleOf = (part) => part.firstChild.textContent + part.childNodes[1].textContent.trimEnd();
    const heads = [...document.querySelectorAll('main :is(h3, summary):has(> b)')];
    const head = heads.find((each) => titleOf(each) === label);
    const inside = [];
    if (head.tagName === 'SUMMARY') inside.push(head.parentNode);
    else
      for (let part = head.nextElementSibling; part && !part.matches('h2, h3, :has(> summary > b)'); part = part.nextElementSibling)
        inside.push(part);
    return inside.flatMap((part) => [
      ...[...part.querySelectorAll('a[href^="#"]')].map((a) => [a.textContent, a.hash, a.matches('.except a + a')]),
      ...[...part.querySelectorAll('tr + tr th')]
        .filter((th) => /\w{2}/.test(th.parentNode.lastElementChild.textContent))
        .flatMap((th) => th.textContent.split(' ').map((name) => [name, ''])),
    ]);
  }, `${method.toUpperCase()} ${path}`);

// Returns whether nothing that is folded hides an element, and where its top is in the window.
const sight = (locator) =>
  locator.evaluate((element) => ({
    open:
      element.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true }) &&
      !element.parentNode.closest('details:not([open])'),
    top: element.getBoundingClientRect().top,
  }));

test('docs: every path, and every key of what it takes and returns, without a script', () =>
  onDocs({ javaScriptEnabled: false }, async (page, { requests }) => {
    assert.equal(requests.filter((request) => request.resourceType() !== 'script').length, 2, 'the page and its style');
    assert.ok(operations.length > 10);
    for (const { path, method, operation } of operations) {
      const linked = await partOf(page, method, path);
      // If another path has the same keys, the page lists them there and links to it.
      for (const [other] of linked.filter(([text, hash]) => text in document.paths && hash)) {
        const found = operations.find((each) => each.path === other);
        linked.push(...(await partOf(page, found.method, found.path)));
      }
      const schemas = [json(operation.requestBody), json(operation.responses['200'])].filter(Boolean).map(({ schema }) => resolve(schema));
      for (const key of schemas.flatMap(({ properties }) => Object.keys(properties ?? {}))) {
        const named = linked.filter(([name]) => name === key);
        const hashes = named.filter(([, , isException]) => !isException).map(([, hash]) => hash);
        // "All shared options, except ..." names a key, too.
        for (const kind of ['option', 'result']) {
          const hash = `#${kind}-${key}`;
          const every = linked.some(([text, place]) => text === `shared ${kind}s` && place === `#${kind}s`);
          if (every && !named.some(([, place]) => place === hash) && (await page.locator(`[id="${hash.slice(1)}"]`).count()))
            hashes.push(hash);
        }
        assert.ok(hashes.length > 0, `${path} names ${key}`);
        for (const hash of hashes.filter(Boolean)) {
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
    // The summary "Takes" names the keys of the endpoint, the inputs first.
    const takes = await page
      .locator('#attention ~ details > summary', { hasText: /^Takes/ })
      .first()
      .textContent();
    assert.match(takes, /^TakesQ K V X .*\breturn .*\bcausal\b/);
    // A folded part opens with a click, and by the address.
    const bias = page.locator('#option-bias');
    assert.equal((await sight(bias)).open, false);
    await page.locator('summary', { hasText: 'What changes the scores' }).click();
    assert.equal((await sight(bias)).open, true);
    await page.goto('/docs#option-sequences');
    assert.equal((await sight(page.locator('#option-sequences'))).open, true);
    await picture(page, 'docs');
  }));

test('docs: every link within the page leads somewhere, and the contents have no name twice', () =>
  onDocs({}, async (page) => {
    const dead = await page.evaluate(() =>
      [...document.querySelectorAll('a[href^="#"]')].filter((a) => !document.getElementById(a.hash.slice(1))).map((a) => a.hash),
    );
    assert.deepEqual(dead, []);
    const names = await page.locator('nav[aria-label="Contents"] a').allTextContents();
    assert.ok(names.length > 10 && names.length < 60, `${names.length} links`);
    assert.deepEqual(names, [...new Set(names)]);
    for (const [, row] of (await page.locator('tr', { hasText: 'Paths:' }).allTextContents()).entries()) {
      if (!row.includes('Paths: all')) assert.match(row, /Paths: (GET|POST) \//);
    }
  }));

test('docs: an address opens what it names', () =>
  onDocs(
    { viewport: SMALL },
    async (page) => {
      const at = async (name) => {
        await page.waitForFunction((id) => {
          const { top } = document.getElementById(id)?.getBoundingClientRect() ?? {};
          return top >= 0 && top < innerHeight - 20;
        }, name);
        assert.equal((await sight(page.locator(`[id="${name}"]`))).open, true, name);
      };
      await at('error-503'); // at load
      await page.evaluate(() => (location.hash = '#result-grad_V'));
      await at('result-grad_V');
      // The same address a second time, after its part was closed.
      await page.locator('a[href="#option-window"]').first().click();
      await at('option-window');
      await page.locator('summary', { hasText: 'Often used' }).click();
      assert.equal((await sight(page.locator('#option-window'))).open, false);
      await page.locator('a[href="#option-window"]').first().click();
      await at('option-window');
      // A key that nothing links to has an anchor, too.
      await page.evaluate(() => (location.hash = '#softmax-axis'));
      await at('softmax-axis');
    },
    daemon,
    '#error-503',
  ));

test('docs: the search finds keys, results, errors and paths with the keyboard', () =>
  onDocs({ viewport: SMALL }, async (page) => {
    const input = page.getByRole('combobox', { name: 'Search' });
    const first = () => page.locator('#found [aria-selected="true"] b').textContent();
    // Types a query and takes the first thing that is found.
    async function find(query) {
      await page.keyboard.press('/');
      await page.getByRole('searchbox', { name: 'Search' }).or(input).fill(query);
      await page.locator('#found li').first().waitFor();
      const name = await first();
      await page.keyboard.press('Enter');
      await page.locator('#found').waitFor({ state: 'hidden' });
      const id = new URL(page.url()).hash.slice(1);
      const { open, top } = await sight(page.locator(`[id="${id}"]`));
      assert.ok(open && top >= 0 && top < 700, `${query}: ${id} at ${top}`);
      assert.equal(await page.evaluate(() => document.activeElement.id), id, 'the keyboard goes on there');
      return [name, id];
    }
    assert.deepEqual(await find('window'), ['window', 'option-window']);
    assert.deepEqual(await find('ENTROPY'), ['entropy', 'result-entropy']);
    assert.equal((await find('422'))[1], 'error-422');
    assert.deepEqual(await find('softmax'), ['POST /softmax', 'softmax']);
    assert.equal((await find('rope_type'))[0], 'rope_type');
    assert.match((await find('cu_seqlens'))[0], /^sequence_offsets/); // a word of its meaning
    assert.equal((await find('binary'))[1], 'binary-tensors');
    await page.keyboard.press('/');
    await input.fill('grad_');
    const names = await page.locator('#found li b').allTextContents();
    await page.keyboard.press('ArrowDown');
    assert.equal(await first(), names[1]);
    assert.equal(await input.getAttribute('aria-activedescendant'), 'found-1');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('ArrowUp');
    assert.equal(await first(), names.at(-1));
    assert.deepEqual(await findings(page), []);
    await picture(page, 'docs-search');
    await input.fill('xyzzy');
    assert.match(await page.locator('#find [role="status"]').textContent(), /^Nothing is found for “xyzzy”/);
    assert.ok(await page.locator('#found').isHidden());
    await page.keyboard.press('Escape');
    assert.equal(await input.evaluate((element) => element === document.activeElement), false);
  }));

test('docs: the search finds each text, begins with what fits best, and shows the place and the words around it', () =>
  onDocs({ viewport: SMALL }, async (page) => {
    const input = page.locator('#find input');
    async function find(query) {
      await input.fill(query);
      await page.locator('#found li').first().waitFor();
      return page
        .locator('#found li')
        .evaluateAll((all) => all.map((li) => [...li.children].map(({ textContent }) => textContent)))
        .then((all) => all.map(([label, place, excerpt]) => ({ label, place, excerpt })));
    }
    await input.focus();
    await page.locator('#find [role=combobox]').waitFor();
    // The place has the parts around an entry, and not those before it.
    assert.equal((await find('422'))[0].place, 'Errors');
    const takes = (await find('embeddings')).find(({ label }) => label === 'Takes');
    assert.equal(takes.place, 'POST /embeddings');
    assert.equal((await find('rope_type'))[0].place, 'Types › Of requests › RotaryScaling');
    // A text in a list, in an example of an error, and in code.
    const wanted = { 'little-endian': 'Binary tensors', 'max-body': '413 Content Too Large', urllib: 'Binary tensors' };
    // Chapters and paths come before keys, and whole words before parts of words.
    Object.assign(wanted, {
      safetensors: 'Binary tensors',
      error: 'Errors',
      metadata: 'Binary tensors',
      batch: 'Overview',
      scale: 'scale',
    });
    for (const [query, label] of Object.entries(wanted)) assert.equal((await find(query))[0].label, label, query);
    const labels = async (query) => (await find(query)).map(({ label }) => label);
    const items = await labels('item');
    assert.ok(items.indexOf('mask') < items.indexOf('Matrices without rows'), 'item before items');
    assert.deepEqual(
      (await labels('softmax forbidden')).slice(0, 3),
      ['Overview', 'normalization', 'POST /softmax'],
      'all words, then some',
    );
    // A text with the whole phrase comes before a key that has one word of it in its name.
    for (const query of ['little-endian', 'max-body', 'urllib', 'safetensors', 'metadata', 'api key']) {
      const [{ excerpt }] = await find(query);
      assert.ok(excerpt.toLowerCase().includes(query), `${query}: ${excerpt}`);
    }
  }));

// Waits until all requests are written in a language.
const written = (page, language) =>
  page.waitForFunction((value) => {
    const radios = [...document.querySelectorAll(`[value=${value}]`)];
    return radios.length && radios.every(({ checked }) => checked);
  }, language.toLowerCase());

// Returns the requests in the page, as {code, answer}.
const shown = (page) =>
  page.locator('.bar:has([value=curl]) + pre').evaluateAll((all) =>
    all.map(({ textContent, nextElementSibling: next }) => ({
      code: textContent,
      answer: next?.matches('.answer') ? next.textContent : '',
    })),
  );

// The command that runs code in a language.
const commands = {
  curl: (code) => ['sh', ['-c', `${code} -sS`]],
  Python: (code) => ['python3', ['-c', code]],
  JavaScript: (code) => (writeFileSync(join(folder, 'ask.mjs'), code), [process.execPath, [join(folder, 'ask.mjs')]]),
  Go: (code) => (writeFileSync(join(folder, 'ask.go'), code), ['go', ['run', join(folder, 'ask.go')]]),
};
const hasGo = () =>
  run('go', ['version']).then(
    () => true,
    () => false,
  );

test('docs: curl, Python, JavaScript and Go get the answers that the page shows', () =>
  onDocs({}, async (page) => {
    const go = await hasGo();
    const answers = (await shown(page)).map(({ answer }) => answer);
    const examples = operations.flatMap(({ operation }) => Object.keys(json(operation.requestBody)?.examples ?? {}));
    assert.ok(answers.length > examples.length, 'also those of the description, and those without a body');
    for (const [language, command] of Object.entries(commands)) {
      if (language === 'Go' && !go) continue;
      await page.locator('label', { hasText: language }).first().click();
      await written(page, language);
      let asked = 0;
      for (const [i, { code }] of (await shown(page)).entries()) {
        // Go compiles for long, so it runs some examples of each kind.
        if (!answers[i] || (language === 'Go' && i % 5)) continue;
        assert.ok(code.includes(daemon.base), code);
        const { stdout } = await run(...command(code));
        asked++;
        if (answers[i].startsWith('#'))
          assert.ok(stdout.includes(answers[i].split('\n')[0])); // metrics
        else if (code.includes('/version'))
          assert.deepEqual(Object.keys(JSON.parse(stdout)).slice(0, 8), Object.keys(JSON.parse(answers[i])));
        else assert.ok(near(JSON.parse(stdout), JSON.parse(answers[i])), `${code}\n${stdout}`);
      }
      assert.ok(asked > 4, `${language}: ${asked}`);
    }
    // The choice holds at the next visit.
    await page.reload();
    await written(page, go ? 'Go' : 'JavaScript');
  }));

test('docs: the Python of binary tensors prints what the page says', () =>
  onDocs({}, async (page) => {
    const [code, printed] = await page.locator('pre').evaluateAll((all) => {
      const i = all.findIndex(({ textContent }) => textContent.startsWith('import json\nfrom struct'));
      return all.slice(i, i + 2).map(({ textContent }) => textContent);
    });
    const { stdout } = await run('python3', ['-c', code]);
    assert.equal(stdout.trim(), printed.trim());
  }));

test('docs: a block is copied', () =>
  onDocs({}, async (page) => {
    const bar = page.locator('.bar').nth(1);
    await bar.getByRole('button', { name: 'Copy' }).click();
    await bar.getByRole('button', { name: 'Copied' }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(copied, await page.locator('.bar:nth-of-type(n) + pre').nth(1).textContent());
    assert.match(copied, /^curl http/);
    // Requests and commands have a button, and what is printed or computed has none.
    const isCommand = await page
      .locator('main pre')
      .evaluateAll((all) =>
        all.map((pre) => [/^(curl|git|import) /.test(pre.textContent), pre.previousElementSibling?.matches('.bar') ?? false]),
      );
    assert.ok(isCommand.some(([command]) => command) && isCommand.some(([command]) => !command));
    for (const [command, hasBar] of isCommand) assert.equal(hasBar, command);
    // A button without languages lies within its block, also if the block is a line.
    const overhang = await page.evaluate(() => {
      document.querySelectorAll('details').forEach((part) => (part.open = true));
      const blocks = [...document.querySelectorAll('.bar:not(:has(* + *)) + pre')];
      blocks[0].textContent = 'make run';
      return blocks.map((pre) => {
        const [inner, outer] = [pre.previousElementSibling.firstElementChild, pre].map((part) => part.getBoundingClientRect());
        return Math.max(outer.top - inner.top, inner.bottom - outer.bottom);
      });
    });
    assert.ok(overhang.length > 1 && overhang.every((pixels) => pixels < 0), overhang.join());
  }));

test('docs: an example runs in the page', () =>
  onDocs({}, async (page) => {
    const bar = page.locator('.bar', { has: page.getByRole('button', { name: 'Run' }) }).first();
    const live = page.locator('.bar + pre + .live').first();
    for (let i = 0; i < 2; i++) {
      await bar.getByRole('button', { name: 'Run' }).click();
      await page.waitForFunction(() => /^200 OK, [\d.]+ ms$/.test(document.querySelector('.live [role=status]')?.textContent));
      assert.deepEqual(JSON.parse(await live.locator('pre').textContent()).weights[0], [1, 0, 0]);
      assert.equal(await page.locator('.live').count(), 1);
    }
    assert.deepEqual(await findings(page), []);
  }));

test('docs: the examples have the address of the page, also behind a proxy that gives it a path', async () => {
  const proxy = createServer((request, response) => {
    const { method, headers } = request;
    const sent = ask(daemon.base + request.url.replace(/^\/at[^/]*/, ''), { method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    request.pipe(sent);
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  const base = `http://127.0.0.1:${proxy.address().port}`;
  await onPage({ baseURL: base, origin: base }, async (page) => {
    await page.goto("/at;exit;'$&/docs"); // a shell, a string and a pattern would read it otherwise
    const [{ code, answer }] = await shown(page);
    assert.ok(code.startsWith(`curl ${base}/at%3Bexit%3B%27%24%26/attention `), code);
    const { stdout } = await run('sh', ['-c', `${code} -sS`]);
    assert.ok(near(JSON.parse(stdout), JSON.parse(answer)));
    await page.getByRole('button', { name: 'Run' }).first().click();
    await page.waitForFunction(() => /^200 OK/.test(document.querySelector('.live [role=status]')?.textContent));
    assert.ok(!(await page.locator('main').textContent()).includes('127.0.0.1:8080'));
  });
  proxy.closeAllConnections?.();
  proxy.close();
});

test('docs: an example asks for the API key if the service wants one', async () => {
  const locked = await startDaemon('--api-key-file', join(folder, 'keys'));
  await onDocs(
    { expected: /401/ },
    async (page) => {
      const bar = page.locator('.bar:has([value=curl])').first();
      await bar.getByRole('button', { name: 'Run' }).click();
      const field = page.getByLabel('This service wants an API key');
      await field.waitFor();
      assert.match(await page.locator('.live').textContent(), /^401 /);
      await picture(page, 'docs-key');
      await field.fill(KEY);
      await page.keyboard.press('Enter');
      await page.waitForFunction(() => /^200 /.test(document.querySelector('.live [role=status]').textContent));
      // The code takes the key from the environment, and never has it.
      assert.ok(!(await page.content()).includes(KEY));
      const [{ code }] = await shown(page);
      const { stdout } = await run('sh', ['-c', `${code} -sS`], { env: { ...process.env, ATTENTIOND_KEY: KEY } });
      assert.deepEqual(JSON.parse(stdout).weights[0], [1, 0, 0]);
      for (const language of ['Python', 'JavaScript', ...((await hasGo()) ? ['Go'] : [])]) {
        await page.locator('label', { hasText: language }).first().click();
        await written(page, language);
        const codes = (await shown(page)).map(({ code }) => code).filter((code) => /\d\/(version|softmax)['"]/.test(code));
        assert.ok(codes.length >= 2);
        for (const code of codes) {
          const [command, args] = commands[language](code);
          const { stdout } = await run(command, args, { env: { ...process.env, ATTENTIOND_KEY: KEY } });
          assert.match(stdout, /^\{/);
          // The code prints the status and the problem document if the key is wrong.
          const { stderr } = await run(command, args, { env: { ...process.env, ATTENTIOND_KEY: 'another' } }).catch((failed) => failed);
          assert.match(stderr, /^401 \{.*"detail":/);
        }
      }
    },
    locked,
  ).finally(locked.stop);
});

test('docs: the explorer opens the examples and computes them', () =>
  onDocs({}, async (page) => {
    const wanted = operations
      .filter(({ path }) => PATHS.includes(path))
      .flatMap(({ path, operation }) =>
        Object.values(json(operation.requestBody).examples).map((example) => [path, resolve(example).value]),
      );
    const links = page.getByRole('link', { name: 'Open in the explorer', includeHidden: true });
    const hrefs = await links.evaluateAll((all) => all.map(({ hash }) => Object.fromEntries(new URLSearchParams(hash.slice(1)))));
    const found = hrefs.map(({ path, body }) => [path, JSON.parse(body)]);
    for (const each of wanted)
      assert.ok(
        found.some((one) => JSON.stringify(one) === JSON.stringify(each)),
        JSON.stringify(each),
      );
    for (const link of [links.first(), links.nth(2)]) {
      await page.goto('/docs');
      const body = new URLSearchParams(new URL(await link.evaluate(({ href }) => href)).hash.slice(1)).get('body');
      await link.evaluate((a) => a.click());
      await done(page);
      assert.deepEqual(JSON.parse(await page.inputValue('#request')), JSON.parse(body));
      assert.match(await page.textContent('#took'), /^server [\d.]+ ms/);
    }
  }));

for (const colorScheme of ['light', 'dark']) {
  for (const [screen, viewport] of Object.entries({
    wide: { width: 1440, height: 900 },
    small: SMALL,
    tablet: { width: 820, height: 1180 },
    phone: { width: 390, height: 780 },
    narrow: { width: 320, height: 780 },
  })) {
    test(`docs: ${colorScheme}, ${screen}`, () =>
      onDocs({ colorScheme, viewport }, async (page) => {
        const fits = () =>
          document.documentElement.scrollWidth <= innerWidth &&
          [...document.querySelectorAll('pre')].every((pre) => pre.scrollWidth <= pre.clientWidth);
        assert.ok(await page.evaluate(fits), 'nothing to scroll sideways');
        if (viewport === SMALL) {
          const screens = (await page.evaluate(() => document.documentElement.scrollHeight)) / 800;
          assert.ok(screens <= SCREENS, `${screens} screens`);
        }
        const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
        assert.equal(Math.min(...paper) > 128, colorScheme === 'light');
        assert.deepEqual(await findings(page), []);
        await picture(page, `docs-${screen}-${colorScheme}`, { fullPage: true });
        await page.evaluate(() => document.querySelectorAll('details').forEach((part) => (part.open = true)));
        assert.ok(await page.evaluate(fits), 'nothing to scroll sideways if all parts are open');
        assert.deepEqual(await findings(page), []);
      }));
  }
}

test('docs: all parts are on paper', () =>
  onDocs({}, async (page) => {
    const height = () => page.evaluate(() => document.documentElement.scrollHeight);
    const folded = await height();
    await page.emulateMedia({ media: 'print' });
    assert.ok((await height()) > 2 * folded);
    const heights = await page
      .locator('details:not([open]) > :not(summary, .bar, [hidden])')
      .evaluateAll((all) => all.map((part) => part.getBoundingClientRect().height));
    assert.ok(heights.length > 50 && heights.every((one) => one > 0));
  }));

test('docs: what the page loads at first is small', () =>
  onDocs({}, async (page, { requests }) => {
    await page.waitForLoadState('networkidle');
    assert.equal(requests.length, 3, 'the page, its style and its script');
    const sizes = await Promise.all(requests.map((request) => request.sizes()));
    const bytes = sizes.reduce((sum, { responseBodySize, responseHeadersSize }) => sum + responseBodySize + responseHeadersSize, 0);
    assert.ok(bytes > 0 && bytes <= ON_THE_WIRE, `${bytes} bytes`);
  }));
