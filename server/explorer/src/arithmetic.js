// arithmetic.js computes how one weight and its part of the output come about, from the matrices of an answer: the products of q and k,
// their sum, the factor, what is added, e to the power of it, and the part of the value. It needs no page.
//
// The numbers of the server are shown as they are. The products, the powers of e and their sum are computed here in double precision.
import { hasSoftmax } from './request.js';

// If the magnitude of the largest masked score of a row is above this, it is subtracted from all of them, because its power of e is too
// long to read.
const LARGE = 40;
const FEW = 5; // digits; keys whose powers are written
const NEAR = 1e-4; // relative error; if the sum of the products differs more from the score, the scores do not come from these rows

const rowOf = (matrix, row) => matrix.data.subarray(row * matrix.cols, (row + 1) * matrix.cols);

// Returns what an option is for a head: a number, or one number for each head.
const ofHead = (value, head) => (Array.isArray(value) ? (value[head] ?? value[0]) : value);

// Returns the sink of a head, null if there is none, or undefined if the server has drawn it, because the answer does not have it then.
function sinkOf({ sink = null }, head) {
  const value = ofHead(sink, head);
  return typeof value === 'number' || value === null ? value : undefined;
}

// Returns the exponents, their powers and the sum of a row of masked scores: {shift, power, sum, sinkPower}. weights: the weights of the
// row, or null. A drawn sink has what the weights leave of 1.
function softmaxOf(row, col, sink, weights) {
  const open = row.filter((score) => score > -Infinity);
  const largest = open.reduce((most, score) => Math.max(most, score), sink ?? -Infinity);
  const shift = open.length && Math.abs(largest) > LARGE ? largest : 0;
  const keys = open.reduce((total, score) => total + Math.exp(score - shift), 0);
  const rest = () => (weights ? keys / weights.reduce((total, weight) => total + weight, 0) - keys : NaN);
  const sinkPower = sink === null ? null : sink === undefined ? rest() : Math.exp(sink - shift);
  const powers = row.length <= FEW ? Array.from(row, (score) => Math.exp(score - shift)) : null;
  return { shift, power: Math.exp(row[col] - shift), powers, sum: keys + (sinkPower ?? 0), sinkPower };
}

// Returns the weights of a row of masked scores that break a stick from the last key backwards.
function stickOf(masked) {
  let left = 1;
  const shares = masked.map((score) => 1 / (1 + Math.exp(-score)));
  return shares.reduceRight((weights, share, key) => {
    weights[key] = left * share;
    left *= 1 - share;
    return weights;
  }, shares);
}

// Returns the weights of a head whose answer has only the mean over heads.
const weightsOf = (masked, softmax, { normalization, sigmoid_bias: bias = 0 }) => {
  if (normalization === 'stick_breaking') return stickOf(masked);
  return masked.map((score) => {
    if (normalization === 'sigmoid') return 1 / (1 + Math.exp(-score - bias));
    if (!softmax) return score === -Infinity ? 0 : score;
    return softmax.sum === 0 ? 0 : Math.exp(score - softmax.shift) / softmax.sum;
  });
};

// Returns the part of the output that belongs to a head, {values, mixed}. The outputs of heads stand side by side, unless W_O has mixed
// them; then the part is the sum over the keys, computed here. Returns null if this is not possible, because the request adds a key whose
// value the answer does not have.
function outputOf(answer, { batch, head, row }, weights, V) {
  const { summary } = answer;
  const output = answer.matrix('output', batch, head);
  const cols = (at) => answer.matrix('V', batch, at).cols;
  const before = Array.from({ length: head }, (_, at) => cols(at)).reduce((sum, count) => sum + count, 0);
  const all = Array.from({ length: answer.heads }, (_, at) => cols(at)).reduce((sum, count) => sum + count, 0);
  if (!summary.shapes.W_O && output.cols === V.cols) return { values: rowOf(output, row), mixed: false };
  if (!summary.shapes.W_O && output.cols === all) return { values: rowOf(output, row).subarray(before, before + V.cols), mixed: false };
  if (V.rows < weights.length) return null;
  const values = new Float64Array(V.cols);
  for (let key = 0; key < V.rows; key++) {
    const value = rowOf(V, key);
    for (let col = 0; col < V.cols; col++) values[col] += weights[key] * value[col];
  }
  return { values, mixed: true };
}

