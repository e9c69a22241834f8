// files.test.mjs tests that the explorer takes .npy and .safetensors files: dropped, opened and pasted, right and wrong.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { answered, matrix, open, openDrawer, setBody, writeBody } from './explorer.mjs';
import { onPage, picture, serious } from './harness.mjs';
import { entry, npyBytes, safetensorsBytes } from './tensorfiles.mjs';

const refused = /status of (400|422)/;
const state = (page) => page.evaluate(() => window.explorer.state);
const note = (page) => page.textContent('#request-note');
const loaded = (requests) => requests.filter((request) => /\/assets\/files-/.test(request.url())).length;

const Q = npyBytes('<f4', [2, 2], new Float32Array([1, 0.1, 0, 1]));
// The columns of K follow each other, and the high byte of each number is the first.
const K = npyBytes('>f8', [3, 2], Buffer.from(new Float64Array([1, 3, 5, 2, 4, 6]).buffer).swap64(), { fortran: true });

// Gives files, pairs [name, Buffer], to the page by an event of the element.
const give = (page, type, selector, ...files) =>
  page.evaluate(
    ([type, selector, files]) => {
      const dataTransfer = new DataTransfer();
      for (const [name, base64] of files) {
        dataTransfer.items.add(new File([Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))], name));
      }
      const more = { bubbles: true, cancelable: true };
      const event =
        type === 'paste'
          ? new ClipboardEvent(type, { ...more, clipboardData: dataTransfer })
          : new DragEvent(type, { ...more, dataTransfer });
      document.querySelector(selector).dispatchEvent(event);
    },
    [type, selector, files.map(([name, bytes]) => [name, bytes.toString('base64')])],
  );
const drop = (page, ...files) => give(page, 'drop', '#steps', ...files);
const told = async (page, pattern) => {
  await page.waitForFunction((source) => new RegExp(source).test(document.getElementById('problem').textContent), pattern.source);
};

test('a dropped .npy file is a matrix of the request, and the rest stays; the parsers are loaded with it', () =>
  onPage({}, async (page, { requests }) => {
    await open(page, '/#example=own-matrices');
    assert.equal(loaded(requests), 0);
    const before = JSON.parse((await state(page)).text);
    const bytes = npyBytes('<f4', [2, 3], new Float32Array([1, 0.1, 0, 0, 1, 2]));
    await answered(page, () => drop(page, ['q.npy', bytes]));
    assert.equal(loaded(requests), 1);
    const rows = [
      [1, 0.1, 0],
      [0, 1, 2],
    ];
    assert.deepEqual(JSON.parse((await state(page)).text), { ...before, Q: rows });
    assert.deepEqual(await matrix(page, 'Q'), rows);
    assert.equal((await matrix(page, 'weights')).length, 2);
    assert.equal(await note(page), 'q.npy (F32, 2 × 3) is Q now.');
    assert.equal(await page.isHidden('#problem'), true);
    await writeBody(page, JSON.stringify(before));
    assert.equal(await note(page), '');
  }));

test('several .npy files are a new request', () =>
  onPage({}, async (page) => {
    await open(page);
    const V = npyBytes('|b1', [3, 1], [1, 0, 1]);
    await answered(page, () => drop(page, ['Q.npy', Q], ['K.npy', K], ['V.npy', npyBytes('|u1', [3, 1], [1, 0, 255])]));
    const { example, path, text } = await state(page);
    assert.deepEqual([example, path], ['own', '/attention']);
    assert.deepEqual(Object.entries(JSON.parse(text)), [
      ['dtype', 'float64'],
      // prettier-ignore
      ['Q', [[1, Math.fround(0.1)], [0, 1]]],
      // prettier-ignore
      ['K', [[1, 2], [3, 4], [5, 6]]],
      ['V', [[1], [0], [255]]],
    ]);
    assert.deepEqual(await matrix(page, 'V'), [[1], [0], [255]]);
    assert.match(await note(page), /^Q \(F32, 2 × 2\), K \(F64, 3 × 2\), V \(U8, 3 × 1\) are/);
    await drop(page, ['Q.npy', Q], ['q.npy', V]);
    await told(page, /Two files are Q/);
    assert.equal((await state(page)).text, text);
  }));

