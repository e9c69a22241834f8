// files.test.mjs tests how the explorer reads .npy and .safetensors files. Most files are made here. The golden ones were made
// once: the .npy files by numpy.lib.format.write_array of NumPy 1.24.2, which is Debian's (2.4.6 writes the same bytes), and GOLDEN_TENSORS
// by safetensors.numpy.save of safetensors 0.8.0 from PyPI.
import assert from 'node:assert/strict';
import { File } from 'node:buffer';
import { test } from 'node:test';
import { keyOf, readFiles } from '../../../server/explorer/src/files.js';
import { parse } from '../../../server/explorer/src/jsontext.js';
import { readNpy } from '../../../server/explorer/src/npy.js';
import { readSafetensors } from '../../../server/explorer/src/safetensors.js';
import { textOf } from '../../../server/explorer/src/tensortext.js';
import { entry as tensor, npyBytes, safetensorsBytes } from '../tensorfiles.mjs';

const ROOM = 1e6;
const float = Math.fround;

const GOLDEN_NPY = {
  f4: 'k05VTVBZAQB2AHsnZGVzY3InOiAnPGY0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDMpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIArNzMw9AAAgwAAAQEAAAIBAlb9WMwAAAIA=',
  'f4 fortran big-endian version 2':
    'k05VTVBZAgB0AAAAeydkZXNjcic6ICc+ZjQnLCAnZm9ydHJhbl9vcmRlcic6IFRydWUsICdzaGFwZSc6ICgyLCAzKSwgfSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAo9zMzNQIAAAMAgAAAzVr+VQEAAAIAAAAA=',
  'f8 version 3':
    'k05VTVBZAwB0AAAAeydkZXNjcic6ICc8ZjgnLCAnZm9ydHJhbl9vcmRlcic6IEZhbHNlLCAnc2hhcGUnOiAoMiwgMiksIH0gICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAACgmZm5PwAAAAAAAATAAAAAAAAAEEAAAACg8tdqPg==',
  'f2 rank 4':
    'k05VTVBZAQB2AHsnZGVzY3InOiAnPGYyJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEsIDIsIDIsIDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAwADQANgA4ADkAOgA7',
  'bool fortran':
    'k05VTVBZAQB2AHsnZGVzY3InOiAnfGIxJywgJ2ZvcnRyYW5fb3JkZXInOiBUcnVlLCAnc2hhcGUnOiAoMiwgMiksIH0gICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoBAAAA',
  i8: 'k05VTVBZAQB2AHsnZGVzY3InOiAnPGk4JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsKSwgfSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAAAAAAgP////////9/',
};
const GOLDEN_TENSORS =
  'cAEAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJjYXVzYWwiOiJ0cnVlIiwid2luZG93IjoiWzIsIDBdIiwibm9ybWFsaXphdGlvbiI6InNvZnRtYXgifSwibGVuZ3RocyI6eyJkdHlwZSI6IlU2NCIsInNoYXBlIjpbMV0sImRhdGFfb2Zmc2V0cyI6WzAsOF19LCJRIjp7ImR0eXBlIjoiRjMyIiwic2hhcGUiOlsyLDJdLCJkYXRhX29mZnNldHMiOls4LDI0XX0sIksiOnsiZHR5cGUiOiJGMTYiLCJzaGFwZSI6WzIsMl0sImRhdGFfb2Zmc2V0cyI6WzI0LDMyXX0sIlYiOnsiZHR5cGUiOiJJOCIsInNoYXBlIjpbMiwyXSwiZGF0YV9vZmZzZXRzIjpbMzIsMzZdfSwibWFzayI6eyJkdHlwZSI6IkJPT0wiLCJzaGFwZSI6WzIsMl0sImRhdGFfb2Zmc2V0cyI6WzM2LDQwXX19IAIAAAAAAAAAAACAPwAAAEAAAEBAzczMPQA8AAAAAAA8B/gJCgEAAQE=';

const decoded = (text) => new Blob([Buffer.from(text, 'base64')]);

