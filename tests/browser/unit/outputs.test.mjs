// outputs.test.mjs tests how the explorer reads the arrays that a user's own kernel has written. GOLDEN was made once by NumPy 2.4.6: the
// .npy files by numpy.lib.format.write_array, the texts by numpy.savetxt and by json.dumps of Python 3.11.
import assert from 'node:assert/strict';
import { File } from 'node:buffer';
import { test } from 'node:test';
import { toCSV } from '../../../server/explorer/src/download.js';
import { readOutputs } from '../../../server/explorer/src/outputs.js';
import { numbersOf } from '../../../server/explorer/src/tensortext.js';
import { drawing } from '../draw.mjs';
import { entry, npyBytes, safetensorsBytes } from '../tensorfiles.mjs';

const GOLDEN = {
  f2: 'k05VTVBZAQB2AHsnZGVzY3InOiAnPGYyJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDMpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAOADBAEIAfgD8AHw=',
  '>f4 F':
    'k05VTVBZAQB2AHsnZGVzY3InOiAnPmY0JywgJ2ZvcnRyYW5fb3JkZXInOiBUcnVlLCAnc2hhcGUnOiAoMiwgMyksIH0gICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAo/AAAAf8AAAMAgAAD/gAAAQEAAAH+AAAA=',
  f8: 'k05VTVBZAQB2AHsnZGVzY3InOiAnPGY4JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDMpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAAAADgPwAAAAAAAATAAAAAAAAACEAAAAAAAAD4fwAAAAAAAPD/AAAAAAAA8H8=',
  'i8 F':
    'k05VTVBZAQB2AHsnZGVzY3InOiAnPGk4JywgJ2ZvcnRyYW5fb3JkZXInOiBUcnVlLCAnc2hhcGUnOiAoMiwgMywgNCksIH0gICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAAAAAgAAwAAAAAACAABAAAAAAAIAAQAAAAAAAgAAgAAAAAACAAFAAAAAAAIAABAAAAAAAgAA0AAAAAACAABQAAAAAAIAARAAAAAAAgAAkAAAAAACAAFQAAAAAAIAACAAAAAAAgAA4AAAAAACAABgAAAAAAIAASAAAAAAAgAAoAAAAAACAAFgAAAAAAIAADAAAAAAAgAA8AAAAAACAABwAAAAAAIAATAAAAAAAgAAsAAAAAACAAFwAAAAAAIAA=',
  bool: 'k05VTVBZAQB2AHsnZGVzY3InOiAnfGIxJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDMpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoBAAEAAAE=',
  savetxt: '5.000000000000000000e-01 -2.500000000000000000e+00 3.000000000000000000e+00\nnan -inf inf\n',
  'savetxt with commas': '# a kernel\n0.5,-2.5,3\nnan,-inf,inf\n',
  json: '{\n "output": [\n  [\n   0.5,\n   -2.5,\n   3.0\n  ],\n  [\n   NaN,\n   -Infinity,\n   Infinity\n  ]\n ],\n "weights": [\n  [\n   [\n    1.0,\n    -0.0\n   ]\n  ]\n ],\n "note": "a \\"NaN\\" ] [1, NaN",\n "scale": NaN\n}',
};
const VALUES = [0.5, -2.5, 3, NaN, -Infinity, Infinity]; // of the golden files, as (2, 3)

// Reads a file, and checks that the bytes of each array are its numbers.
async function read(name, ...parts) {
  const arrays = await readOutputs(new File(parts, name));
  return arrays.map(({ name: own, shape, type, bytes, data }) => {
    assert.deepEqual([...numbersOf(type, bytes)], [...data]);
    return array(own, shape, data, type);
  });
}
const golden = (key) => Buffer.from(GOLDEN[key], 'base64');
const array = (name, shape, values, type = 'F64') => ({ name, shape, data: Float64Array.from(values), type });

// Checks that each file is refused with a message. wrong: [content, message].
async function refused(name, wrong) {
  for (const [content, message] of wrong) {
    await assert.rejects(() => read(name, content), { name: 'Error', message }, String(content).slice(0, 60));
  }
}

