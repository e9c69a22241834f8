// request.test.mjs tests modules of the explorer that need no page: a request as text and its meaning, an answer as matrices, numbers as
// colours, and the state in the address.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { makeScale, position, raster } from '../../../server/explorer/src/colour.js';
import { EXAMPLES, find, OWN, requestText } from '../../../server/explorer/src/examples.js';
import { indexOfByte, locate, members, parse, withMember } from '../../../server/explorer/src/jsontext.js';
import { matrices, nested, split, vectors } from '../../../server/explorer/src/matrices.js';
import {
  askFor,
  hasHeld,
  inapplicable,
  isLarge,
  isSoftmax,
  pathAfter,
  pathFor,
  PATHS,
  summarise,
  wanted,
  withoutWeights,
} from '../../../server/explorer/src/request.js';
import { fromHash, toHash } from '../../../server/explorer/src/address.js';
import { drawing } from '../draw.mjs';

const text = '{\n  "X": [[1, 2], [3, 4]], "a~/b": {"c": [7, "}]"]},\n  "causal": true\n}\n';

test('members of an object stand where they are', () => {
  const all = members(text);
  assert.deepEqual([...all.keys()], ['X', 'a~/b', 'causal']);
  for (const [key, { keyStart, start, end }] of all) {
    assert.equal(text.slice(keyStart, keyStart + key.length + 2), JSON.stringify(key));
    assert.deepEqual(JSON.parse(text.slice(start, end)), JSON.parse(text)[key]);
  }
  for (const bad of ['', '[1]', '{"a": }', '{"a": [1}', '{"a": 1} 2', '{"a" 1}', '{"a": "b', '{"a": [[1, 2]']) {
    assert.equal(members(bad), null, bad);
  }
});

test("every notebook's request is found in its text, and goes where it belongs", () => {
  const folder = new URL('../../notebooks/', import.meta.url);
  const read = (file) => readFileSync(new URL(file, folder), 'utf8');
  let tried = 0;
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.request.json'))) {
    const request = read(file);
    const { path } = JSON.parse(read(file.replace('.request.', '.expected.')));
    const body = parse(request);
    const all = members(request);
    assert.deepEqual([...all.keys()], Object.keys(body), file);
    for (const [key, { start, end }] of all) {
      assert.deepEqual(parse(`{"${key}": ${request.slice(start, end)}}`), { [key]: body[key] }, `${file}: ${key}`);
      tried++;
    }
    if (PATHS.includes(path)) {
      assert.equal(pathFor(body), path, file);
    }
  }
  assert.ok(tried > 100);
});

test('pointers lead to their place, or to the deepest part of it', () => {
  const at = (pointer) => {
    const { start, end } = locate(text, pointer);
    return text.slice(start, end);
  };
  assert.equal(at('/X/1/0'), '3');
  assert.equal(at('/X/1'), '[3, 4]');
  assert.equal(at('/a~0~1b/c/1'), '"}]"');
  assert.equal(at('/causal'), '"causal": true');
  assert.equal(at('/X/1/9'), '[3, 4]');
  assert.equal(at(''), text.trim());
  assert.equal(locate('{"X": [', '/X/0'), null);
});

test('a member is set, added and taken away, and the rest stays as it was', () => {
  assert.equal(withMember(text, 'causal', '"bottom_right"'), text.replace('true', '"bottom_right"'));
  assert.equal(withMember('{"X": [[1]]}', 'scale', '2'), '{"X": [[1]], "scale": 2}');
  assert.equal(withMember('{}', 'scale', '2'), '{ "scale": 2}');
  assert.equal(withMember('{"X": [[1]]}', 'dtype', '"float64"', true), '{"dtype": "float64", "X": [[1]]}');
  for (const key of ['X', 'a~/b', 'causal']) {
    const { [key]: gone, ...rest } = JSON.parse(text);
    assert.notEqual(gone, undefined);
    assert.deepEqual(JSON.parse(withMember(text, key, undefined)), rest);
  }
  assert.equal(withMember('{"a": 1}', 'a', undefined), '{}');
  assert.equal(withMember('no JSON', 'a', '1'), 'no JSON');
  const added = withMember(text, 'window', '[1, 0]');
  assert.deepEqual(JSON.parse(added), { ...JSON.parse(text), window: [1, 0] });
  assert.equal(withMember(added, 'window', undefined).trim(), text.trim());
});