async function valueOf(tensor, wide = true) {
  return JSON.parse(await textOf({ name: 'M', ...tensor }, { room: ROOM, wide }));
}

const npyValue = async (file, wide) => valueOf(await readNpy(file), wide);

const npy = (...file) => new Blob([npyBytes(...file)]);
const safetensors = (header, data, name = 'all.safetensors') => new File([safetensorsBytes(header, data)], name);
const named = (blob, name) => new File([blob], name);

// Returns the elements as bytes, with the low byte first or last.
function bytesOf(size, values, write, little) {
  const view = new DataView(new ArrayBuffer(size * values.length));
  values.forEach((value, i) => write(view, i * size, value, little));
  return view;
}

const BIG = 2n ** 63n;
// The types of both formats: the name in .safetensors, that in .npy, the size, values, and how a value is written.
const TYPED = [
  ['F64', 'f8', 8, [0.1, -1e300, 5e-324], (view, at, x, little) => view.setFloat64(at, x, little)],
  ['F32', 'f4', 4, [float(0.1), float(-3e38), float(1e-45)], (view, at, x, little) => view.setFloat32(at, x, little)],
  [
    'F16',
    'f2',
    2,
    [0x3c00, 0xc500, 0x0001, 0x7bff, 0x03ff, 0x0400],
    (view, at, x, little) => view.setUint16(at, x, little),
    [1, -5, 2 ** -24, 65504, 1023 * 2 ** -24, 2 ** -14],
  ],
  [
    'BF16',
    null,
    2,
    [0x3f80, 0xc0a0, 0x7f7f, 0x0001],
    (view, at, x, little) => view.setUint16(at, x, little),
    [1, -5, 255 * 2 ** 120, 2 ** -133],
  ],
  ['F8_E4M3', null, 1, [0x38, 0xc2, 0x7e, 0x01, 0xf8], (view, at, x) => view.setUint8(at, x), [1, -2.5, 448, 2 ** -9, -256]],
  ['F8_E5M2', null, 1, [0x3c, 0xc5, 0x7b, 0x01], (view, at, x) => view.setUint8(at, x), [1, -5, 57344, 2 ** -16]],
  ['I8', 'i1', 1, [-128, 127], (view, at, x) => view.setInt8(at, x)],
  ['U8', 'u1', 1, [0, 255], (view, at, x) => view.setUint8(at, x)],
  ['I16', 'i2', 2, [-32768, 258], (view, at, x, little) => view.setInt16(at, x, little)],
  ['U16', 'u2', 2, [65535, 258], (view, at, x, little) => view.setUint16(at, x, little)],
  ['I32', 'i4', 4, [-(2 ** 31), 66051], (view, at, x, little) => view.setInt32(at, x, little)],
  ['U32', 'u4', 4, [2 ** 32 - 1, 66051], (view, at, x, little) => view.setUint32(at, x, little)],
  ['I64', 'i8', 8, [-BIG, BIG - 1n], (view, at, x, little) => view.setBigInt64(at, x, little)],
  ['U64', 'u8', 8, [2n * BIG - 1n, 258n], (view, at, x, little) => view.setBigUint64(at, x, little)],
  ['BOOL', 'b1', 1, [0, 1], (view, at, x) => view.setUint8(at, x), [false, true]],
];

test('every type is read exactly, whichever byte is the first', async () => {
  for (const [type, descr, size, values, write, expected = values] of TYPED) {
    const json = `[${expected.join(', ')}]`;
    const little = bytesOf(size, values, write, true);
    const file = safetensors({ M: tensor(type, [values.length], 0, little.byteLength) }, little);
    const { tensors } = await readSafetensors(file, ROOM);
    assert.equal(await textOf(tensors[0], { room: ROOM, wide: true }), json, type);
    for (const order of descr ? '<>|=' : '') {
      const read = await readNpy(npy(order + descr, [values.length], bytesOf(size, values, write, order !== '>')));
      assert.equal(await textOf({ name: 'M', ...read }, { room: ROOM, wide: true }), json, order + descr);
    }
  }
});