test('a .npy file without the name of a key: the page asks, by keyboard, too', () =>
  onPage({ expected: refused }, async (page) => {
    await open(page);
    const { text } = await state(page);
    const X = npyBytes('<f2', [2, 3], new Uint16Array([0x3c00, 0, 0, 0, 0x3800, 0xc000]));
    await drop(page, ['words.npy', X]);
    await page.waitForSelector('dialog[open]');
    assert.match(await page.textContent('dialog[open] h2'), /Which matrix is words\.npy\?/);
    assert.equal(await page.inputValue('dialog[open] select'), 'X', 'the request has X');
    assert.deepEqual(await serious(page), []);
    await picture(page, 'file-dialog');
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog[open]', { state: 'detached' });
    assert.equal((await state(page)).text, text);
    await drop(page, ['words.npy', X]);
    await page.waitForSelector('dialog[open]');
    await answered(page, async () => {
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
    });
    assert.deepEqual(await matrix(page, 'X'), [
      [1, 0, 0],
      [0, 0.5, -2],
    ]);
    assert.deepEqual(Object.keys(JSON.parse((await state(page)).text)), Object.keys(JSON.parse(text)));
    await drop(page, ['words.npy', X]);
    await page.selectOption('dialog[open] select', 'Q');
    await answered(page, () => page.click('dialog[open] button[value="use"]'), 'error');
    assert.match(await page.textContent('#problem'), /Q/);
  }));

test('a .safetensors file that is opened by keyboard is the request', () =>
  onPage({}, async (page) => {
    await open(page);
    const header = {
      __metadata__: { causal: 'true', normalization: 'softmax' },
      X: entry('F32', [2, 2], 0, 16),
      W_Q: entry('BF16', [2, 2], 16, 24),
      W_K: entry('I8', [2, 2], 24, 28),
      W_V: entry('U8', [2, 2], 28, 32),
    };
    const data = Buffer.concat([
      Buffer.from(new Float32Array([1, 2, 0.1, 4]).buffer),
      Buffer.from(new Uint16Array([0x3f80, 0, 0, 0xbf80]).buffer),
      Buffer.of(1, 0, 0, 255, 2, 0, 0, 2),
    ]);
    // The browser's own dialog does not open, because a browser without a window does not always report it.
    await page.evaluate(() => {
      document.getElementById('file').addEventListener('click', (event) => {
        event.preventDefault();
        window.opened = [event.isTrusted, event.target.multiple];
      });
    });
    await openDrawer(page);
    await page.focus('#file');
    await page.keyboard.press('Space');
    const opened = await page.waitForFunction(() => window.opened);
    assert.deepEqual(await opened.jsonValue(), [true, true]);
    const buffer = safetensorsBytes(header, data);
    await answered(page, () => page.setInputFiles('#file', { name: 'head.safetensors', mimeType: 'application/octet-stream', buffer }));
    const { path, text, example } = await state(page);
    assert.deepEqual([path, example], ['/self-attention', 'own']);
    const identity = (a, b) => [
      [a, 0],
      [0, b],
    ];
    const X = [
      [1, 2],
      [0.1, 4],
    ];
    const given = { causal: true, normalization: 'softmax', X, W_Q: identity(1, -1), W_K: identity(1, -1), W_V: identity(2, 2) };
    assert.deepEqual(JSON.parse(text), given);
    assert.deepEqual((await matrix(page, 'weights'))[0], [1, 0]);
    assert.deepEqual((await matrix(page, 'output'))[0], [2, 4]);
    assert.equal(await note(page), 'head.safetensors is the request now.');
  }));

test('a .npy file that is pasted is a matrix; the names of a file may be unknown to the server', () =>
  onPage({ expected: refused }, async (page) => {
    await open(page, '/#example=own-matrices');
    await answered(page, () => give(page, 'paste', '#request', ['V.npy', npyBytes('<i2', [4, 1], new Int16Array([1, 2, 3, -4]))]));
    assert.deepEqual(await matrix(page, 'V'), [[1], [2], [3], [-4]]);
    const foreign = safetensorsBytes({ query: entry('U8', [1, 1], 0, 1) }, [1]);
    await answered(page, () => drop(page, ['a.safetensors', foreign]), 'error');
    assert.match(await page.textContent('#problem'), /unknown key "query".*Q/s);
    assert.equal(await page.textContent('#problem-pointer'), '/query');
  }));

