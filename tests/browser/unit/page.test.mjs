// The explorer's pure modules: JSON as text, answers as matrices, colours, what a request means, the state in the address.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { makeScale, position, raster } from '../../../server/explorer/src/colour.js';
import { indexOfByte, locate, members, withMember } from '../../../server/explorer/src/jsontext.js';
import { matrices, split, vectors } from '../../../server/explorer/src/matrices.js';
import { pathFor } from '../../../server/explorer/src/request.js';
import { fromHash, toHash } from '../../../server/explorer/src/state.js';

const notebooks = new URL('../../notebooks/', import.meta.url);
const requests = readdirSync(notebooks).filter((file) => file.endsWith('.request.json'));
const read = (file) => readFileSync(new URL(file, notebooks), 'utf8');

test('members of a request are found as they stand in the text', () => {
  for (const file of requests) {
    const text = read(file);
    const found = members(text);
    const body = JSON.parse(text.replaceAll('-Infinity', 'null'));
    assert.deepEqual([...found.keys()], Object.keys(body), file);
    for (const [key, { start, end }] of found) {
      assert.deepEqual(JSON.parse(text.slice(start, end).replaceAll('-Infinity', 'null')), body[key], `${file}: ${key}`);
    }
  }
  for (const text of ['', '[1]', '{"a": 1', '{"a" 1}', '{"a": 1} x', '{"a": }', '{"a": [1']) {
    assert.equal(members(text), null, text);
  }
});

test('a member is set and taken out, the rest stays as it was', () => {
  const cases = ['{}', '{"a": 1}', '{"a": [1, 2],\n "b": "}", "c": {"d": null}}', '{\n  "a": 1\n}\n', '{"z":"\\"","y":[]}'];
  for (const text of cases) {
    const body = JSON.parse(text);
    for (const first of [false, true]) {
      assert.deepEqual(JSON.parse(withMember(text, 'new', '[true]', first)), { ...body, new: [true] });
    }
    assert.equal(Object.keys(JSON.parse(withMember(text, 'new', '1', true)))[0], 'new');
    assert.equal(withMember(text, 'none', undefined), text);
    for (const key of Object.keys(body)) {
      const { [key]: gone, ...rest } = body;
      assert.notEqual(gone, undefined);
      assert.deepEqual(JSON.parse(withMember(text, key, undefined)), rest, `${text} without ${key}`);
      assert.deepEqual(JSON.parse(withMember(text, key, '7')), { ...body, [key]: 7 });
    }
  }
});

test('a pointer names a place in the text; so does a byte', () => {
  const text = '{"a/b": [10, {"~": "x"}], "Q": [[1, 2], [3]]}';
  const at = (pointer) => {
    const { start, end } = locate(text, pointer);
    return text.slice(start, end);
  };
  assert.equal(at('/Q/1/0'), '3');
  assert.equal(at('/a~1b/1/~0'), '"~": "x"');
  assert.equal(at(''), text);
  assert.equal(at('/Q/7'), '[[1, 2], [3]]', 'the deepest part that is there');
  assert.equal(indexOfByte('é🧠x', 6), 3);
});

test('answers become matrices by batch item and head, null is −∞', () => {
  const [[matrix]] = matrices([[1, null], [0.5, -2]], false);
  assert.deepEqual([...matrix.data], [1, -Infinity, 0.5, -2]);
  assert.deepEqual([matrix.rows, matrix.cols, matrix.lo, matrix.hi, matrix.masked], [2, 2, -2, 1, 1]);
  assert.deepEqual(matrices([[[1]], [[2]]], false).map((heads) => heads.map(({ data }) => [...data])), [[[1], [2]]]);
  assert.deepEqual(matrices([[[1]], [[2]]], true).map((heads) => heads.map(({ data }) => [...data])), [[[1]], [[2]]]);
  assert.deepEqual(matrices([[[[1]], [[2]]]], true).map((heads) => heads.length), [2]);
  assert.deepEqual(vectors([[1, 2], [3, 4]], false).map((heads) => heads.map((row) => [...row])), [[[1, 2], [3, 4]]]);
  const [heads] = split(matrices([[1, 2, 3, 4], [5, 6, 7, 8]], false), 2);
  assert.deepEqual(heads.map(({ data }) => [...data]), [[1, 2, 5, 6], [3, 4, 7, 8]]);
});

test('weights go from 0 up, signed numbers lie around 0', () => {
  const weights = makeScale({ lo: 0.2, hi: 0.8, signed: false, log: false, palette: 'viridis', dark: false });
  assert.deepEqual([0, 0.4, 0.8].map((x) => position(weights, x)), [0, 0.5, 1]);
  const signed = makeScale({ lo: -1, hi: 3, signed: true, log: false, palette: 'viridis', dark: false });
  assert.deepEqual([-3, 0, 3].map((x) => position(signed, x)), [0, 0.5, 1]);
  for (const scale of [weights, signed]) {
    const places = [1e-9, 1e-5, 0.01, 0.3, 0.8].map((x) => position({ ...scale, log: true }, x));
    assert.deepEqual([...places].sort((a, b) => a - b), places, 'logarithmic keeps the order');
  }
});

test('a picture of a large matrix shows the largest number under each pixel, and no masked one', () => {
  const data = Float64Array.from({ length: 64 }, (_, i) => (i === 9 ? 1 : 0.1));
  const scale = makeScale({ lo: 0, hi: 1, signed: false, log: false, palette: 'viridis', dark: false });
  const part = { row0: 0, row1: 8, col0: 0, col1: 8 };
  const bright = raster({ data, cols: 8 }, scale, part, 4);
  assert.deepEqual([bright.width, bright.height], [4, 4]);
  assert.deepEqual([...bright.pixels.subarray(0, 4)], [0xfd, 0xe7, 0x25, 255]);
  assert.notDeepEqual([...bright.pixels.subarray(4, 8)], [0xfd, 0xe7, 0x25, 255]);
  const mask = new Uint8Array(64).fill(1);
  mask[0] = 0;
  const { pixels } = raster({ data, cols: 8, mask }, scale, part, 4);
  assert.deepEqual([3, 7, 11].map((i) => pixels[i]), [255, 0, 0], 'what is masked everywhere is transparent');
});

test('a request goes where it belongs', () => {
  for (const file of requests.filter((name) => !name.includes('softmax-curve'))) {
    const { path } = JSON.parse(read(file.replace('request', 'expected')));
    assert.equal(pathFor(JSON.parse(read(file).replaceAll('-Infinity', 'null'))), path, file);
  }
});

function packs() {
  try {
    return Boolean(new CompressionStream('deflate-raw'));
  } catch {
    return false;
  }
}

test('what the address says is what was to be seen', { skip: !packs() && 'Node.js 18 has no deflate-raw; browsers have' }, async () => {
  const state = {
    example: '001-head', path: '/attention', text: '{"X": [[1, "é🧠"]]}', labels: ['a', 'b'],
    head: 2, compare: 0, row: 0, threshold: 0.25, log: true, lines: true, numbers: true, mean: false, palette: 'cividis',
  };
  const back = await fromHash(await toHash(state, true));
  for (const [key, value] of Object.entries(state)) {
    assert.deepEqual(back[key] ?? false, value, key);
  }
  assert.equal((await fromHash('#request=broken!')).broken, true);
  assert.equal((await toHash({ ...state, text: 'x'.repeat(10) }, false)).includes('request'), false);
});
