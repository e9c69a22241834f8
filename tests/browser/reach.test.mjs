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
import { answered, done, matrix, open, openDrawer, openStep, setBody } from './explorer.mjs';
import { base, findings, onPage, picture, startDaemon } from './harness.mjs';

const run = promisify(execFile);
const state = (page) => page.evaluate(() => window.explorer.state);

// Runs the program of the lessons that shows a figure, with an IFrame that prints its address. Returns this address.
async function addressOfLesson() {
  const page = readFileSync(new URL('../notebooks/lessons.md', import.meta.url), 'utf8');
  const [, code] = /```python\n((?:(?!```).)*IFrame\((?:(?!```).)*)```/s.exec(page);
  const folder = mkdtempSync(join(tmpdir(), 'lesson-'));
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

test('the figure of the lessons stands in a frame of a page whose origin is named, and in no other', async () => {
  const { pathname, search, hash } = await addressOfLesson();
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
        await frame.locator('#single[data-step="weights"] .figure[data-drawn="true"]').waitFor();
        const inner = page.frames().find((one) => one.url().startsWith(address));
        const { data } = await inner.evaluate(() => window.explorer.matrix('weights'));
        assert.deepEqual([data[0], data[1]], [1, 0], 'the first word sees itself alone');
        assert.deepEqual(await inner.evaluate(() => window.explorer.state.labels), ['the', 'cat', 'sat']);
        for (const part of ['.top', '#examples', '.toolbar', '#words', '#written', '#flow', '#drawer', '#curve']) {
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
    assert.match(
      await page.textContent('#problem'),
      /^There is no step weight to embed.*The steps are flow, X, .*weights, states, mixed, joined, W_O, output\./,
    );
    assert.equal(await page.locator('#steps').isVisible(), true);
  }));

test('the tour gives the focus back and is not offered again; the user’s own change of the request ends it', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    const tour = page.locator('#tour');
    assert.equal(await tour.isVisible(), true, 'it is offered');
    await page.focus('#tour button');
    await answered(page, () => page.keyboard.press('Enter'));
    await page.waitForSelector('#tour h2');
    assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H2', 'the focus is on the stop');
    await openDrawer(page);
    await answered(page, () => page.selectOption('#option-causal', 'true'));
    assert.equal(await tour.isVisible(), false);
    await answered(page, () => page.click('#tour-open'));
    await page.waitForSelector('#tour h2');
    assert.equal(await page.inputValue('#option-causal'), '', 'the tour has its own numbers');
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'tour-open');
    await page.reload();
    await done(page);
    assert.equal(await tour.isVisible(), false, 'it is not offered again');
  }));

test('a link that unpacks to 40 MB is refused, and a notice does not hide what is wrong with the request', () =>
  onPage({ expected: /status of (400|422)/ }, async (page) => {
    const packed = (request) => deflateRawSync(JSON.stringify({ path: '/attention', labels: [], ...request })).toString('base64url');
    for (const request of [{ text: ' '.repeat(40e6) }, { text: '{}', labels: new Array(1e6).fill(1) }]) {
      await open(page, `/#example=003&request=${packed(request)}`);
      assert.match(await page.textContent('#problem'), /^This link is damaged/);
      await page.goto('about:blank');
    }
    await open(page, '/#example=003');
    await setBody(page, '{"X": [[1, 2], [3]]}', 'error');
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

test('on paper of both orientations, All fills the sheet, with its numbers', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000');
    const weights = (await matrix(page, 'weights')).flat();
    for (const [name, size] of Object.entries({ portrait: SHEET, landscape: { width: SHEET.height, height: SHEET.width } })) {
      await page.emulateMedia({ media: 'print' });
      await page.setViewportSize(size);
      const { texts, shown, cell, widest, bottom } = await page.evaluate((name) => {
        const texts = { portrait: [], landscape: [] };
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
          texts[parseFloat(this.canvas.style.width) < 700 ? 'portrait' : 'landscape'].push(text);
          write.call(this, text, ...more);
        };
        window.dispatchEvent(new Event('beforeprint'));
        CanvasRenderingContext2D.prototype.fillText = write;
        const shown = [...document.querySelectorAll('.flow')].filter((flow) => flow.checkVisibility()).map((flow) => flow.className);
        const flow = document.querySelector(`.${name}`);
        const boxes = [...flow.querySelectorAll('.node')].map((node) => node.getBoundingClientRect());
        const { width, height } = flow.querySelector('[data-node="weights"]').getBoundingClientRect();
        return {
          ...{ texts: texts[name], shown, cell: [width / 4, height / 4] },
          widest: Math.max(...boxes.map(({ right }) => right)) - Math.min(...boxes.map(({ left }) => left)),
          bottom: document.querySelector('#written').getBoundingClientRect().bottom,
        };
      }, name);
      assert.deepEqual(shown, [`flow ${name}`]);
      const written = texts.map((text) => Number(text.replace('−', '-'))).filter((number) => !Number.isNaN(number));
      for (const weight of weights)
        assert.ok(
          written.some((number) => Math.abs(number - weight) <= 0.1 * weight),
          `${name}: ${weight}`,
        );
      assert.ok(cell[0] > 30 && cell[1] > 18, `${name}: cells of ${cell}`);
      assert.ok(widest > 0.75 * size.width && widest <= size.width && bottom <= size.height, `${name}: ${widest} wide, down to ${bottom}`);
      await page.evaluate(() => window.dispatchEvent(new Event('afterprint')));
      assert.equal(await page.locator('.portrait, .landscape').count(), 0);
    }
  }));

