// snippets.test.mjs runs the code that the page writes against a server that returns what it was sent. It must be the body, byte for byte,
// whatever characters the body has.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { bodyText, fileOf, formatJSON, snippet } from '../../../server/explorer/src/snippets.js';

const run = promisify(execFile);
const BODIES = {
  'an object': {
    Q: [
      [2, 0, 2],
      [2, 0, 0],
    ],
    causal: true,
    window: [1, -1],
    bias: [
      [0, null],
      [null, 0],
    ],
  },
  'the shell’s and the languages’ quotes': { tokens: ["it's", "'''", '"', '`${x}`', '$(id)', '\\', '!', '%s', '{}'] },
  'a quote at the end': "not JSON: '",
  'three of them': "a ''' b",
  'a backslash at the end': 'not JSON: \\',
  'ends of lines': '{"a":\r\n 1,\n\t"b": 2}',
  'words of any script': { text: 'Ünïcödé 注意 🧠 \u2028 \u2029 \u007f' },
  'an @ at the start': '@/etc/hostname',
  'Python’s infinity': '{"bias": [[0, -Infinity]]}',
  'a seed that is no double': '{"random": {"generator": "torch", "seed": 18446744073709551615}}',
  'a long one': { X: Array.from({ length: 100 }, (_, i) => Array.from({ length: 10 }, (_, j) => i * j)) },
};

const REFUSED = '{"detail": "K has 3 columns but Q has 2", "pointer": "/K"}';

let folder;
let server;
let base;
let seen;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'snippets-'));
  server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      seen = { method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(parts).toString() };
      response.statusCode = request.url === '/refused' ? 422 : 200;
      response.end(response.statusCode === 422 ? REFUSED : '{"output": [[1, 2.5]]}');
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${server.address().port}`;
});

after(() => {
  server.close();
  rmSync(folder, { recursive: true });
});

const commands = {
  curl: (code) => ['sh', ['-c', code]],
  python: (code) => (writeFileSync(join(folder, 'ask.py'), code), ['python3', ['ask.py']]),
  javascript: (code) => (writeFileSync(join(folder, 'ask.mjs'), code), [process.execPath, ['ask.mjs']]),
};

async function runs(language, request) {
  const code = snippet(language, { base, path: '/attention', ...request });
  writeFileSync(join(folder, 'body.json'), bodyText(request.body));
  const [command, args] = commands[language](code);
  const env = { PATH: process.env.PATH, PYTHONUTF8: '1', ATTENTIOND_KEY: 'a key of the tests' };
  seen = null;
  const { stdout } = await run(command, args, { cwd: folder, env });
  assert.deepEqual(JSON.parse(stdout), { output: [[1, 2.5]] });
  return code;
}

for (const language of ['curl', 'python', 'javascript']) {
  for (const [name, body] of Object.entries(BODIES)) {
    test(`${language} sends ${name}`, async () => {
      const code = await runs(language, { body });
      assert.equal(seen.body, bodyText(body));
      assert.equal(seen.method, 'POST');
      assert.equal(seen.path, '/attention');
      assert.equal(seen.headers['content-type'], 'application/json');
      assert.equal(seen.headers.authorization, undefined);
      assert.equal(code.includes('body.json'), fileOf(bodyText(body)) === 'body.json');
    });
  }
  test(`${language} sends the file of a request whose matrices are those of files`, async () => {
    writeFileSync(join(folder, 'request.safetensors'), 'the bytes');
    const code = await runs(language, { body: { Q: { file: 'Q.npy', dtype: 'F32', shape: [8, 512, 64] } } });
    assert.deepEqual([seen.body, code.includes('Q.npy')], ['the bytes', false]);
    assert.deepEqual([seen.headers['content-type'], seen.headers.accept], ['application/vnd.safetensors', 'application/json']);
  });
  if (language !== 'curl')
    test(`${language} prints the status and the whole answer of an error`, async () => {
      const [command, args] = commands[language](snippet(language, { base, path: '/refused', body: { X: [[1]] } }));
      const { stdout, stderr } = await run(command, args, { cwd: folder }).catch((failed) => failed);
      const [, status, answer] = /^(\d+) (.+)\n$/.exec(stderr);
      assert.deepEqual([stdout, status, JSON.parse(answer)], ['', '422', JSON.parse(REFUSED)]);
    });
  test(`${language} takes the key from the environment`, async () => {
    await runs(language, { body: { X: [[1]] }, key: true });
    assert.equal(seen.headers.authorization, 'Bearer a key of the tests');
  });
}

test('an address with a path before it', () => {
  const code = snippet('curl', { base: 'https://a.example/at/', path: '/softmax', body: { X: [1] } });
  assert.ok(code.includes("'https://a.example/at/softmax'"), code);
});

test('matrices are written a row on a line, and mean what they meant', () => {
  assert.equal(
    formatJSON({
      X: [
        [1, 2],
        [3, 4],
      ],
      causal: true,
    }).includes('[1, 2],\n'),
    true,
  );
  for (const body of Object.values(BODIES)) {
    if (typeof body !== 'string') {
      assert.deepEqual(JSON.parse(formatJSON(body)), body);
    }
  }
});
