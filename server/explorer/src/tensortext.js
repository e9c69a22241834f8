// tensortext.js writes the elements of a tensor that a file holds as JSON. It needs no page.
//
// A tensor is {name, type, shape, data, little, fortran}. type: a key of TYPES. data: a Blob that has the elements and nothing else.
// little: whether the low byte of an element is the first. fortran: whether the first axis changes fastest; otherwise the last one does.

const SLICE = 8; // milliseconds of work before the page gets its turn
const OFTEN = 2048; // elements from one look at the clock to the next
const MOST_AXES = 8; // no key of a request takes more

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

// Makes a function that writes the element at a byte. index: where the element is, for messages.
function elementWriter({ name, type, little = true }, view, index, wide) {
  const read = TYPES[type][1];
  const isShort = type !== 'F64' && !wide;
  const where = () => name + index.map((at) => `[${at}]`).join('');
  return (at) => element(read(view, at, little), isShort, where);
}

// Resolves to the elements of a tensor as JSON, with each row on a line, as a member of an object has them. Resolves to null if they need
// more than `room` characters. wide: whether the service reads the numbers as float64. Otherwise it reads float32, for which shorter
// decimals do. Throws an Error with a sentence if the elements cannot be in a request.
export async function textOf(tensor, { room, wide }) {
  const { name, type, shape, data, fortran = false } = tensor;
  if (shape.length > MOST_AXES) fail(`${name} has ${shape.length} axes, and a matrix has at most ${MOST_AXES}.`);
  if (shape.includes(0)) fail(`${name} has the shape ${shapeText(shape)}, and a matrix has at least one row and one column.`);
  if (countOf(shape) * 3n > room + 2) return null; // a digit, a comma and a space
  const index = shape.map(() => 0);
  const write = elementWriter(tensor, new DataView(await data.arrayBuffer()), index, wide);
  if (!shape.length) return write(0);
  const steps = shape.map((_, axis) => (fortran ? shape.slice(0, axis) : shape.slice(axis + 1)).reduce((a, b) => a * b, TYPES[type][0]));
  const last = shape.length - 1;
  const line = (depth) => `\n${'  '.repeat(depth + 1)}`;
  let until = performance.now() + SLICE;
  let written = 0;
  let left = OFTEN;

  async function look() {
    left = OFTEN;
    if (performance.now() <= until) return;
    await new Promise((resolve) => setTimeout(resolve));
    until = performance.now() + SLICE;
  }

  // Resolves to the array of an axis that begins at a byte, or to null if there is no more room.
  async function nested(axis, base) {
    const parts = [];
    for (index[axis] = 0; index[axis] < shape[axis] && written <= room; index[axis]++) {
      const at = base + index[axis] * steps[axis];
      const part = axis === last ? write(at) : await nested(axis + 1, at);
      parts.push(part);
      if (axis === last) written += part.length + 2;
      if (--left === 0) await look();
    }
    return axis === last ? `[${parts.join(', ')}]` : `[${line(axis + 1)}${parts.join(`,${line(axis + 1)}`)}${line(axis)}]`;
  }

  const text = await nested(0, 0);
  return text.length <= room ? text : null;
}