test('files of NumPy become numbers in row-major order, NaN and infinities, too', async () => {
  for (const [key, type] of [
    ['f2', 'F16'],
    ['>f4 F', 'F32'],
    ['f8', 'F64'],
  ])
    // prettier-ignore
    assert.deepEqual(await read('mine.npy', golden(key)), [array(null, [2, 3], VALUES, type)], key);
  assert.deepEqual(await read('mine.npy', golden('bool')), [array(null, [2, 3], [1, 0, 1, 0, 0, 1], 'BOOL')]);
  const swapped = Uint8Array.of(0x38, 0x00, 0xc1, 0x00);
  assert.deepEqual(await read('mine.npy', npyBytes('>f2', [2], swapped)), [array(null, [2], [0.5, -2.5], 'F16')]);
  const big = Array.from({ length: 24 }, (_, i) => Number(2n ** 53n + BigInt(i)));
  assert.deepEqual(await read('mine.npy', golden('i8 F')), [array(null, [2, 3, 4], big, 'I64')]);
});

test('Fortran order of every rank is turned round', async () => {
  for (const shape of [[5], [1, 1], [4, 3], [1, 4, 1, 3], [2, 3, 4], [2, 1, 3, 2]]) {
    const steps = shape.map((_, axis) => shape.slice(0, axis).reduce((a, b) => a * b, 1));
    const nested = (axis, at) =>
      axis === shape.length ? [at] : Array.from({ length: shape[axis] }, (_, i) => nested(axis + 1, at + i * steps[axis])).flat();
    const bytes = Uint8Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => i);
    assert.deepEqual(
      await read('a.npy', npyBytes('|u1', shape, bytes, { fortran: true })),
      [array(null, shape, nested(0, 0), 'U8')],
      String(shape),
    );
  }
});

// How each type is written: the bytes of an element, the method of a DataView, and what is written for a whole number.
const WRITTEN = {
  ...{ F64: [8, 'Float64'], F32: [4, 'Float32'], I64: [8, 'BigInt64'], U64: [8, 'BigUint64'], I32: [4, 'Int32'], U32: [4, 'Uint32'] },
  ...{
    I16: [2, 'Int16'],
    U16: [2, 'Uint16'],
    I8: [1, 'Int8'],
    U8: [1, 'Uint8'],
    BOOL: [1, 'Uint8'],
    F16: [2, 'Uint16'],
    BF16: [2, 'Uint16'],
  },
};
// Returns the bits of a whole number from 0 to 255 in a float of 16 bits.
const bitsOf = { F16: (x) => (x ? ((15 + Math.floor(Math.log2(x))) << 10) | ((x / 2 ** Math.floor(Math.log2(x)) - 1) * 1024) : 0), BF16: (x) => new Uint32Array(Float32Array.of(x).buffer)[0] >>> 16 }; // prettier-ignore

// Draws an array of whole numbers of a type. Returns {type, shape, values, bytes}. values: in row-major order. The bytes have the orders that
// are asked for.
function drawn({ whole }, type, { big = false, fortran = false } = {}) {
  const shape = Array.from({ length: whole(1, 4) }, () => whole(1, 4));
  const count = shape.reduce((a, b) => a * b);
  const signed = /^[FI]/.test(type) && type !== 'BF16' && type !== 'F16';
  const values = Array.from({ length: count }, () => (type === 'BOOL' ? whole(0, 1) : whole(signed ? -128 : 0, type === 'I8' ? 127 : 255)));
  const [size, kind] = WRITTEN[type];
  const view = new DataView(new ArrayBuffer(count * size));
  values.forEach((value, at) => {
    // The indices of the element, the last one first.
    const index = [];
    for (let axis = shape.length - 1, rest = at; axis >= 0; rest = Math.floor(rest / shape[axis--])) index.unshift(rest % shape[axis]);
    const place = fortran ? index.reduceRight((sum, i, axis) => sum * shape[axis] + i, 0) : at;
    const made = bitsOf[type]?.(value) ?? (kind.startsWith('Big') ? BigInt(value) : value);
    view[`set${kind}`](place * size, made, !big);
  });
  return { type, shape, values, bytes: new Uint8Array(view.buffer) };
}

