// tensortext.js reads the elements of a tensor that a file holds, and writes them as JSON. It needs no page.
//
// A tensor is {name, type, shape, data, little, fortran}. type: a key of TYPES. data: a Blob that has the elements and nothing else.
// little: whether the low byte of an element is the first. fortran: whether the first axis changes fastest; otherwise the last one does.

export const MOST_AXES = 8; // no key of a request takes more

export const fail = (message) => {
  throw new Error(message);
};

// Returns the float32 number that half-precision bits stand for.
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

// Returns the float32 number whose upper half is these bits.
function brain(bits) {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, bits);
  return view.getFloat32(0);
}

// Returns the number that the bits of float8_e4m3fn stand for. It has no infinity, and one NaN for each sign.
function e4m3(bits) {
  const sign = bits & 0x80 ? -1 : 1;
  const exponent = (bits >> 3) & 15;
  if ((bits & 0x7f) === 0x7f) return NaN;
  return sign * (exponent ? (8 + (bits & 7)) * 2 ** (exponent - 10) : (bits & 7) * 2 ** -9);
}

// The types, each with the bytes of an element and the function that reads an element.
export const TYPES = {
  F64: [8, (view, at, little) => view.getFloat64(at, little)],
  F32: [4, (view, at, little) => view.getFloat32(at, little)],
  F16: [2, (view, at, little) => half(view.getUint16(at, little))],
  BF16: [2, (view, at, little) => brain(view.getUint16(at, little))],
  F8_E4M3: [1, (view, at) => e4m3(view.getUint8(at))],
  F8_E5M2: [1, (view, at) => half(view.getUint8(at) << 8)],
  I64: [8, (view, at, little) => view.getBigInt64(at, little)],
  I32: [4, (view, at, little) => view.getInt32(at, little)],
  I16: [2, (view, at, little) => view.getInt16(at, little)],
  I8: [1, (view, at) => view.getInt8(at)],
  U64: [8, (view, at, little) => view.getBigUint64(at, little)],
  U32: [4, (view, at, little) => view.getUint32(at, little)],
  U16: [2, (view, at, little) => view.getUint16(at, little)],
  U8: [1, (view, at) => view.getUint8(at)],
  BOOL: [1, (view, at) => [false, true][view.getUint8(at)]],
};

// Returns how many elements a shape has, as a BigInt, because a damaged file may say any number.
export const countOf = (shape) => shape.reduce((count, size) => count * BigInt(size), 1n);

export const shapeText = (shape) => (shape.length ? shape.join(' × ') : 'one number');

// Returns a decimal of 6 to 9 digits that float32 reads as this number. Nine digits tell all numbers of float32 apart.
function short(value) {
  for (let digits = 6; digits < 9; digits++) {
    const found = Number(value.toPrecision(digits));
    if (Math.fround(found) === value) return String(found);
  }
  return String(Number(value.toPrecision(9)));
}

// Writes an element. JSON has no infinity; the service reads null as −∞ where a key allows it.
function element(value, isShort, where) {
  if (value === undefined) fail(`${where()} is no boolean, because its byte is neither 0 nor 1.`);
  if (typeof value !== 'number') return String(value);
  if (value === -Infinity) return 'null';
  if (!Number.isFinite(value)) fail(`${where()} is ${value}, and JSON has no such number.`);
  if (Object.is(value, -0)) return '-0';
  return isShort && !(Number.isInteger(value) && Math.abs(value) < 1e6) ? short(value) : String(value);
}

// Resolves to the bytes of a tensor in row-major order, with the low byte of each element first.
export async function straight({ type, shape, data, little = true, fortran = false }) {
  const [size] = TYPES[type];
  const given = new Uint8Array(await data.arrayBuffer());
  if (!little) for (let at = 0; at < given.length; at += size) given.subarray(at, at + size).reverse();
  if (!fortran || shape.length < 2) return given;
  const made = new Uint8Array(given.length);
  let from = 0;
  // The last axis is the outermost one of the file.
  const place = (axis, at, step) => {
    if (axis < 0) {
      for (let byte = 0; byte < size; byte++) made[at + byte] = given[from++];
    } else {
      for (let index = 0; index < shape[axis]; index++) place(axis - 1, at + index * step[axis], step);
    }
  };
  const steps = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, size));
  place(shape.length - 1, 0, steps);
  return made;
}

// Returns the numbers of straight bytes: a Float32Array, if its type holds them, or a Float64Array. Throws an Error for a boolean that is
// none. name: what the tensor is called then.
export function numbersOf(type, bytes, name) {
  const [size, read] = TYPES[type];
  const count = bytes.length / size;
  const Own = { F64: Float64Array, F32: Float32Array }[type];
  if (Own) return bytes.byteOffset % size ? new Own(bytes.slice().buffer) : new Own(bytes.buffer, bytes.byteOffset, count);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const wide = /64|32/.test(type) ? Float64Array : Float32Array;
  if (type.endsWith('F16')) {
    const bits = new DataView(new ArrayBuffer(2)); // a table has all numbers of 16 bits, because they are slow to compute
    const table = Float32Array.from({ length: 65536 }, (_, pattern) => {
      bits.setUint16(0, pattern);
      return read(bits, 0, false);
    });
    return wide.from({ length: count }, (_, at) => table[view.getUint16(at * 2, true)]);
  }
  return wide.from({ length: count }, (_, at) => {
    const value = read(view, at * size, true);
    if (value === undefined) fail(`Element ${at} of ${name} is no boolean, because its byte is neither 0 nor 1.`);
    return Number(value);
  });
}

// Resolves to the elements of a tensor as JSON, with each row on a line, as a member of an object has them. Resolves to null if they need
// more than `room` characters. wide: whether the service reads the numbers as float64. Otherwise it reads float32, for which shorter
// decimals do. Throws an Error with a sentence if the elements cannot be in a request.
export async function textOf(tensor, { room, wide }) {
  const { name, type, shape } = tensor;
  if (shape.length > MOST_AXES) fail(`${name} has ${shape.length} axes, and a matrix has at most ${MOST_AXES}.`);
  if (shape.includes(0)) fail(`${name} has the shape ${shapeText(shape)}, and a matrix has at least one row and one column.`);
  if (countOf(shape) * 3n > room + 2) return null; // a digit, a comma and a space
  const [size, read] = TYPES[type];
  const view = new DataView((await straight(tensor)).buffer);
  const isShort = type !== 'F64' && !wide;
  const index = [];
  const where = () => name + index.map((at) => `[${at}]`).join('');
  const line = (depth) => `\n${'  '.repeat(depth + 1)}`;
  let next = 0;
  const nested = (axis) => {
    if (axis === shape.length) return element(read(view, size * next++, true), isShort, where);
    const parts = [];
    for (index[axis] = 0; index[axis] < shape[axis]; index[axis]++) parts.push(nested(axis + 1));
    index.length = axis;
    if (axis === shape.length - 1) return `[${parts.join(', ')}]`;
    return `[${line(axis + 1)}${parts.join(`,${line(axis + 1)}`)}${line(axis)}]`;
  };
  const text = nested(0);
  return text.length <= room ? text : null;
}