test('decimals of at most nine digits are the same numbers in float32', async () => {
  let seed = 7;
  const random = () => (seed = (seed * 48271) % 2147483647);
  const bits = Uint32Array.from({ length: 20000 }, () => (random() ^ (random() << 8)) & 0xbfffffff);
  const values = [...new Float32Array(bits.buffer)];
  const data = bytesOf(4, values, (view, at, x) => view.setFloat32(at, x, true));
  const text = await textOf({ name: 'M', type: 'F32', shape: [values.length], data: new Blob([data]) }, { room: ROOM, wide: false });
  const read = JSON.parse(text);
  read.forEach((value, i) => assert.ok(Object.is(float(value), values[i]), `${values[i]}`));
  for (const number of text.slice(1, -1).split(', ')) {
    const digits = number.replace(/e.*/, '').replace(/\D/g, '').replace(/^0+/, '').replace(/0+$/, '');
    assert.ok(digits.length <= 9, number);
  }
  const [tenth] = await valueOf({ type: 'F32', shape: [1], data: new Blob([new Float32Array([0.1])]) }, false);
  const [exact] = await valueOf({ type: 'F32', shape: [1], data: new Blob([new Float32Array([0.1])]) }, true);
  assert.deepEqual([tenth, exact], [0.1, float(0.1)]);
});

test('files of NumPy are read: versions, orders, ranks', async () => {
  const matrix = [
    [0.1, -2.5, 3],
    [4, 5e-8, -0],
  ];
  const golden = (name, wide) => npyValue(decoded(GOLDEN_NPY[name]), wide);
  assert.deepEqual(await golden('f4', false), matrix);
  assert.deepEqual(await golden('f4 fortran big-endian version 2', false), matrix);
  assert.deepEqual(await golden('f8 version 3'), [
    [float(0.1), -2.5],
    [4, float(5e-8)],
  ]);
  assert.deepEqual(await golden('f2 rank 4'), [
    [
      [
        [0, 0.125],
        [0.25, 0.375],
      ],
      [
        [0.5, 0.625],
        [0.75, 0.875],
      ],
    ],
  ]);
  assert.deepEqual(await golden('bool fortran'), [
    [true, false],
    [false, false],
  ]);
  const { data } = await readNpy(decoded(GOLDEN_NPY.i8));
  assert.equal(await textOf({ name: 'M', type: 'I64', shape: [2], data }, { room: ROOM }), '[-9223372036854775808, 9223372036854775807]');
});

test('Fortran order of rank 3 and 4 is turned round', async () => {
  for (const shape of [[2, 3, 4], [2, 1, 3, 2], [3], [1, 1]]) {
    const count = shape.reduce((a, b) => a * b);
    const strides = shape.map((_, axis) => shape.slice(0, axis).reduce((a, b) => a * b, 1));
    const nested = (axis, at) =>
      axis === shape.length ? at : Array.from({ length: shape[axis] }, (_, i) => nested(axis + 1, at + i * strides[axis]));
    const data = Uint8Array.from({ length: count }, (_, i) => i);
    assert.deepEqual(await npyValue(npy('|u1', shape, data, { fortran: true })), nested(0, 0), String(shape));
  }
});

test('a header of NumPy may have its keys in any order', async () => {
  const header = `{"shape":(1,2),"descr":"|u1",'fortran_order':False}`;
  assert.deepEqual(await npyValue(npy('', [], Uint8Array.of(5, 6), { header })), [[5, 6]]);
});