test('drawn files of every type, rank, order and version have the numbers at their indices', async () => {
  const draws = drawing(13);
  const names = { F: 'f', I: 'i', U: 'u', B: 'b' };
  for (let round = 0; round < 200; round++) {
    const type = draws.pick(Object.keys(WRITTEN).filter((one) => one !== 'BF16'));
    const [big, fortran, major] = [draws.pick([false, true]), draws.pick([false, true]), draws.pick([1, 2, 3])];
    const { shape, values, bytes } = drawn(draws, type, { big, fortran });
    const descr = `${big ? '>' : draws.pick(['<', '=', '|'])}${names[type[0]]}${WRITTEN[type][0]}`;
    assert.deepEqual(await read('a.npy', npyBytes(descr, shape, bytes, { fortran, major })), [array(null, shape, values, type)], descr);
    // A file of tensors has several arrays, whose places may have another order than their names.
    const several = Array.from({ length: draws.whole(1, 4) }, (_, at) => ({
      name: `t${at}`,
      ...drawn(draws, draws.pick(Object.keys(WRITTEN))),
    }));
    const order = [...several].sort(() => draws.random() - 0.5);
    let end = 0;
    const places = Object.fromEntries(order.map((one) => [one.name, [end, (end += one.bytes.length)]]));
    const header = Object.fromEntries(several.map((one) => [one.name, entry(one.type, one.shape, ...places[one.name])]));
    const file = safetensorsBytes(header, Buffer.concat(order.map((one) => one.bytes)));
    assert.deepEqual(await read('a.safetensors', file), several.map((one) => array(one.name, one.shape, one.values, one.type))); // prettier-ignore
  }
});

test('every pattern of the short floats is the number that float32 has with the same bits', () => {
  const float32 = (bits) => new Float32Array(Uint32Array.of(bits).buffer)[0];
  const numbers = {
    BF16: (bits) => float32(bits << 16),
    F16: (bits) => ((bits & 0x7c00) === 0x7c00 ? (bits & 0x3ff ? NaN : Infinity) : float32((bits & 0x7fff) << 13) * 2 ** 112) * (bits >> 15 ? -1 : 1), // prettier-ignore
    F8_E4M3: (bits) => ((bits & 0x7f) === 0x7f ? NaN : float32((bits & 0x7f) << 20) * 2 ** 120) * (bits >> 7 ? -1 : 1),
  };
  numbers.F8_E5M2 = (bits) => numbers.F16(bits << 8);
  for (const [type, number] of Object.entries(numbers)) {
    const wide = type.endsWith('F16');
    const patterns = Uint32Array.from({ length: wide ? 65536 : 256 }, (_, bits) => bits);
    const bytes = new Uint8Array((wide ? Uint16Array : Uint8Array).from(patterns).buffer);
    const found = numbersOf(type, bytes);
    const wrong = patterns.filter((bits) => !Object.is(found[bits], number(bits)));
    assert.deepEqual([found.length, [...wrong]], [patterns.length, []], type);
  }
});

test('an array has the name of its file if this is a result', async () => {
  const names = async (...files) => Promise.all(files.map(async (file) => (await read(file, npyBytes('|u1', [1], [7])))[0].name));
  assert.deepEqual(await names('output.npy', 'masked_scores.npy', 'q.NPY', 'Weights.npy'), ['output', 'masked_scores', 'Q', 'weights']);
  assert.deepEqual(await names('out.npy', 'output (1).npy', '.npy', 'mask.npy'), [null, null, null, null]);
  assert.equal((await read('scores.csv', '1'))[0].name, 'scores');
  assert.equal((await read('V.json', '[1]'))[0].name, 'V');
});