test("-Infinity as Python writes it is taken, in strings it is left alone; bytes are counted as the server's", () => {
  assert.deepEqual(parse('{"bias": [[0, -Infinity], [-Infinity,0]]}'), {
    bias: [
      [0, null],
      [null, 0],
    ],
  });
  assert.equal(parse('{"X": ['), undefined);
  assert.equal(parse('{"text": "x-Infinity", "b": [-Infinity]}').text, 'x-Infinity');
  assert.equal(indexOfByte('{"é": 1,]', 9), 8);
});

test('requests are understood: path, batch, heads, results', () => {
  const X = [[1, 2]];
  assert.equal(pathFor({ X }), '/attention');
  assert.equal(pathFor({ Q: X, K: X, V: X, b_Q: [1] }), '/attention');
  assert.equal(pathFor({ X, W_Q: X, b_Q: [1] }), '/self-attention');
  assert.equal(pathFor({ X, W_Q: X }), '/self-attention');
  assert.equal(pathFor({ X, W_Q: X, heads: 2 }), '/multi-head-attention');
  assert.equal(pathFor({ X, W_Q: [X] }), '/multi-head-attention');
  assert.equal(pathFor({ X, heads: [{}] }), '/multi-head-attention');
  assert.equal(summarise('/attention', { Q: [[X]] }).axes, 1);
  assert.equal(summarise('/attention', { Q: [X] }).axes, 0);
  assert.equal(summarise('/attention', { Q: X, K: [[X]], V: [X] }).axes, 1);
  assert.equal(summarise('/attention', { Q: X, K: X, V: [[[X]]] }).axes, 2);
  assert.equal(summarise('/attention', { Q: [X], heads: 2 }).axes, 1);
  assert.equal(summarise('/self-attention', { X: { random: 'rand', shape: [2, 3, 4] } }).axes, 1);
  for (const normalization of ['none', 'sigmoid']) {
    const summary = summarise('/attention', { X, normalization });
    assert.ok(!wanted(summary).includes('entropy'));
    assert.equal(inapplicable(summary, 1).sink, 'needs softmax');
    assert.equal(inapplicable(summary, 1).sigmoid_bias, normalization === 'none' ? 'needs sigmoid' : undefined);
  }
  assert.ok(wanted(summarise('/self-attention', { X })).includes('Q'));
  assert.ok(!wanted(summarise('/attention', { X })).includes('grad_V'));
  assert.ok(wanted(summarise('/attention', { X, grad_lse: [1, 1] })).includes('grad_V'));
  assert.ok(wanted(summarise('/attention', { text: 'a b', embedding_dim: 2 })).includes('present_K'));
  // What the request expects is asked for, once and only if the page can show it.
  const expecting = { X, grad_lse: [1], expected: { output: X, lse: [1], present_K: X }, 'expected.grad_V': X, 'expected.grad_Q': X };
  const list = wanted(summarise('/attention', expecting));
  assert.deepEqual(list.slice(list.indexOf('output')), ['output', 'lse', 'grad_Q']);
  assert.equal(list.filter((name) => name === 'grad_V').length, 1);
  assert.equal(wanted(summarise('/linear-attention', { ...expecting, beta: [1] })).at(-1), 'grad_Q');
  assert.equal(inapplicable(summarise('/attention', { X, causal: 'bottom_right' }), 1).alignment, 'set by Causal');
  assert.equal(inapplicable(summarise('/self-attention', { X, heads: [{}, {}] }), 2).heads, 'each head has its own');
  assert.equal(inapplicable(summarise('/attention', { X, heads: 2 }), 2).kv_heads, undefined);
});

test('an edit changes the path only when its keys fit another alone; a body for /softmax is known', () => {
  const X = [[1, 2]];
  assert.equal(pathAfter('/attention', { X, W_Q: X }), '/self-attention');
  assert.equal(pathAfter('/attention', { X, W_V: X }), '/self-attention');
  assert.equal(pathAfter('/attention', { X, heads: [{}] }), '/multi-head-attention');
  assert.equal(pathAfter('/self-attention', { X, W_Q: X, heads: 2 }), '/self-attention');
  assert.equal(pathAfter('/multi-head-attention', { text: 'a b' }), '/attention');
  for (const body of [{ X: [1, 2] }, { X, axis: 0 }, { X: [1], dtype: 'float64' }, { X: { random: 'rand', shape: [3] } }]) {
    assert.equal(isSoftmax(body), true, JSON.stringify(body));
  }
  for (const body of [{ X }, {}, { axis: 0 }, { X: [1], causal: true }, { X: [1], W_Q: X }]) {
    assert.equal(isSoftmax(body), false, JSON.stringify(body));
  }
});

