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

const LANGUAGES = ['curl', 'python', 'javascript'];
const OF_FILES = 'a request whose matrices are those of files';
const CASES = {
  ...Object.fromEntries(Object.entries(BODIES).map(([name, body]) => [name, { body }])),
  [OF_FILES]: { body: { Q: { file: 'Q.npy', dtype: 'F32', shape: [8, 512, 64] } } },
  'a request with a key': { body: { X: [[1]] }, key: true },
};

let folder;
let server;
let base;
let seen;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'snippets-'));
  writeFileSync(join(folder, 'request.safetensors'), 'the bytes');
  server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      seen.push({ method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(parts).toString() });
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

// One process of a language runs all files of code, because its start takes most of the time.
const commands = {
  curl: (files) => ['sh', ['-ec', files.map((file) => `. ./${file}; echo`).join('\n')]],
  python: (files) => ['python3', ['-c', `import runpy\nfor file in ${JSON.stringify(files)}: runpy.run_path(file)`]],
  javascript: (files) => [process.execPath, ['--input-type=module', '-e', files.map((file) => `await import('./${file}');`).join('\n')]],
};

// Runs codes of a language one after the other. Resolves to {stdout, stderr}.
async function run(language, codes) {
  const [command, args] = commands[language](
    codes.map((code, at) => {
      const file = `ask${at}.${language === 'javascript' ? 'mjs' : language}`;
      writeFileSync(join(folder, file), code);
      return file;
    }),
  );
  const env = { PATH: process.env.PATH, PYTHONUTF8: '1', ATTENTIOND_KEY: 'a key of the tests' };
  seen = [];
  return promisify(execFile)(command, args, { cwd: folder, env });
}

for (const language of LANGUAGES) {
  test(`${language} sends every body`, async () => {
    const cases = Object.entries(CASES).map(([name, one]) => ({ name, ...one, text: bodyText(one.body) }));
    for (const { text } of cases) if (fileOf(text) === 'body.json') writeFileSync(join(folder, 'body.json'), text);
    const codes = cases.map((one) => snippet(language, { base, path: '/attention', ...one }));
    const { stdout } = await run(language, codes);
    const answers = stdout.trim().split('\n');
    assert.deepEqual([answers.length, seen.length], [cases.length, cases.length]);
    for (const [at, { name, text, key }] of cases.entries()) {
      const { method, path, headers, body } = seen[at];
      const held = name === OF_FILES;
      assert.deepEqual(JSON.parse(answers[at]), { output: [[1, 2.5]] });
      assert.equal(body, held ? 'the bytes' : text, name);
      assert.deepEqual([method, path], ['POST', '/attention']);
      assert.equal(headers['content-type'], held ? 'application/vnd.safetensors' : 'application/json', name);
      if (held) assert.deepEqual([headers.accept, codes[at].includes('Q.npy')], ['application/json', false]);
      assert.equal(headers.authorization, key && 'Bearer a key of the tests', name);
      assert.equal(codes[at].includes('body.json'), fileOf(text) === 'body.json', name);
    }
  });
  if (language !== 'curl')
    test(`${language} prints the status and the whole answer of an error`, async () => {
      const code = snippet(language, { base, path: '/refused', body: { X: [[1]] } });
      const { stdout, stderr } = await run(language, [code]).catch((failed) => failed);
      const [, status, answer] = /^(\d+) (.+)\n$/.exec(stderr);
      assert.deepEqual([stdout, status, JSON.parse(answer)], ['', '422', JSON.parse(REFUSED)]);
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