test('all tensors of a .safetensors file are read, bfloat16, too', async () => {
  const header = {
    __metadata__: { format: 'pt' },
    output: entry('BF16', [2, 2], 0, 8),
    weights: entry('F32', [1, 1, 2], 8, 16),
    seen: entry('U64', [1], 16, 24),
  };
  const data = Buffer.alloc(24);
  [0x3f80, 0xc0a0, 0x7fc0, 0xff80].forEach((bits, i) => data.writeUInt16LE(bits, 2 * i));
  data.writeFloatLE(0.1, 8);
  data.writeFloatLE(-1e38, 12);
  data.writeBigUInt64LE(2n ** 64n - 1n, 16);
  assert.deepEqual(await read('all.safetensors', safetensorsBytes(header, data)), [
    array('output', [2, 2], [1, -5, NaN, -Infinity], 'BF16'),
    array('weights', [1, 1, 2], [Math.fround(0.1), Math.fround(-1e38)], 'F32'),
    array('seen', [1], [2 ** 64], 'U64'),
  ]);
});

test('what Python writes as JSON is read, and text is left alone', async () => {
  assert.deepEqual(await read('all.json', GOLDEN.json), [array('output', [2, 3], VALUES), array('weights', [1, 1, 2], [1, -0])]);
  assert.deepEqual(await read('mine.json', ' [[1, null],\n [-nan, -2.5e-3]] '), [array(null, [2, 2], [1, -Infinity, NaN, -0.0025])]);
  const members = '{"tokens": ["a", "]"], "Q": [1, 2], "s": {"lse": [[1]]}, "n": 3, "d": [{"x": [1]}], "K": [[true], [false]]}';
  assert.deepEqual(await read('a.json', members), [array('Q', [2], [1, 2]), array('K', [2, 1], [1, 0])]);
});

test('what a request expects has the names that it has in a file of tensors', async () => {
  const request = '{"Q": [[1]], "expected": {"output": [[2, NaN]], "lse": [3], "note": "a"}, "causal": true}';
  const [Q, output, lse] = [array('Q', [1, 1], [1]), array('expected.output', [1, 2], [2, NaN]), array('expected.lse', [1], [3])];
  assert.deepEqual(await read('a.json', request), [Q, output, lse]);
  assert.deepEqual(await read('a.json', '{"expected": [4]}'), [array('expected', [1], [4])]);
});

test('outputs of the Open Inference Protocol are read, flat or nested', async () => {
  const flat = '{"name": "output", "shape": [1, 2, 2], "datatype": "FP32", "data": [1, 2, NaN, 4]}';
  const nested = '{"data": [[5, 6]], "datatype": "FP32", "shape": [1, 2], "name": "weights"}';
  const text = '{"name": "tokens", "shape": [1], "datatype": "BYTES", "data": ["a"]}';
  assert.deepEqual(await read('a.json', `{"model_name": "attention", "outputs": [${flat}, ${nested}, ${text}]}`), [
    array('output', [1, 2, 2], [1, 2, NaN, 4]),
    array('weights', [1, 2], [5, 6]),
  ]);
  await refused('a.json', [
    [`{"outputs": [${flat.replace(', 4', '')}]}`, 'output has 3 numbers, but its shape 1 × 2 × 2 needs 4.'],
    ['{"outputs": [{"name": "output", "data": [1]}]}', /^outputs\[0\] needs a name, a shape/],
    [`{"outputs": [${flat}, 3]}`, /^outputs\[1\] needs a name/],
  ]);
});