test('answers become a matrix for each batch item and head', () => {
  const [[one]] = matrices([[1, null, -3]], 0);
  assert.deepEqual([...one.data], [1, -Infinity, -3]);
  assert.deepEqual([one.rows, one.cols, one.lo, one.hi, one.masked, [...one.bits], [...one.largest]], [1, 3, -3, 1, 1, [0, 1, 0], [1]]);
  const ragged = matrices([[[1, 2]], [[3]]], 0);
  assert.deepEqual(
    ragged[0].map(({ cols }) => cols),
    [2, 1],
  );
  assert.deepEqual(
    matrices([[[1]], [[2]]], 1).map(([{ data }]) => data[0]),
    [1, 2],
  );
  assert.equal(matrices([[[1]]], 0)[0][0].bits, null);
  assert.deepEqual(
    vectors([[[1, 2]], [[3, null]]], 1).map(([row]) => [...row]),
    [
      [1, 2],
      [3, -Infinity],
    ],
  );
  const [heads] = split(
    matrices(
      [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
      ],
      0,
    ),
    2,
  );
  assert.deepEqual(
    heads.map(({ data }) => [...data]),
    [
      [1, 2, 5, 6],
      [3, 4, 7, 8],
    ],
  );
});

test('colours: 0 is the middle of signed numbers, the largest stands for those under a pixel, masked ones are transparent', () => {
  const signed = makeScale({ lo: -1, hi: 4, signed: true, log: false, dark: false });
  assert.deepEqual(
    [-4, 0, 4].map((x) => position(signed, x)),
    [0, 0.5, 1],
  );
  assert.equal(position({ ...signed, log: true }, 0), 0.5);
  const weights = makeScale({ lo: 0, hi: 0.5, signed: false, log: true, palette: 'viridis' });
  assert.deepEqual(
    [0, 0.5, 1e-9].map((x) => position(weights, x)),
    [0, 1, 0],
  );
  const linear = { ...weights, log: false };
  const data = Float64Array.of(0, 0.5, -Infinity, -Infinity, 0, 0, -Infinity, -Infinity);
  const { width, height, pixels } = raster({ data, cols: 4 }, linear, { row0: 0, row1: 2, col0: 0, col1: 4 }, 2);
  assert.deepEqual([width, height], [2, 2]);
  assert.deepEqual([...pixels.subarray(0, 4)], [0xfd, 0xe7, 0x25, 255]);
  assert.equal(pixels[7], 0);
  const hidden = raster({ data, cols: 4, mask: Uint8Array.of(0, 1, 1, 1, 0, 0, 1, 1) }, linear, { row0: 0, row1: 1, col0: 0, col1: 4 }, 2);
  assert.deepEqual([...hidden.pixels.subarray(0, 4)], [0x44, 0x01, 0x54, 255]);
});

test('a pixel of weights is their mean, and the colours of means end where nearly all of them do', () => {
  const n = 400;
  const data = Float64Array.from({ length: n * n }, (_, at) => (at % n === 7 ? 0.9 : at % n < n / 2 ? 0.0004 : 0.0002));
  const whole = { row0: 0, row1: n, col0: 0, col1: n };
  const weights = (means) => makeScale({ lo: 0, hi: 0.9, signed: false, log: false, palette: 'viridis', means });
  const { pixels, scale, reduced } = raster({ data, cols: n }, weights('largest'), whole, { width: 200, height: 100 });
  assert.equal(reduced, true);
  assert.ok(Math.abs(scale.hi - 0.0004) < 1e-9 && scale.open, 'one column does not take the colours of the others');
  const green = (x) => pixels[4 * x + 1];
  assert.ok(green(3) === 0xe7 && green(50) === 0xe7 && green(150) < 200, [green(3), green(50), green(150)].join());
  const fixed = raster({ data, cols: n }, weights('one'), whole, 200);
  assert.deepEqual([fixed.scale.hi, fixed.scale.open], [0.9, undefined]);
  const part = raster({ data, cols: n }, weights('largest'), { ...whole, row1: 100, col1: 100 }, 200);
  assert.deepEqual([part.reduced, part.scale.hi], [false, 0.9], 'a pixel of one number has the colour of its number');
});

function packs() {
  try {
    return Boolean(new CompressionStream('deflate-raw'));
  } catch {
    return false;
  }
}

