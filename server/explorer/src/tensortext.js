// tensortext.js reads the elements of a tensor that a file holds, and writes them as JSON. It needs no page.
//
// A tensor is {name, type, shape, data, little, fortran}. type: a key of TYPES. data: a Blob that has the elements and nothing else.
// little: whether the low byte of an element is the first. fortran: whether the first axis changes fastest; otherwise the last one does.

export const MOST_AXES = 8; // no key of a request takes more

// more: what the Error gets besides, such as the place of what is wrong.
export function fail(message, more) {
  throw Object.assign(new Error(message), more);
}

// Returns a function that returns the number which the bits of a short type stand for. A type without infinities has only the two NaN whose
// bits after the sign are all set.
function float(exponentBits, fractionBits, infinite = true) {
  const [most, parts] = [2 ** exponentBits - 1, 2 ** fractionBits];
  const bias = most >> 1;
  return (bits) => {
    const sign = bits >> (exponentBits + fractionBits) ? -1 : 1;
    const [exponent, fraction] = [(bits >> fractionBits) & most, bits & (parts - 1)];
    if (exponent === most && infinite) return fraction ? NaN : sign * Infinity;
    if (exponent === most && fraction === parts - 1) return NaN;
    return sign * (exponent ? (1 + fraction / parts) * 2 ** (exponent - bias) : (fraction / parts) * 2 ** (1 - bias));
  };
}

// Returns the entry of a type: the bytes of an element and the function that reads an element. kind: that of a DataView. made: makes a number
// of what the DataView reads.
const type = (size, kind, made = (value) => value) => [size, (view, at, little) => made(view[`get${kind}`](at, little))];

export const TYPES = {
  ...{ F64: type(8, 'Float64'), F32: type(4, 'Float32'), F16: type(2, 'Uint16', float(5, 10)), BF16: type(2, 'Uint16', float(8, 7)) },
  ...{ F8_E4M3: type(1, 'Uint8', float(4, 3, false)), F8_E5M2: type(1, 'Uint8', float(5, 2)) },
  ...{ I64: type(8, 'BigInt64'), I32: type(4, 'Int32'), I16: type(2, 'Int16'), I8: type(1, 'Int8') },
  ...{ U64: type(8, 'BigUint64'), U32: type(4, 'Uint32'), U16: type(2, 'Uint16'), U8: type(1, 'Uint8') },
  BOOL: type(1, 'Uint8', (byte) => [false, true][byte]),
};

// Returns how many elements a shape has, as a BigInt, because a damaged file may say any number.
export const countOf = (shape) => shape.reduce((count, size) => count * BigInt(size), 1n);

export const shapeText = (shape) => (shape.length ? shape.join(' × ') : 'one number');

// Returns a decimal of 6 to 9 digits that float32 reads as this number. Nine digits tell all numbers of float32 apart.
function short(value) {
  for (let digits = 6; ; digits++) {
    const found = Number(value.toPrecision(digits));
    if (digits === 9 || Math.fround(found) === value) return String(found);
  }
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
  const steps = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, size));
  for (let from = 0; from < given.length; from += size) {
    let [rest, at] = [from / size, 0];
    shape.forEach((length, axis) => {
      at += (rest % length) * steps[axis];
      rest = Math.floor(rest / length);
    });
    for (let byte = 0; byte < size; byte++) made[at + byte] = given[from + byte];
  }
  return made;
}

const tables = {}; // all numbers of each type of 16 bits, because they are slow to compute

function tableOf(read) {
  const patterns = new DataView(Uint16Array.from({ length: 65536 }, (_, bits) => bits).buffer);
  return Float32Array.from({ length: 65536 }, (_, bits) => read(patterns, 2 * bits, true));
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
    const table = (tables[type] ??= tableOf(read));
    return wide.from({ length: count }, (_, at) => table[view.getUint16(at * 2, true)]);
  }
  return wide.from({ length: count }, (_, at) => {
    const value = read(view, at * size, true);
    if (value === undefined) fail(`Element ${at} of ${name} is no boolean, because its byte is neither 0 nor 1.`);
    return Number(value);
  });
}

// Writes an array as a member of an object has it, with each row on a line. depth: how many brackets are open in it.
export function written(parts, depth, isRow) {
  if (isRow) return `[${parts.join(', ')}]`;
  const line = `\n${'  '.repeat(depth + 1)}`;
  return `[${line}${parts.join(`,${line}`)}\n${'  '.repeat(depth)}]`;
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
  let next = 0;
  const nested = (axis) => {
    if (axis === shape.length) return element(read(view, size * next++, true), isShort, where);
    const parts = [];
    for (index[axis] = 0; index[axis] < shape[axis]; index[axis]++) parts.push(nested(axis + 1));
    index.length = axis;
    return written(parts, axis + 1, axis === shape.length - 1);
  };
  const text = nested(0);
  return text.length <= room ? text : null;
}
