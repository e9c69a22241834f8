// harness.mjs has what the browser tests share: the daemon under test, one Chromium, and pages that are watched. A request to another
// origin, an error on the console, an uncaught exception or a breach of the Content-Security-Policy fails the test.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after } from 'node:test';

const load = createRequire(join(process.env.BROWSER_PACKAGES, 'package.json'));
const { chromium } = load('playwright-core');
export const axeSource = load.resolve('axe-core/axe.min.js');
export const strict = process.env.STRICT === 'yes';

const FLAGS = [
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
];

let daemon;
let browser;

// Starts a daemon on a free port. Resolves to {base, stop}.
export async function startDaemon(...flags) {
  const child = spawn(process.env.ATTENTIOND_BIN, ['--port', '0', ...flags], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = createInterface(child.stdout);
  const [line] = await Promise.race([
    once(lines, 'line'),
    once(child, 'exit').then(([status]) => Promise.reject(new Error(`the daemon ended with status ${status}`))),
  ]);
  const base = /http:\S+/.exec(line)[0];
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const ended = once(child, 'exit');
      child.kill();
      await ended;
    }
  };
  return { base, stop };
}

// Resolves to the address of the daemon that the tests share.
export async function base() {
  daemon ??= startDaemon();
  return (await daemon).base;
}

after(async () => {
  await (await browser)?.close();
  await (await daemon)?.stop();
});

// Opens a watched page in a new context. Resolves to {page, context, problems, requests, close}. close() closes the page and fails if there
// were problems. options: those of Playwright's contexts. expected: a pattern of console errors that are no problem. also: another origin
// that the page may ask.
export async function newPage({ expected, also, ...options } = {}) {
  browser ??= chromium.launch({ executablePath: process.env.BROWSER, args: FLAGS });
  const address = await base();
  const own = new URL(options.origin ?? address).origin;
  const context = await (
    await browser
  ).newContext({
    viewport: { width: 1440, height: 900 },
    acceptDownloads: true,
    permissions: ['clipboard-read', 'clipboard-write'],
    baseURL: address,
    ...options,
  });
  const problems = [];
  const requests = [];
  await context.route(
    (url) => url.origin !== own && url.origin !== also && /^(https?|wss?):$/.test(url.protocol),
    (route) => {
      problems.push(`a request to ${route.request().url()}`);
      return route.abort();
    },
  );
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) =>
      console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample}`),
    );
  });
  const page = await context.newPage();
  page.on('request', (request) => requests.push(request));
  page.on('pageerror', (error) => problems.push(`an exception: ${error.stack ?? error}`));
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected?.test(message.text())) {
      problems.push(`on the console: ${message.text()} ${message.location().url}`);
    }
  });
  const close = async () => {
    await context.close();
    assert.deepEqual(problems, []);
  };
  return { page, context, problems, requests, close };
}

// Calls does(page, more) with a watched page, and closes the page also if does() fails.
export async function onPage(options, does) {
  const { page, close, ...more } = await newPage(options);
  let failed = true;
  try {
    await does(page, more);
    failed = false;
  } finally {
    await close().catch((error) => {
      if (!failed) {
        throw error;
      }
    });
  }
}

// Writes a picture of the page, or of a part of it, to build/browser/NAME.png.
export async function picture(what, name, options = {}) {
  await what.screenshot({ path: join(process.env.BROWSER_PICTURES, `${name}.png`), ...options });
}

// Returns the findings of axe-core as lines of text.
export async function findings(page, impacts = ['minor', 'moderate', 'serious', 'critical']) {
  await page.evaluate(await readFile(axeSource, 'utf8'));
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return violations
    .filter(({ impact }) => impacts.includes(impact))
    .flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`));
}

// Returns the serious and the critical findings of axe-core.
export const serious = (page) => findings(page, ['serious', 'critical']);