test('a drawn Q is asked for as keys, after the same draws', () => {
  const randn = (...shape) => ({ random: 'randn', shape });
  const random = { generator: 'numpy', seed: 1 };
  const first = JSON.stringify(askFor({ random, Q: randn(5, 2), K: randn(3, 2), V: randn(3, 2) }, 'Q').K);
  assert.equal(first, '{"random":"randn","shape":[5,2]}');
  const later = askFor({ random, V: randn(3, 2), K: { ...randn(3, 2), discard: [randn(7)] }, Q: randn(4, 5, 2) }, 'Q');
  const shapes = [...later.K.discard, later.Q, later.K, later.V].map(({ shape }) => shape.join());
  assert.deepEqual(shapes, ['3,2', '7', '3,2', '4,1,2', '4,5,2', '4,5,1']);
  assert.equal(askFor({ Q: [[1]], K: randn(1, 1) }, 'Q'), null);
  assert.equal(askFor({ random, X: randn(1, 1) }, 'Q'), null);
});

test('the state goes into the address and comes back', { skip: !packs() && 'Node.js 18 has no deflate-raw; browsers have' }, async () => {
  const state = {
    example: '003',
    path: '/attention',
    text,
    labels: ['a', 'b'],
    head: 2,
    compare: 0,
    row: 0,
    batch: 0,
    step: 'scores',
    log: true,
    palette: 'cividis',
  };
  const { example, path, text: back, labels, head, compare, row, step, log, numbers, palette } = await fromHash(await toHash(state, true));
  assert.deepEqual({ example, path, text: back, labels, head, compare, row, batch: 0, step, log, palette }, state);
  assert.equal(numbers, false);
  assert.equal(
    await toHash({ example: '000', step: 'flow', head: 0, compare: null, row: null, palette: 'viridis' }, false),
    '#example=000',
  );
  assert.equal((await fromHash('#example=000&request=%21')).broken, true);
  assert.equal((await fromHash('#head=-1')).head, undefined);
  assert.equal((await fromHash('#step=constructor')).step, undefined);
  const plain = await fromHash(`#body=${encodeURIComponent('{"X": [[1]], "W_Q": [[1]]}')}&labels=a, b`);
  assert.deepEqual([plain.path, JSON.parse(plain.text), plain.labels], ['/self-attention', { X: [[1]], W_Q: [[1]] }, ['a', 'b']]);
  assert.equal((await fromHash('#body={')).broken, true);
  const foreign = await fromHash(await toHash({ ...state, path: '/metrics' }, true));
  assert.deepEqual([foreign.broken, foreign.path], [true, undefined]);
});

test('a matrix of a file stands in the text with its shape; a link does not have it', async () => {
  const standing = (...shape) => ({ file: 'Q.npy', dtype: 'F32', shape });
  const body = { Q: standing(8, 512, 64), K: standing(8, 512, 64), V: standing(8, 512, 64) };
  const held = JSON.stringify(body);
  assert.deepEqual([hasHeld(held), hasHeld('{"text": "a \\"file\\""}'), hasHeld('{"X": [["file"]]}')], [true, false, false]);
  const summary = summarise('/attention', body);
  assert.deepEqual([summary.shapes.K, summary.drawn, summary.axes], [[8, 512, 64], false, 0]);
  assert.equal(wanted(summary).includes('present_K'), false);
  const state = { example: 'own', path: '/attention', text: held, labels: [], head: 0, step: 'flow', palette: 'viridis' };
  assert.equal(await toHash(state, true), '#example=own');
});

test('an answer is large if its weights are many, whatever says how many', () => {
  const zeros = (...shape) => ({ random: 'zeros', shape });
  const large = (path, body) => isLarge(summarise(path, body));
  const all = (...shape) => ({ Q: zeros(...shape), K: zeros(...shape), V: zeros(...shape) });
  assert.deepEqual([large('/attention', all(158, 4)), large('/attention', all(159, 4))], [false, true]);
  assert.deepEqual([large('/attention', all(2, 8, 40, 4)), large('/attention', all(2, 7, 32, 4))], [true, false]);
  assert.equal(large('/attention', { ...all(64, 64), heads: 8 }), true);
  assert.equal(large('/attention', { ...all(159, 4), digits: 4 }), false);
  assert.equal(large('/multi-head-attention', { X: zeros(80, 8), W_Q: zeros(8, 8, 4) }), true);
  assert.equal(large('/self-attention', { text: 'word '.repeat(170), W_Q: zeros(8, 8) }), true);
  assert.equal(large('/self-attention', { tokens: ['a', 'b'], W_Q: zeros(8, 8) }), false);
});