test('wrong JSON is refused with the rule and the place', async () => {
  await refused('a.json', [
    ['[[1, 2], [3]]', 'array[1] is an array of 1, but array[0] is an array of 2. All arrays of an axis have one length.'],
    ['{"output": [[[1], [2]], [[3]]]}', /^output\[1\] is an array of 1, but output\[0\] is an array of 2\./],
    ['{"output": [[[1, 2], [2]]]}', /^output\[0\]\[1\] is an array of 1, but output\[0\]\[0\] is an array of 2\./],
    ['[1, [2]]', 'array[1] is an array of 1, which is no number.'],
    ['[[1], 2]', /^array\[1\] is "2", but array\[0\] is an array of 1\./],
    ['[[1, "2"]]', 'array[0][1] is "\\"2\\"", which is no number.'],
    ['[[1], []]', /^array\[1\] is an array of 0, but/],
    ['{"output": []}', 'output has an empty array.'],
    [`${'['.repeat(9)}1${']'.repeat(9)}`, /more than 8 axes/],
    ...['[[0x10]]', '[1,, 2]', '[1 2]', '[1] x', '{"a": [1]} {}', '[[1, 2], [3', '{"a": "b', 'nan x'].map((text) => [
      text,
      /^It is not JSON: ./,
    ]),
    ['{"a": 1}', 'The file has no array of numbers.'],
  ]);
});

test('eight axes and a line of twenty million characters are read, and no more', async () => {
  assert.deepEqual(await read('a.json', `${'['.repeat(8)}1${']'.repeat(8)}`), [array(null, Array(8).fill(1), [1])]);
  const line = (length) => read('a.csv', `1,2${' '.repeat(length - 3)}`);
  assert.deepEqual(await line(20_000_000), [array(null, [1, 2], [1, 2])]);
  await assert.rejects(() => line(20_000_001), /^Error: Line 1 has more than 20 million characters/);
});

test('rows of numbers are read, whatever separates them', async () => {
  const two = [array(null, [2, 2], [1, -2.5, 0.003, 4])];
  for (const [name, text] of [
    ['a.csv', '1,-2.5\n3e-3,4\n'],
    ['a.csv', '1, -2.5\r\n\r\n+3E-3,4.'],
    ['a.txt', '  1   -2.5\n .003\t4\n\n'],
    ['a.tsv', '1\t-2.5\n0.003\t4'],
    ['a.csv', '"1";"-2.5"\n0.003;4'],
    ['a.csv', 'x,y\n1,-2.5\n3e-3,4\n'],
    ['a.txt', 'q0 1 -2.5\nq1 3e-3 4\n'],
    ['a.txt', '   k0 k1\nq0 1 -2.5\nq1 3e-3 4\n'],
    ['a.csv', ',0,1\n0,1,-2.5\n1,3e-3,4\n'],
    ['a.txt', '# made by\n# a kernel\n1 -2.5\n3e-3 4\n'],
    ['a.csv', ',a,b\n#,1,-2.5\n##,3e-3,4\n'],
  ]) {
    assert.deepEqual(await read(name, text), two, text);
  }
  for (const key of ['savetxt', 'savetxt with commas']) assert.deepEqual(await read('a.txt', GOLDEN[key]), [array(null, [2, 3], VALUES)]);
  const words = await read('a.csv', 'NaN,nan,-nan(ind)\ninf,INF,+Infinity\n-inf,-Infinity,null\n');
  assert.deepEqual(words, [array(null, [3, 3], [NaN, NaN, NaN, Infinity, Infinity, Infinity, -Infinity, -Infinity, -Infinity])]);
});

test('what the page saves as CSV comes back', async () => {
  const values = [0.1, -Infinity, NaN, 1 / 3, 1e-8, -0.98522025];
  const labels = [
    [
      ['q0', 'q1'],
      ['k0', 'k1', 'k2'],
    ],
    [
      ['=1+1', 'two words'],
      ['say "a, b"', 'c', 'd'],
    ],
    [
      ['3', '5'],
      ['0', '1', '2'],
    ],
  ];
  const saved = (rowNames, colNames) => toCSV({ rows: 2, cols: 3, data: Float64Array.from(values), rowNames, colNames });
  const named = saved(['q0', 'q1'], ['a', 'b', '7']);
  // Other programs leave out the names of the columns, those of the rows, or both.
  const [noColumns, noRows] = [named.replace(/^.*\r\n/, ''), named.replace(/(?<=^|\n)[^,]*,/g, '')];
  for (const text of [...labels.map((names) => saved(...names)), noColumns, noRows, noRows.replace(/^.*\r\n/, '')]) {
    assert.deepEqual(await read('a.csv', text), [array(null, [2, 3], values)], text);
  }
  assert.deepEqual(await read('a.csv', ',1\r\n,2\r\n'), [array(null, [2, 2], [NaN, 1, NaN, 2])]);
  assert.deepEqual(await read('a.csv', ',\r\n1,2\r\n'), [array(null, [2, 2], [NaN, NaN, 1, 2])]);
});

