// matrices.js turns the nested arrays of an answer into one typed array for each batch item and head. It needs no page.

// Returns numbers in row-major order as nested arrays, whose rows are parts of their memory.
export function nested(data, shape) {
  if (shape.length < 2) return shape.length ? data : data[0];
  const [count, ...rest] = shape;
  const size = data.length / count;
  return Array.from({ length: count }, (_, at) => nested(data.subarray(at * size, (at + 1) * size), rest));
}

// Makes a matrix of rows. null becomes -Infinity. Rows that are parts of one memory stay there.
function flat(rows) {
  const cols = rows[0].length;
  if (ArrayBuffer.isView(rows[0])) {
    const { constructor: Numbers, buffer, byteOffset } = rows[0];
    return measured({ rows: rows.length, cols, data: new Numbers(buffer, byteOffset, rows.length * cols) });
  }
  const data = new Float64Array(rows.length * cols);
  let at = 0;
  for (const row of rows) for (const value of row) data[at++] = value ?? -Infinity;
  return measured({ rows: rows.length, cols, data });
}

// Adds to a matrix what the page would otherwise have to find among a million numbers: the smallest and the largest finite number (lo, hi),
// how many cells are masked, which ones (bits, or null if none is), and the largest number of each row, but at least 0.
export function measured(matrix) {
  const { rows, cols, data } = matrix;
  const largest = new Float64Array(rows);
  let lo = Infinity;
  let hi = -Infinity;
  let masked = 0;
  for (let row = 0; row < rows; row++) {
    for (let at = row * cols; at < (row + 1) * cols; at++) {
      const value = data[at];
      if (value === -Infinity) {
        masked++;
        continue;
      }
      if (value < lo) lo = value;
      if (value > hi && value < Infinity) hi = value;
      if (value > largest[row]) largest[row] = value;
    }
  }
  const bits = masked ? new Uint8Array(data.length) : null;
  for (let at = 0; masked && at < data.length; at++) bits[at] = data[at] === -Infinity ? 1 : 0;
  return { ...matrix, lo: lo === Infinity ? 0 : lo, hi: hi === -Infinity ? 0 : hi, masked, bits, largest };
}

const isList = (value) => Array.isArray(value) || ArrayBuffer.isView(value);

export function rank(value) {
  let count = 0;
  for (; isList(value); value = value[0]) count++;
  return count;
}

// Returns the batch items of an array, whose first `axes` axes are those of the batch.
const itemsOf = (value, axes) => (axes ? value.flat(axes - 1) : [value]);

// Returns matrices as [batch][head]. The axis of heads may be absent.
export function matrices(value, axes) {
  const items = itemsOf(value, axes);
  return items.map((item) => (rank(item) === 3 ? item.map(flat) : [flat(item)]));
}

// Returns vectors with a number for each query, as [batch][head].
export function vectors(value, axes) {
  const items = itemsOf(value, axes);
  return items.map((item) => (rank(item) === 2 ? item : [item]).map((row) => Float64Array.from(row, (x) => x ?? -Infinity)));
}

// Returns so many columns of a matrix, the first of them at `from`.
export function columns(matrix, from, count) {
  const data = new matrix.data.constructor(matrix.rows * count);
  for (let row = 0; row < matrix.rows; row++) {
    const start = row * matrix.cols + from;
    data.set(matrix.data.subarray(start, start + count), row * count);
  }
  return measured({ rows: matrix.rows, cols: count, data });
}

// Splits matrices whose columns hold all heads side by side. Returns them as [batch][head].
export const split = (groups, heads) =>
  groups.map(([matrix]) => {
    const count = matrix.cols / heads;
    return Array.from({ length: heads }, (_, head) => columns(matrix, head * count, count));
  });

export const rowOf = ({ cols, data }, row) => data.subarray(row * cols, (row + 1) * cols);