test('a wrong file is refused in words, and the request stays', () =>
  onPage({}, async (page) => {
    await open(page);
    const before = await state(page);
    const good = safetensorsBytes({ Q: entry('F32', [1, 2], 0, 8) }, new Float32Array([1, 2]));
    const wrong = [
      ['cut.npy', Q.subarray(0, Q.length - 1), /cut\.npy: not opened.*needs 16 bytes, and the file has 15/s],
      ['Q.npy', Buffer.from('{"Q": [[1]]}'), /no \.npy file/],
      ['a.safetensors', good.subarray(0, good.length - 1), /tensor Q ends at byte 8, but only 7/],
      ['b.safetensors', Buffer.concat([good, good]), /after its last tensor/],
      ['c.safetensors', safetensorsBytes({ Q: entry('F4', [2], 0, 1) }, [1]), /tensor Q has the type F4/],
      ['d.safetensors', safetensorsBytes({ Q: entry('F32', [1, 1], 0, 4) }, new Float32Array([NaN])), /Q\[0\]\[0\] is NaN/],
      ['e.safetensors', Buffer.from('{"Q": [[1]]}'), /no \.safetensors file/],
    ];
    for (const [name, bytes, message] of wrong) {
      await drop(page, [name, bytes]);
      await told(page, message);
      assert.deepEqual(await state(page), before, name);
    }
    await drop(page, ['Q.npy', Q], ['body.json', Buffer.from('{}')]);
    await told(page, /several \.npy files/);
    assert.deepEqual(await state(page), before);
    assert.deepEqual(await serious(page), []);
    await picture(page, 'file-refused');
    await page.click('#problem button');
    assert.equal(await page.isHidden('#problem'), true);
  }));

const SHAPE = [8, 512, 64];
const SIZE = 4 * 8 * 512 * 64; // bytes
// Returns numbers of float32 that are always the same.
const numbers = (from) => Float32Array.from({ length: SIZE / 4 }, (_, i) => Math.sin(i * 0.7 + from) * 1.5);