test('of drawn shapes the page knows the axes of the batch, how many numbers an answer has, and whether the states are few', () => {
  const { whole, pick } = drawing(16);
  const product = (list) => list.reduce((a, b) => a * b, 1);
  const some = (most, count) => Array.from({ length: count }, () => whole(1, most));
  for (let round = 0; round < 500; round++) {
    const [n, m, d, heads] = [whole(1, 160), whole(1, 160), whole(1, 8), whole(1, 4)];
    const batch = some(3, whole(0, 2));
    const form = pick(['plain', 'heads', 'packed', 'projected']);
    const give = (...shape) =>
      pick([
        { random: 'randn', shape },
        { file: 'a.npy', dtype: 'F32', shape },
      ]);
    let [path, body, axes] = ['/attention', null, batch.length];
    if (form === 'projected') {
      [path, body] = ['/multi-head-attention', { X: give(...batch, n, d), heads, ...(round % 2 && { context: give(...batch, m, d) }) }];
    } else {
      const inner = form === 'heads' ? [heads] : [];
      const width = form === 'packed' ? d * heads : d;
      body = {
        Q: give(...batch, ...inner, n, width),
        K: give(...batch, ...inner, m, width),
        V: give(m, 2),
        ...(form === 'packed' && { heads }),
      };
      // An axis before the rows is that of heads, unless the columns have them.
      if (form === 'plain') axes = Math.max(batch.length - 1, 0);
    }
    const summary = summarise(path, body);
    assert.equal(summary.axes, axes, `${form} ${batch}`);
    assert.deepEqual([summary.packed, summary.projected], [form === 'packed', form === 'projected']);
    const keys = form === 'projected' && !body.context ? n : m;
    const pairs = product(batch) * (form === 'plain' ? 1 : heads) * n * keys;
    assert.equal(isLarge(summary), pairs * 4 > 100_000, `${form} ${batch} ${pairs}`);
    assert.equal(isLarge({ ...summary, options: { ...summary.options, digits: 3 } }), false);
    // States: one for each position, d × d_v, at most 200,000 numbers by the larger of K and V.
    const [rows, wide] = [whole(1, 40), whole(40, 90)];
    const states = { Q: give(rows, wide), K: give(rows, wide), V: give(rows, whole(1, 90)), ...(round % 3 === 0 && { decay: give(rows) }) };
    const most = rows * Math.max(wide, states.V.shape[1]) * Math.max(wide, states.V.shape[1]);
    const asked = wanted(summarise('/linear-attention', states));
    assert.deepEqual([asked.includes('states'), asked.includes('decays')], [most <= 200_000, 'decay' in states], `${most}`);
  }
});

test('the bytes of an answer are the matrices, without a copy', () => {
  const data = Float32Array.from({ length: 24 }, (_, i) => (i === 7 ? -Infinity : i));
  const groups = matrices(nested(data, [2, 2, 3, 2]), 1);
  assert.deepEqual([groups.length, groups[1].length, groups[1][1].rows, [...groups[1][1].data]], [2, 2, 3, [18, 19, 20, 21, 22, 23]]);
  assert.equal(groups[1][1].data.buffer, data.buffer);
  assert.deepEqual([...groups[0][1].bits, groups[0][1].masked], [0, 1, 0, 0, 0, 0, 1]);
  assert.deepEqual([...split(matrices(nested(data, [3, 8]), 0), 2)[0][1].data.slice(0, 5)], [4, 5, 6, -Infinity, 12]);
  assert.deepEqual([...vectors(nested(data, [2, 12]), 0)[0][1]], [...data.slice(12)]);
  assert.equal(nested(data, []), 0);
});

test('every example is found by its name, and its text is its body', () => {
  for (const example of [...EXAMPLES, OWN]) {
    assert.equal(find(example.id).example, example);
    for (const variant of example.variants) {
      assert.equal(find(variant.id).variant, variant);
      assert.deepEqual(JSON.parse(requestText(variant)), variant.body);
      assert.equal(pathFor(variant.body), variant.path);
    }
  }
  assert.equal(find('no such').example, EXAMPLES[0]);
});

test('a request without weights is asked only for its output, and the page says why it has no weights', () => {
  const [Q, K] = [[[1, 2], [3, 4]], [[1, 2]]]; // prettier-ignore
  for (const [path, body, pointer] of [
    ['/attention', { Q, K: Q, V: Q, sequences: [[1, 1]] }, '/sequences'],
    ['/linear-attention', { Q, K: Q, V: Q, sequence_offsets: [[0, 1, 2]] }, '/sequence_offsets'],
    ['/attention', { Q: [], K, V: K }, '/Q'],
  ]) {
    const summary = summarise(path, body);
    assert.deepEqual(wanted(summary), ['output']);
    assert.equal(withoutWeights(summary).pointer, pointer);
  }
  for (const body of [{ X: Q }, { Q, K, V: K }, { Q, K, V: K, sequences: null }, { text: 'a b', embedding_dim: 2 }]) {
    assert.equal(withoutWeights(summarise('/attention', body)), null);
  }
});
