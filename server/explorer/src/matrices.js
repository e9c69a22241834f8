// matrices.js turns the nested arrays of an answer into one Float64Array for each batch item and head. It needs no page.

// Makes a matrix of rows. null becomes -Infinity.
function flat(rows) {
  const cols = rows[0].length;
  const data = new Float64Array(rows.length * cols);
  let at = 0;
  for (const row of rows) {
    for (const value of row) data[at++] = value ?? -Infinity;
  }
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

// Returns how many axes nested arrays have.
export function rank(value) {
  let count = 0;
  for (; Array.isArray(value); value = value[0]) count++;
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

// Splits matrices whose columns hold all heads side by side. Returns them as [batch][head].
export function split(groups, heads) {
  return groups.map(([matrix]) => {
    const { rows, data } = matrix;
    const cols = matrix.cols / heads;
    return Array.from({ length: heads }, (_, head) => {
      const part = new Float64Array(rows * cols);
      for (let row = 0; row < rows; row++) {
        const from = row * matrix.cols + head * cols;
        part.set(data.subarray(from, from + cols), row * cols);
      }
      return measured({ rows, cols, data: part });
    });
  });
}