test('Q, K and V of 8 × 512 × 64 go and come as bytes, and every option keeps them', () =>
  onPage({ expected: refused }, async (page, { requests }) => {
    await open(page);
    await page.evaluate(() => {
      window.long = [];
      new PerformanceObserver((list) => window.long.push(...list.getEntries().map(({ duration }) => duration))).observe({
        type: 'longtask',
      });
    });
    const [q, k, v] = [0, 1, 2].map(numbers);
    const files = { Q: q, K: k, V: v };
    const buffers = Object.entries(files).map(([key, data]) => ({
      name: `${key}.npy`,
      mimeType: 'application/octet-stream',
      buffer: npyBytes('<f4', SHAPE, data),
    }));
    const begin = performance.now();
    await answered(page, () => page.setInputFiles('#file', buffers));
    const [first, longest] = [performance.now() - begin, Math.max(0, ...(await page.evaluate(() => window.long)))];
    console.log(`8 × 512 × 64: shown after ${Math.round(first)} ms; ${await page.textContent('#took')}; the longest task ${longest} ms`);
    const standing = (key) => ({ file: `${key}.npy`, dtype: 'F32', shape: SHAPE });
    assert.deepEqual(JSON.parse((await state(page)).text), { Q: standing('Q'), K: standing('K'), V: standing('V') });
    assert.match(await note(page), /^Q \(F32, 8 × 512 × 64\), K/);
    const sent = () => requests.findLast((request) => /\/attention$/.test(request.url()));
    assert.equal(sent().headers()['content-type'], 'application/vnd.safetensors');
    assert.equal(sent().headers().accept, 'application/vnd.safetensors');
    assert.ok(sent().postDataBuffer().includes(Buffer.from(q.buffer)), 'the body has the bytes of Q');
    assert.deepEqual((await matrix(page, 'V', 7)).at(-1), [...v.slice(-64)]);
    // The page has the service's numbers: those of the first row, computed here in double.
    const row = Array.from({ length: 512 }, (_, j) => q.slice(0, 64).reduce((sum, x, i) => sum + x * k[j * 64 + i], 0) / 8);
    const exps = row.map((x) => Math.exp(x - Math.max(...row)));
    const total = exps.reduce((a, b) => a + b);
    const [weights] = await matrix(page, 'weights');
    weights.forEach((weight, j) => assert.ok(Math.abs(weight - exps[j] / total) < 1e-6, `weight ${j}`));
    // A changed option, a typed one, too, is sent with the same bytes.
    await openDrawer(page);
    await answered(page, () => page.selectOption('#option-causal', 'true'));
    assert.equal((await matrix(page, 'weights', 3))[0][0], 1);
    assert.ok(sent().postDataBuffer().includes(Buffer.from(v.buffer)), 'the body has the bytes of V');
    assert.deepEqual(JSON.parse((await state(page)).text).K, standing('K'));
    // The request is too long for a link, and its code sends a file that the page saves.
    assert.equal(await page.isVisible('#no-link'), true);
    assert.doesNotMatch(await page.evaluate(() => location.hash), /request=/);
    assert.match(
      await page.textContent('#code'),
      /-H 'Content-Type: application\/vnd\.safetensors' .*--data-binary @request\.safetensors/s,
    );
    const [saved] = await Promise.all([page.waitForEvent('download'), page.click('#save-request')]);
    assert.equal(saved.suggestedFilename(), 'request.safetensors');
    const output = await matrix(page, 'output', 5);
    await open(page, '/#example=001');
    await answered(page, async () => page.setInputFiles('#file', { name: 'again.safetensors', mimeType: '', buffer: await readFile(await saved.path()) })); // prettier-ignore
    assert.deepEqual(await matrix(page, 'output', 5), output);
    // A matrix that no open file has is not sent.
    const count = requests.length;
    const other = JSON.stringify({ Q: { ...standing('Q'), shape: [8, 512, 32] }, K: [[1]], V: [[1]] });
    await setBody(page, other, 'error');
    assert.match(await page.textContent('#problem'), /The page does not have Q\.npy.*Open Q\.npy again/s);
    assert.equal(await page.textContent('#problem-pointer'), '/Q');
    assert.equal(requests.length, count);
  }));

test('1024 × 1024 weights come as bytes; a small request and its answer stay JSON', () =>
  onPage({}, async (page, { requests }) => {
    await open(page);
    const of = (path) => requests.findLast((request) => request.url().endsWith(path));
    assert.equal(of('attention').headers()['content-type'], 'application/json');
    assert.equal(of('attention').headers().accept, 'application/json');
    const rows = { random: 'randn', shape: [1024, 16] };
    const begin = performance.now();
    await setBody(page, { random: { generator: 'numpy', seed: 5 }, Q: rows, K: rows, V: rows });
    console.log(`1024 × 1024: shown after ${Math.round(performance.now() - begin)} ms; ${await page.textContent('#took')}`);
    const { headers } = await of('/attention')
      .response()
      .then(async (response) => ({ headers: await response.allHeaders() }));
    assert.equal(headers['content-type'], 'application/vnd.safetensors');
    const stages = 4 * 4 * 1024 * 1024;
    assert.ok(Number(headers['content-length']) < stages * 1.05, `${headers['content-length']} bytes`);
    // The same numbers come as text if the user chooses digits.
    const fewer = { random: { generator: 'numpy', seed: 5 }, ...Object.fromEntries(['Q', 'K', 'V'].map((key) => [key, { random: 'randn', shape: [256, 16] }])) }; // prettier-ignore
    await setBody(page, fewer);
    const weights = (await matrix(page, 'weights'))[255];
    await setBody(page, { ...fewer, digits: 4 });
    assert.equal((await of('/attention').response()).headers()['content-type'], 'application/json');
    (await matrix(page, 'weights'))[255].forEach((weight, j) => assert.ok(Math.abs(weight - weights[j]) <= 6e-4 * weights[j]));
  }));
