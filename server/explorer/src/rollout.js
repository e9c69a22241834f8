// rollout.js computes attention rollout (Abnar and Zuidema 2020, arXiv 2005.00928): how much of each word of the first layer is in each
// word after the last layer, if only attention and the connections around it mixed them. It needs no page.
import { measured } from './matrices.js';

// Returns the mean over heads plus the identity, with each row divided by its sum. heads: the weights of a layer.
function mixed(heads, n) {
  const data = new Float64Array(n * n);
  for (const { data: weights } of heads) {
    for (let at = 0; at < data.length; at++) data[at] += weights[at] / heads.length;
  }
  for (let row = 0; row < n; row++) {
    data[row * n + row] += 1;
    const part = data.subarray(row * n, (row + 1) * n);
    const sum = part.reduce((total, weight) => total + weight, 0);
    for (let col = 0; col < n; col++) part[col] /= sum;
  }
  return data;
}

function product(a, b, n) {
  const data = new Float64Array(n * n);
  for (let row = 0; row < n; row++) {
    for (let k = 0; k < n; k++) {
      const factor = a[row * n + k];
      for (let col = 0; col < n; col++) data[row * n + col] += factor * b[k * n + col];
    }
  }
  return data;
}

// Returns the rollout of layers, the first one first. Each layer is a list of its heads' weights, matrices of matrices.js. Returns null if
// a matrix is not n × n for the same n, because the words of one layer are then not those of the next.
export function rollout(layers) {
  const n = layers[0][0].rows;
  if (!layers.flat().every(({ rows, cols }) => rows === n && cols === n)) return null;
  const data = layers.map((heads) => mixed(heads, n)).reduce((below, layer) => product(layer, below, n));
  return measured({ rows: n, cols: n, data });
}