test('a wrong .npy file is refused with the rule', async () => {
  const two = new Uint8Array(2);
  const whole = npy('|u1', [2], two);
  const wrong = [
    [new Blob([]), /no \.npy file/],
    [new Blob(['PK\x03\x04 zip of arrays']), /no \.npy file/],
    [whole.slice(0, 8), /cut: it has 8 bytes/],
    [whole.slice(0, 40), /cut: its header has \d+ bytes, and 30 bytes follow/],
    [whole.slice(0, whole.size - 1), /shape 2 of U8 needs 2 bytes, and the file has 1/],
    [new Blob([whole, 'x']), /needs 2 bytes, and the file has 3/],
    [npy('|u1', [2], two, { major: 4 }), /version 4\.0/],
    [npy('|u1', [2], two, { major: 0 }), /version 0\.0/],
    [npy('|u1', [2], two, { minor: 1 }), /version 1\.1/],
    [npy('<c8', [2], two), /type <c8/],
    [npy('<f16', [2], two), /type <f16/],
    [npy('<f1', [2], two), /type <f1/],
    [npy('<b2', [2], two), /type <b2/],
    [npy('|O', [2], two), /type \|O/],
    [npy('', [], two, { header: `{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}` }), /records/],
    [npy('', [], two, { header: `{'descr': '|u1', 'shape': (2,)}` }), /no fortran_order/],
    [npy('', [], two, { header: `{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}` }), /no shape/],
    [npy('', [], two, { header: `{'descr': '|u1', 'fortran_order': False, 'shape': (1,,2)}` }), /none of NumPy's/],
    [npy('', [], two, { header: `{'descr': '|u1', 'fortran_order': False, 'shape': (2,), 'more': 1}` }), /none of NumPy's/],
    [npy('|u1', [], two.slice(1)), /0 axes/],
    [npy('|u1', [1, 1, 1, 1, 2], two), /5 axes/],
    [npy('<f8', ['9223372036854775808'], two), /needs 73786976294838206464 bytes/],
    [npy('', [], two, { major: 2, header: ' '.repeat(10_001) }), /10001 bytes/],
  ];
  for (const [file, message] of wrong) {
    await assert.rejects(() => readNpy(file), { message });
  }
});

test('what is just at a limit is read, and what is one above is refused', async () => {
  const axes = (count) => valueOf({ type: 'U8', shape: Array(count).fill(1), data: new Blob([Uint8Array.of(7)]) });
  assert.equal((await axes(8)).flat(8)[0], 7);
  await assert.rejects(() => axes(9), /9 axes/);
  const usual = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}";
  const headed = (size) => readNpy(npy('', [], Uint8Array.of(7), { header: usual.padEnd(size) }));
  assert.deepEqual((await headed(10_000)).shape, [1]);
  await assert.rejects(() => headed(10_001), /10001 bytes/);
  const text = JSON.stringify({ M: tensor('U8', [1], 0, 1) });
  const room = (most) => readSafetensors(safetensors(text, Uint8Array.of(7)), most);
  assert.equal((await room(text.length)).tensors.length, 1);
  await assert.rejects(() => room(text.length - 1), /too much for this page/);
  const size = (most) => readSafetensors(safetensors({ M: tensor('U8', [0, most], 0, 0) }), ROOM);
  assert.equal((await size(2 ** 48 - 1)).tensors.length, 1);
  await assert.rejects(() => size(2 ** 48), /no list of whole numbers/);
});

test('elements that JSON does not have are refused with their place; −∞ is null', async () => {
  const of = (shape, values) => valueOf({ name: 'Q', type: 'F64', shape, data: new Blob([new Float64Array(values)]) });
  await assert.rejects(() => of([2, 2], [1, 2, 3, NaN]), /Q\[1\]\[1\] is NaN/);
  await assert.rejects(() => of([3], [1, 2, Infinity]), /Q\[2\] is Infinity/);
  await assert.rejects(() => of([2, 0], []), /at least one row/);
  assert.deepEqual(await of([2], [1, -Infinity]), [1, null]);
  assert.ok(Object.is((await of([1], [-0]))[0], -0));
  const bool = { name: 'mask', type: 'BOOL', shape: [2, 1], data: new Blob([Uint8Array.of(1, 2)]) };
  await assert.rejects(() => valueOf(bool), /mask\[1\]\[0\] is no boolean/);
  await assert.rejects(() => of(new Array(9).fill(1), [1]), /9 axes/);
});

test('each row is on a line, as the page writes them; a scalar is a number', async () => {
  const write = (shape, values) => textOf({ name: 'M', type: 'U8', shape, data: new Blob([Uint8Array.from(values)]) }, { room: ROOM });
  assert.equal(await write([2, 2], [1, 2, 3, 4]), '[\n    [1, 2],\n    [3, 4]\n  ]');
  assert.equal(await write([1, 2, 1], [1, 2]), '[\n    [\n      [1],\n      [2]\n    ]\n  ]');
  assert.equal(await write([], [7]), '7');
});

test('a text that is too long is not made', async () => {
  const of = (rows, cols, room) =>
    textOf({ type: 'U8', shape: [rows, cols], data: new Blob([new Uint8Array(rows * cols).fill(100)]) }, { room });
  const text = await of(100, 100, ROOM);
  assert.equal(await of(100, 100, text.length), text);
  assert.equal(await of(100, 100, text.length - 1), null);
  const far = { type: 'F32', shape: [2 ** 40, 2 ** 40], data: { arrayBuffer: () => assert.fail('the data was read') } };
  assert.equal(await textOf(far, { room: ROOM }), null);
});

test('a file of safetensors is a request: its tensors are matrices and its metadata options', async () => {
  const { text, note } = await readFiles([named(decoded(GOLDEN_TENSORS), 'qkv.safetensors')], '');
  assert.deepEqual(parse(text), {
    causal: true,
    window: [2, 0],
    normalization: 'softmax',
    Q: [
      [1, 2],
      [3, 0.1],
    ],
    K: [
      [1, 0],
      [0, 1],
    ],
    V: [
      [7, -8],
      [9, 10],
    ],
    mask: [
      [true, false],
      [true, true],
    ],
    lengths: [2],
  });
  assert.deepEqual(Object.keys(parse(text)).slice(-5), ['Q', 'K', 'V', 'mask', 'lengths']);
  assert.match(note, /^qkv\.safetensors is/);
});

test('float64 asks for float64 at the beginning, unless the file says a dtype', async () => {
  const data = new Float64Array([0.1]);
  const entries = { Q: tensor('F64', [1, 1], 0, 8) };
  const request = async (metadata) => (await readFiles([safetensors({ __metadata__: metadata, ...entries }, data)], '')).text;
  assert.deepEqual(Object.entries(parse(await request({ scale: '1' })))[0], ['dtype', 'float64']);
  assert.deepEqual(Object.entries(parse(await request({ scale: '1', dtype: 'float32' })))[0], ['dtype', 'float32']);
  const { text } = await readFiles([safetensors({ Q: tensor('F32', [1, 1], 0, 4) }, new Float32Array([0.1]))], '');
  assert.deepEqual(parse(text), { Q: [[0.1]] });
});

test('names that objects have already are names like others', async () => {
  const header = '{"__proto__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"toString":"a \\"b\\""}}';
  const { text } = await readFiles([safetensors(header, Uint8Array.of(3))], '');
  assert.equal(text, '{\n  "toString": "a \\"b\\"",\n  "__proto__": [3]\n}\n');
});

test('a wrong .safetensors file is refused with the tensor and the rule', async () => {
  const four = new Uint8Array(4);
  const Q = tensor('U8', [4], 0, 4);
  const good = safetensors({ Q }, four);
  const length = (value) => {
    const bytes = Buffer.alloc(16);
    bytes.writeBigUInt64LE(value);
    return new File([bytes], 'a.safetensors');
  };
  const wrong = [
    [good.slice(0, 7), /at least 8 bytes, and this one has 7/],
    [length(100_000_001n), /the most are 100000000/],
    [length(2n ** 63n), /9223372036854775808 bytes; the most/],
    [length(9n), /cut: its header has 9 bytes, but only 8/],
    [good.slice(0, good.size - 1), /cut: the tensor Q ends at byte 4, but only 3/],
    [new Blob([good, 'x']), /1 bytes after its last tensor/],
    [safetensors({}, four), /4 bytes after its last tensor/],
    [safetensors(' {}'), /does not begin with \{/],
    [safetensors('\ufeff{}'), /does not begin with \{/],
    [safetensors(''), /does not begin with \{/],
    [safetensors('{"Q"'), /not JSON/],
    [safetensors({ Q: 3 }, four), /tensor Q has no dtype/],
    [safetensors({ Q: tensor('F8_E8M0', [4], 0, 4) }, four), /tensor Q has the type F8_E8M0/],
    [safetensors({ Q: tensor('toString', [4], 0, 4) }, four), /tensor Q has the type toString/],
    [safetensors({ Q: tensor('U8', [-4], 0, 4) }, four), /shape of the tensor Q/],
    [safetensors({ Q: tensor('U8', [1.5], 0, 4) }, four), /shape of the tensor Q/],
    [safetensors({ Q: tensor('U8', 4, 0, 4) }, four), /shape of the tensor Q/],
    [safetensors('{"Q":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]}}', four), /shape of the tensor Q/],
    [safetensors({ Q: tensor('U8', [2 ** 32, 2 ** 31], 0, 4) }, four), /Q has 4 bytes, .* needs 9223372036854775808/],
    [safetensors({ Q: tensor('U8', [2 ** 32, 2 ** 32], 0, 0) }, new Uint8Array(0)), /needs 18446744073709551616/],
    [safetensors({ Q: tensor('F32', [4], 0, 4) }, four), /tensor Q has 4 bytes, but its shape 4 of F32 needs 16/],
    [safetensors({ Q: { ...Q, data_offsets: [0] } }, four), /data_offsets of the tensor Q/],
    [safetensors({ Q: { ...Q, data_offsets: [0, -4] } }, four), /data_offsets of the tensor Q/],
    [safetensors({ Q: { ...Q, data_offsets: [0, 2 ** 48] } }, four), /data_offsets of the tensor Q/],
    [safetensors({ Q: tensor('U8', [2], 0, 2), K: tensor('U8', [3], 1, 4) }, four), /tensor K begins at byte 1, .* ends at 2: .* overlap/],
    [safetensors({ Q: tensor('U8', [1], 0, 1), K: tensor('U8', [2], 2, 4) }, four), /tensor K begins at byte 2, .* ends at 1: .* gap/],
    [safetensors({ Q: tensor('U8', [2], 2, 4) }, four), /tensor Q begins at byte 2, .* gap/],
    [safetensors({ Q, K: { ...Q, data_offsets: [4, 0] } }, four), /tensor K ends at byte 0, before it begins/],
    [safetensors({ __metadata__: [], Q }, four), /__metadata__ is no object/],
    [safetensors({ __metadata__: { scale: 1 }, Q }, four), /scale is no string/],
    [safetensors(`{"Q":${JSON.stringify(Q)},"Q":${JSON.stringify(Q)}}`, four), /Q stands twice/],
    [safetensors('{"__metadata__":{"scale":"1","scale":"2"}}'), /scale stands twice/],
    [new Blob([Buffer.from([2, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0xff])]), /not UTF-8/],
  ];
  for (const [file, message] of wrong) {
    await assert.rejects(() => readSafetensors(file, ROOM), { message });
  }
  const both = safetensors({ __metadata__: { Q: '1' }, Q }, four);
  await assert.rejects(() => readFiles([both], ''), /Q is the name of a tensor/);
  assert.equal((await readSafetensors(good, ROOM)).tensors.length, 1);
});

test('tensors may lie in any order, and spaces may follow the header', async () => {
  const header = JSON.stringify({ Q: tensor('U8', [2], 2, 4), K: tensor('U8', [2], 0, 2) });
  const { text } = await readFiles([safetensors(`${header}     `, Uint8Array.of(1, 2, 3, 4))], '');
  assert.deepEqual(parse(text), { Q: [3, 4], K: [1, 2] });
});

test('the name of a .npy file is its key', () => {
  const names = { 'Q.npy': 'Q', 'q.npy': 'Q', 'W_Q.NPY': 'W_Q', 'past_k.npy': 'past_K', 'mask.npy': 'mask', 'Q2.npy': undefined };
  for (const [name, key] of Object.entries(names)) assert.equal(keyOf(name), key, name);
});

test('one .npy file is a member of the request, and several are a new request', async () => {
  const row = (descr, array, name) => named(npy(descr, [1, 2], array), name);
  const Q = row('<f4', new Float32Array([0.1, 2]), 'Q.npy');
  const { key, value, note } = await readFiles([Q], '{"K": [[1]]}');
  assert.deepEqual([key, JSON.parse(value), note], ['Q', [[0.1, 2]], 'Q.npy (F32, 1 × 2) is Q now.']);
  assert.deepEqual(JSON.parse((await readFiles([Q], '{"dtype": "float64"}')).value), [[float(0.1), 2]]);
  const wide = await readFiles([row('<f8', new Float64Array([0.1, 2]), 'k.npy')], '{}');
  assert.equal(wide.key, 'K');
  assert.match(wide.note, /computes in float32/);
  const both = await readFiles([Q, row('|u1', Uint8Array.of(3, 4), 'K.npy')], '{"X": [[1]]}');
  assert.deepEqual(parse(both.text), { Q: [[0.1, 2]], K: [[3, 4]] });
  assert.equal(both.note, 'Q (F32, 1 × 2), K (U8, 1 × 2) are the request now.');
  await assert.rejects(() => readFiles([Q], '{"K": '), /no JSON object/);
  await assert.rejects(() => readFiles([Q, row('|u1', Uint8Array.of(3, 4), 'q.npy')], '{}'), /Two files are Q/);
  await assert.rejects(() => readFiles([Q, safetensors({})], '{}'), /several \.npy files/);
  await assert.rejects(() => readFiles([Q, named(new Blob(['no']), 'K.npy')], '{}'), /^Error: K\.npy: It is no \.npy file/);
});

test('long matrices are held as bytes, and what stands for them says their file, type and shape', async () => {
  const shape = [2000, 100];
  const data = Uint8Array.from({ length: 200_002 }, (_, i) => i % 251);
  const header = { W_Q: tensor('U8', shape, 0, 200_000), b_Q: tensor('U8', [2], 200_000, 200_002), __metadata__: { heads: '8' } };
  const { text, tensors } = await readFiles([safetensors(header, data, "it's.safetensors")], '');
  const standing = { file: "it's.safetensors", tensor: 'W_Q', dtype: 'U8', shape };
  assert.deepEqual(parse(text), { heads: 8, W_Q: standing, b_Q: [data[200_000], data[200_001]] });
  assert.deepEqual([...tensors.keys()], [JSON.stringify(standing)]);
  assert.deepEqual(new Uint8Array(await tensors.get(JSON.stringify(standing)).arrayBuffer()), data.slice(0, 200_000));
  // The bytes of a matrix whose columns follow each other, and whose high bytes are the first, are turned round.
  const float = Float32Array.from({ length: 200_000 }, (_, i) => i / 7);
  const columns = Buffer.from(Float32Array.from(float, (_, i) => float[(i % 2000) * 100 + Math.floor(i / 2000)]).buffer).swap32();
  const one = await readFiles([named(npy('>f4', shape, columns, { fortran: true }), 'X.npy')], '{"W_Q": [[1]]}');
  assert.deepEqual([one.key, JSON.parse(one.value)], ['X', { file: 'X.npy', dtype: 'F32', shape }]);
  assert.deepEqual(new Float32Array(await one.tensors.get(one.value.replace(/(?<=[:,]) /g, '')).arrayBuffer()), float);
  // A name with a dot is no key of JSON.
  const dotted = await readFiles([safetensors({ 'expected.output': tensor('U8', [1], 0, 1) }, [3])], '');
  assert.deepEqual(parse(dotted.text)['expected.output'].shape, [1]);
});
