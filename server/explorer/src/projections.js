// projections.js gives the weight matrices of a request as matrices for X W, one for each head, because no answer repeats them. It needs no
// page.
import { matrices, measured, rank, split } from './matrices.js';

const WEIGHTS = ['W_Q', 'W_K', 'W_V', 'W_O'];
const MOST = 200_000; // numbers of a drawn matrix that the page asks for

export function transposed({ rows, cols, data }) {
  const turned = new Float64Array(data.length);
  for (let row = 0; row < rows; row++) for (let col = 0; col < cols; col++) turned[col * rows + row] = data[row * cols + col];
  return measured({ rows: cols, cols: rows, data: turned });
}

// Returns a weight matrix of a request as [1][head], or null if it is not given in numbers. value: its numbers, from the request or drawn.
export function weightOf(name, value, body, heads) {
  if (!Array.isArray(value) || !Array.isArray(value[0])) return null;
  const all = rank(value) === 3 ? value : [value];
  const found = matrices(all, 0)[0].map(body.weight_layout === 'out_in' ? transposed : (matrix) => matrix);
  if (name === 'W_O') return found.length > 1 ? null : [found];
  const count = name === 'W_Q' ? body.heads : (body.kv_heads ?? body.heads);
  const packed = found.length === 1 && Number.isInteger(count) && count > 1 && heads > 1 && found[0].cols % count === 0;
  return packed ? split([found], count) : [found];
}

// Returns all weight matrices that a request gives in numbers, by name. heads: how many heads the answer has.
export function givenWeights(body, heads) {
  const found = {};
  for (const name of WEIGHTS) {
    const own = name !== 'W_O' && Array.isArray(body.heads);
    const values = own ? body.heads.map((head) => weightOf(name, head[name], { weight_layout: body.weight_layout }, 1)?.[0][0]) : null;
    const made = own ? values.every(Boolean) && [values] : weightOf(name, body[name], body, heads);
    if (made) found[name] = made;
  }
  return found;
}

// Returns the part of a vector that belongs to a head, or null if the request does not give its numbers. vector: the numbers for all columns
// side by side, or a row for each head. matrices: those of the heads.
export function partOf(vector, matrices, head) {
  if (!Array.isArray(vector)) return null;
  if (vector.some(Array.isArray)) return vector[head] ?? null;
  const from = matrices.slice(0, head).reduce((sum, { cols }) => sum + cols, 0);
  return vector.slice(from, from + matrices[head].cols);
}

// Completes the matrices of an answer with what the server does not send: Q with its bias if the request gives both, and the rows of K and
// V of the keys that bias_K and zero_key add. Numbers that the request draws stay unknown. found: all matrices, by name.
export function complete(found, body, { projected }) {
  const change = (name, vector, changed) =>
    found[name]?.map((item) => item.map((matrix, head) => measured({ ...matrix, ...changed(matrix, partOf(vector, item, head)) })));
  if (!projected && body.b_Q)
    found.Q = Array.isArray(body.b_Q)
      ? change('Q', body.b_Q, ({ cols, data }, bias) => ({ data: data.map((x, at) => x + bias[at % cols]) }))
      : null;
  if (!projected || !(body.zero_key || body.bias_K)) return;
  const vectors = { K: body.bias_K, V: body.bias_V };
  if (body.bias_K && !Object.values(vectors).every(Array.isArray)) return;
  for (const [name, vector] of Object.entries(vectors)) {
    found[name] = change(name, vector, ({ rows, cols, data }, bias) => {
      const more = Number(Boolean(bias)) + Number(body.zero_key === true);
      const longer = new Float64Array((rows + more) * cols);
      longer.set(data);
      if (bias) longer.set(bias, rows * cols);
      return { rows: rows + more, data: longer };
    });
  }
}

// Returns the names of the weight matrices that the server draws and that are short enough for the page to ask for them.
export const drawnWeights = (body) =>
  WEIGHTS.filter((name) => body[name]?.random && [body[name].shape].flat().reduce((product, size) => product * size, 1) <= MOST);