// Returns the arithmetic of a cell {batch, head, row, col} of an answer:
//   q, k, products: arrays, or null if the scores do not come from them; sum: the sum of the products
//   d: the columns of q; score, scaled, masked: the numbers of the server; factor: the scale, or null for 1/√d
//   digits: to how many digits the server rounds, if it is so few that the steps do not fit together, or null
//   softcap: or null; added: what bias and ALiBi add; forbidden: whether the key is masked
//   shift, power, total, sinkPower: weight = power / total, where power = e^(masked − shift) and total has the power of the sink, too;
//     they are null without softmax; powers: those of all keys, or null if they are many
//   squashed: the number whose sigmoid is the weight, or null
//   weight: that of the head, or NaN if it is not known; mean: the mean over heads if the answer has only this, or null
//   extra: whether the key is one that bias_K or zero_key adds, which has no row of K and V
//   v, part: the row of the value, and weight · v, or null
//   output: {values, mixed}, the row of the head's output, and whether W_O mixes it, or null
export function arithmetic(answer, { batch, head, row, col }) {
  const { options } = answer.summary;
  const at = (name) => {
    const matrix = answer.matrix(name, batch, head);
    return matrix.data[row * matrix.cols + col];
  };
  const [Q, K, V] = ['Q', 'K', 'V'].map((name) => answer.matrix(name, batch, head));
  const [score, scaled, masked] = [at('scores'), at('scaled_scores'), at('masked_scores')];
  const q = Q && rowOf(Q, row);
  const k = K && rowOf(K, col);
  const products = q && k && q.length === k.length ? q.map((value, column) => value * k[column]) : null;
  const sum = products?.reduce((total, value) => total + value, 0);
  const size = products?.reduce((total, value) => total + Math.abs(value), 0);
  const fits = products !== null && Math.abs(sum - score) <= NEAR * size + 1e-12;
  const maskedRow = rowOf(answer.matrix('masked_scores', batch, head), row);
  const averaged = answer.matrices.weights[0].length < answer.heads;
  const own = averaged ? null : rowOf(answer.matrix('weights', batch, head), row);
  const softmax = hasSoftmax(options) ? softmaxOf(maskedRow, col, sinkOf(options, head), own) : null;
  const weights = own ?? weightsOf(maskedRow, softmax, options);
  const weight = weights[col];
  const forbidden = masked === -Infinity;
  const scale = ofHead(options.scale, head);
  const extra = Boolean(K) && col >= K.rows;
  const v = V && !extra && !Number.isNaN(weight) ? rowOf(V, col) : null;
  return {
    ...(fits ? { q, k, products, sum } : { q: null, k: null, products: null, sum: null }),
    ...{ d: Q?.cols ?? null, score, scaled, masked, weight, forbidden, mean: averaged ? at('weights') : null },
    digits: options.digits < FEW ? options.digits : null,
    factor: typeof scale === 'number' ? scale : null,
    softcap: options.softcap > 0 ? options.softcap : null,
    added: forbidden ? 0 : masked - scaled,
    ...{ shift: softmax?.shift ?? null, power: softmax?.power ?? null, powers: softmax?.powers ?? null },
    ...{ total: softmax?.sum ?? null, sinkPower: softmax?.sinkPower ?? null },
    squashed: options.normalization === 'sigmoid' ? masked + (options.sigmoid_bias ?? 0) : null,
    ...{ extra, v, part: v?.map((value) => weight * value) ?? null },
    output: v && outputOf(answer, { batch, head, row }, weights, V),
  };
}

// Returns the column of the product with the largest magnitude.
export const largestOf = (products) => products.reduce((best, value, at) => (Math.abs(value) > Math.abs(products[best]) ? at : best), 0);
