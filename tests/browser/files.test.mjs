// files.test.mjs tests that the explorer takes .npy and .safetensors files: dropped, opened and pasted, right and wrong.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answered, matrix, open } from './explorer.mjs';
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
    await page.fill('#request', JSON.stringify(before));
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

test('a file that is long but not too long is read in slices, and a longer one names the way with curl', () =>
  onPage({}, async (page) => {
    await open(page);
    const rows = 1024;
    const data = Float32Array.from({ length: rows * 96 }, (_, i) => Math.sin(i) * 3);
    const three = { Q: 0, K: 1, V: 2 };
    const header = (cols) =>
      Object.fromEntries(
        Object.entries(three).map(([key, at]) => [key, entry('F32', [rows, cols], at * rows * cols * 4, (at + 1) * rows * cols * 4)]),
      );
    const file = (name, cols) => ({
      name,
      mimeType: 'application/octet-stream',
      buffer: safetensorsBytes(header(cols), data.subarray(0, rows * cols * 3)),
    });
    await page.evaluate(() => {
      window.long = [];
      new PerformanceObserver((list) => window.long.push(...list.getEntries().map(({ duration }) => duration))).observe({
        type: 'longtask',
      });
    });
    await answered(page, () => page.setInputFiles('#file', file('wide.safetensors', 32)));
    console.log(`1024 × 32 three times: the longest task ${Math.max(0, ...(await page.evaluate(() => window.long)))} ms`);
    const before = await state(page);
    const last = (await matrix(page, 'V')).at(-1).at(-1);
    assert.equal(Math.fround(last), data.at(-1));
    assert.match(await note(page), /^wide\.safetensors is the request now\. [\d,]+ characters are too many to edit/);
    const large = safetensorsBytes({ X: entry('U8', [1500, 1500], 0, 2_250_000) }, new Uint8Array(2_250_000));
    await page.setInputFiles('#file', { name: 'large.safetensors', mimeType: 'application/octet-stream', buffer: large });
    await told(page, /curl .*\/attention' -H 'Content-Type: application\/vnd\.safetensors' --data-binary '@large\.safetensors'/);
    assert.deepEqual(await state(page), before);
  }));
