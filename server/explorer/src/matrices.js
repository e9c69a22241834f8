// Answers as matrices of numbers: nested arrays to one Float64Array for each batch item and head. Pure, for the worker and tests.

// null is -Infinity.
function flat(rows) {
  const cols = rows[0].length;
  const data = new Float64Array(rows.length * cols);
  let at = 0;
  for (const row of rows) {
    for (const value of row) data[at++] = value ?? -Infinity;
  }
  return measured({ rows: rows.length, cols, data });
}

// The matrix with the least and the largest finite number, how many are masked and which (bits, null if none is), and the largest
// number of each row, 0 at least: what the page would else have to go through a million numbers for.
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
      if (value > hi) hi = value;
      if (value > largest[row]) largest[row] = value;
    }
  }
  const bits = masked ? new Uint8Array(data.length) : null;
  for (let at = 0; masked && at < data.length; at++) bits[at] = data[at] === -Infinity ? 1 : 0;
  return { ...matrix, lo: lo === Infinity ? 0 : lo, hi: hi === -Infinity ? 0 : hi, masked, bits, largest };
}

function rank(value) {
  let count = 0;
  for (; Array.isArray(value); value = value[0]) count++;
  return count;
}

// [batch][head] -> matrix, whatever axes stand in front.
export function matrices(value, batched) {
  const items = batched ? value : [value];
  return items.map((item) => (rank(item) === 3 ? item.map(flat) : [flat(item)]));
}

// [batch][head] -> numbers, one for each query.
export function vectors(value, batched) {
  const items = batched ? value : [value];
  return items.map((item) => (rank(item) === 2 ? item : [item]).map((row) => Float64Array.from(row, (x) => x ?? -Infinity)));
}

// Heads that stand side by side in the columns, as [batch][head].
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