test('wrong rows are refused with the line', async () => {
  await refused('a.csv', [
    ['1,2,3\n4,5,6\n\n7,8\n', 'Line 4 has the length 2, but line 1 has the length 3. All rows have the same length.'],
    [',a,b\nq0,1,2\nq1,3\n', /^Line 3 has the length 1, but line 2 has the length 2\./],
    ['1,2\n3,4x\n', 'Line 2, column 2 has "4x", which is no number.'],
    [',"a,b",c\nq0,1,2\nq1,3,?\n', 'Line 3, column 3 has "?", which is no number.'],
    ['1,2\nx,4\n', 'Line 2, column 1 has "x", which is no number.'],
    ['x\ny\n', 'Line 2, column 1 has "y", which is no number.'],
    ['0,5;0,25\n', 'Line 1, column 2 has "5;0", which is no number.'],
    ['1,2\n3,"4\n5,6\n', 'Line 2, column 2 has "\\"4", which is no number.'],
    ['hello world\n', 'The file has no numbers.'],
    ['\r\n \n', 'The file has no numbers.'],
    ['', 'The file is empty: it has 0 bytes.'],
    ['PK\x03\x04\0\0', /^It is no text, because it has a byte of 0\./],
  ]);
});

test('a file of any other name is what its content is', async () => {
  for (const content of [npyBytes('|u1', [1, 2], [1, 2]), '[[1, 2]]', '\n [[1, 2]]', '\ufeff[[1, 2]]', '1 2', '1,2']) {
    const one = [array(null, [1, 2], [1, 2], typeof content === 'string' ? 'F64' : 'U8')];
    assert.deepEqual(await read('result', content), one);
    assert.deepEqual(await read('result.v2', content), one);
  }
  assert.deepEqual(await read('result.out', ' {"a": [[1, 2]]}'), [array('a', [1, 2], [1, 2])]);
  await refused('a.npy', [['[1]', /no \.npy file/]]);
  await refused('a.safetensors', [['[1]', /no \.safetensors file/]]);
  const bool = npyBytes('|b1', [2], [1, 2]);
  await refused('a.npy', [[bool, 'Element 1 of the array is no boolean, because its byte is neither 0 nor 1.']]);
});

test('a file with more than 50 million numbers is refused', async () => {
  const limit = /^The file has more than 50 million numbers/;
  const half = 25_000_000;
  const bytes = new Uint8Array(2 * half + 1);
  await refused('a.npy', [[npyBytes('|u1', [2 * half + 1], bytes), limit]]);
  const two = { a: entry('U8', [half], 0, half), b: entry('U8', [half + 1], half, 2 * half + 1) };
  await refused('a.safetensors', [[safetensorsBytes(two, bytes), limit]]);
  // The sizes of the axes are those of the first arrays, and they are checked before the numbers are read.
  const claimed = (size) => `[${'0,'.repeat(size - 1)}0]`;
  const wide = (rows, cols) => `[${claimed(cols)}${',0'.repeat(rows - 1)}]`;
  const read = /^(array|b|y)\[1\] is "0", but /;
  const after = (count, text) => `{"a":${claimed(count)},"b":${text}}`;
  const outputs = (data) => `{"outputs":[{"name":"x","shape":[2],"data":[1,2]},{"name":"y","shape":[1],"data":${data}}]}`;
  await refused('a.json', [
    [wide(5001, 10_000), limit],
    [wide(5000, 10_000), read],
    [after(10_001, wide(4999, 10_000)), limit],
    [after(10_000, wide(4999, 10_000)), read],
    [outputs(wide(5000, 10_000)), limit],
    [outputs(wide(4999, 10_000)), read],
  ]);
});
