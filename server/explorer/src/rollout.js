// rollout.js computes attention rollout (Abnar and Zuidema 2020, arXiv 2005.00928): how much of each word of the first layer is in each
// word after the last layer, if only attention and the connections around it mixed them. It needs no page.
import { product } from './answer.js';
import { measured } from './matrices.js';

// Returns the mean over heads. heads: the weights of a layer.
export function meanOf(heads) {
  const [{ rows, cols }] = heads;
  const data = Float64Array.from({ length: rows * cols }, (_, at) => heads.reduce((sum, one) => sum + one.data[at] / heads.length, 0));
  return { rows, cols, data };
}

// Returns the mean over heads plus the identity, with each row divided by its sum.
function mixed(heads) {
  const { rows: n, data } = meanOf(heads);
  for (let row = 0; row < n; row++) {
    data[row * n + row] += 1;
    const part = data.subarray(row * n, (row + 1) * n);
    const sum = part.reduce((total, weight) => total + weight, 0);
    for (let col = 0; col < n; col++) part[col] /= sum;
  }
  return measured({ rows: n, cols: n, data });
}

// Returns the rollout of layers, the first one first. Each layer is a list of its heads' weights, matrices of matrices.js. Returns null if
// a matrix is not n × n for the same n, because the words of one layer are then not those of the next.
export function rollout(layers) {
  const n = layers[0][0].rows;
  if (!layers.flat().every(({ rows, cols }) => rows === n && cols === n)) return null;
  return layers.map(mixed).reduce((below, layer) => product(layer, below));
}

// Returns the two matrices whose product is the rollout: what the last layer takes from each word, and the rollout of the layers below it.
export function factorsOf(layers) {
  const last = mixed(layers.at(-1));
  const identity = Float64Array.from(last.data, (_, at) => Number(at % (last.cols + 1) === 0));
  return [last, layers.length > 1 ? rollout(layers.slice(0, -1)) : { ...last, data: identity }];
}