test('paper has no section of buttons alone, no sentence about a pointer, and the curve only if it is drawn', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000');
    const look = await page.textContent('#look');
    assert.match(look, /Point at any number/);
    const printed = async () => {
      await page.emulateMedia({ media: 'print' });
      await page.evaluate(() => window.dispatchEvent(new Event('beforeprint')));
      const seen = await page.evaluate(() => ({
        groups: [...document.querySelectorAll('.group')]
          .filter((one) => one.checkVisibility())
          .map((one) => one.querySelector('h2').textContent),
        look: document.getElementById('look').textContent,
      }));
      await page.evaluate(() => window.dispatchEvent(new Event('afterprint')));
      await page.emulateMedia({ media: 'screen' });
      assert.equal(await page.textContent('#look'), look);
      return seen;
    };
    assert.deepEqual(await printed(), { groups: [], look: look.replace(' Point at any number to see how it is made.', '') });
    await page.locator('#curve').scrollIntoViewIfNeeded();
    await page.waitForSelector('#curve .curve-line');
    assert.deepEqual((await printed()).groups, ['Softmax alone']);
  }));

test('every notebook prints in light colours, with no map that a page cuts', async () => {
  for (const [i, hash] of ['000', '001', '002', '003&step=output', '004&step=weights&lines', 'own-large'].entries()) {
    await onPage({ colorScheme: 'dark' }, async (page) => {
      await open(page, `/?${i}#example=${hash}`);
      const before = await state(page);
      // A canvas that is painted anew is another element, so it is found and measured at once.
      const width = await page.evaluate(() => document.querySelector('.flow-canvas')?.getBoundingClientRect().width);
      await page.emulateMedia({ media: 'print' });
      await page.setViewportSize(SHEET);
      await page.evaluate(() => window.dispatchEvent(new Event('beforeprint')));
      const seen = await page.evaluate(() => {
        const shown = [...document.querySelectorAll('.flow, #single')].filter((element) => element.checkVisibility());
        const boxes = shown.map((element) => {
          const { right, height } = element.getBoundingClientRect();
          return { id: element.id || element.className, right, height, kept: getComputedStyle(element).breakInside };
        });
        const nodes = [...document.querySelectorAll('.portrait .node')].map((node) => {
          const { left, right } = node.getBoundingClientRect();
          return { id: node.dataset.node, left, right };
        });
        const canvas = document.querySelector('.portrait .flow-canvas');
        const points = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        const blank = [...document.querySelectorAll('#single .pane:not([hidden]) .figure')].filter(
          (figure) => figure.checkVisibility() && figure.dataset.drawn !== 'true',
        );
        const grounds = [document.documentElement, document.body].map((element) => getComputedStyle(element).backgroundColor);
        return {
          boxes,
          nodes,
          colours: new Set(points).size,
          blank: blank.length,
          grounds,
          ink: getComputedStyle(document.body).color,
          wide: document.documentElement.scrollWidth,
        };
      });
      assert.deepEqual(seen.boxes.map(({ id }) => id), before.step === 'flow' ? ['flow portrait'] : ['single', 'flow portrait'], hash); // prettier-ignore
      assert.ok(seen.nodes.length >= 8 && seen.colours > 20, `${hash}: ${seen.nodes.length} matrices in ${seen.colours} colours`);
      for (const { id, left, right } of seen.nodes) assert.ok(left >= 0 && right <= SHEET.width, `${hash}: ${id} from ${left} to ${right}`);
      assert.equal(seen.blank, 0, `${hash}: every map is drawn`);
      for (const { id, right, height, kept } of seen.boxes) {
        assert.ok(right <= SHEET.width + 1 && height <= SHEET.height, `${hash}: ${id} ends at ${right} and is ${height} high`);
        assert.equal(kept, 'avoid', id);
      }
      assert.ok(seen.wide <= SHEET.width, `${hash}: ${seen.wide} pixels wide`);
      assert.deepEqual(seen.grounds[1], 'rgb(255, 255, 255)');
      assert.match(seen.ink, /^rgb\((\d|[1-4]\d), /, 'the ink is dark');
      await picture(page, `reach-print-${i}`, { fullPage: true });
      await page.evaluate(() => window.dispatchEvent(new Event('afterprint')));
      await page.emulateMedia({ media: 'screen' });
      assert.deepEqual(await state(page), before);
      await page.setViewportSize({ width: 1440, height: 900 });
      await page.waitForFunction((wide) => document.querySelector('.flow-canvas').getBoundingClientRect().width === wide, width ?? 0);
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
    for (const [chosen, other] of [
      ['[data-example="001"]', '[data-example="000"]'],
      ['[data-variant="001-heads"]', '[data-variant="001-head"]'],
      ['[data-frame="flow"]', '[data-frame="scores"]'],
      ['#heads [data-head="0"]', '#heads [data-head="1"]'],
    ]) {
      const outline = (selector) => page.locator(selector).evaluate((element) => getComputedStyle(element).outlineStyle);
      assert.deepEqual([await outline(chosen), await outline(other)], ['solid', 'none'], chosen);
    }
    assert.deepEqual(await findings(page), []);
    await picture(page, 'reach-forced');
    await openStep(page, 'weights');
    assert.deepEqual(await findings(page), []);
  }));

test('at 400 % nothing is hidden by what stays in sight, and axe-core finds nothing', () =>
  onPage({ viewport: { width: 360, height: 225 } }, async (page) => {
    await open(page, '/#example=003');
    assert.equal(
      await page.locator('#written').evaluate((element) => getComputedStyle(element).position),
      'relative',
      'it scrolls with the page',
    );
    await openDrawer(page);
    for (const step of ['flow', 'weights', 'lines']) {
      await openStep(page, step);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `nothing scrolls sideways: ${step}`);
      assert.deepEqual(await findings(page), [], step);
    }
    await picture(page, 'reach-400', { fullPage: true });
  }));

test('every target has at least 24 × 24 pixels, or a label of this size', async () => {
  for (const options of [{}, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }]) {
    await onPage(options, async (page) => {
      await open(page, '/#example=001&step=weights&numbers&lines');
      await openDrawer(page);
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

test('at 200 % the first screen has a part of the matrices, whose numbers can be read', () =>
  onPage({ viewport: { width: 683, height: 384 }, deviceScaleFactor: 2 }, async (page) => {
    for (const [i, example] of ['000', '001', '003', '004', 'it', 'own'].entries()) {
      await open(page, `/?${i}#example=${example}`);
      const seen = await page
        .locator('#flow .node')
        .evaluateAll((nodes) => Math.max(...nodes.map((node) => innerHeight - node.getBoundingClientRect().top)));
      assert.ok(seen >= 40, `${example}: ${seen} pixels of the matrices are in sight`);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), example);
    }
    await open(page, '/?cells#example=000');
    const { width, height } = await page.locator('#flow [data-node="scores"]').boundingBox();
    assert.ok(width / 4 >= 24 && height / 4 >= 15, `cells of ${width / 4} × ${height / 4}`);
  }));
