// arithmetic.js computes how one weight comes about, from the matrices of an answer: the products of q and k, their sum, the factor, what is
// added, and e to the power of it. It needs no page.
//
// The numbers of the server are shown as they are. The products, the powers of e and their sum are computed here in double precision.
import { measured, rowOf } from './matrices.js';
import { hasSoftmax } from './request.js';

// If the magnitude of the largest masked score of a row is above this, it is subtracted from all of them, because its power of e is too
// long to read.
const LARGE = 40;
const FEW = 5; // digits; keys whose powers are written
const NEAR = 1e-4; // relative error; numbers that differ more are not the same
const KNOWN = 0.01; // of the sum of a row; a smaller power of a drawn sink is not known from weights with seven digits

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// Returns what an option is for a head: a number, or one number for each head.
export const ofHead = (value, head) => (Array.isArray(value) ? (value[head] ?? value[0]) : value);

// Returns the exponents, their powers and the sum of a row of masked scores: {shift, power, powers, total, sinkPower}. sink: null if there
// is none, or undefined if the server has drawn it, because the answer does not have it then. weights: those of the row, or null. A drawn
// sink has what they leave of 1.
function softmaxOf(row, col, sink, weights) {
  const open = row.filter((score) => score > -Infinity);
  const largest = open.reduce((most, score) => Math.max(most, score), sink ?? -Infinity);
  const shift = open.length && Math.abs(largest) > LARGE ? largest : 0;
  const powerOf = (score) => Math.exp(score - shift);
  const keys = open.reduce((total, score) => total + powerOf(score), 0);
  const found = { shift, power: powerOf(row[col]), powers: row.length <= FEW ? Array.from(row, powerOf) : null };
  if (sink === null) return { ...found, total: keys, sinkPower: null };
  if (sink !== undefined) return { ...found, total: keys + powerOf(sink), sinkPower: powerOf(sink) };
  const total = weights ? keys / weights.reduce((sum, weight) => sum + weight, 0) : NaN;
  return { ...found, total, sinkPower: total - keys > KNOWN * total ? total - keys : undefined };
}

// Returns the weight of a key of a head whose answer has only the mean over heads.
function weightOf(masked, col, softmax, { normalization, sigmoid_bias: bias = 0 }) {
  // A stick is broken from the last key backwards.
  if (normalization === 'stick_breaking')
    return masked.subarray(col + 1).reduce((left, score) => left * (1 - sigmoid(score)), sigmoid(masked[col]));
  if (normalization === 'sigmoid') return sigmoid(masked[col] + bias);
  if (!softmax) return masked[col] === -Infinity ? 0 : masked[col];
  return softmax.total === 0 ? 0 : softmax.power / softmax.total;
}

// Returns the relative error of the numbers of the server.
const nearOf = ({ options }) => Math.max(NEAR, 10 ** (1 - (options.digits ?? Infinity)));

// Returns a row of Q, a row of K, their products and the sum of these, or null if this is not the score.
function pairOf({ Q, K }, row, col, score, near) {
  if (!Q || !K || Q.cols !== K.cols || col >= K.rows) return null;
  const [q, k] = [rowOf(Q, row), rowOf(K, col)];
  const products = new Float64Array(q.length);
  let [sum, size] = [0, 0];
  for (let at = 0; at < q.length; at++) {
    sum += products[at] = q[at] * k[at];
    size += Math.abs(products[at]);
  }
  return Math.abs(sum - score) <= near * size + 1e-12 ? { q, k, products, sum } : null;
}

// Returns the products of the query `answer.asked` with all keys, a row for each key, or null if a row does not sum to its score.
export function productsOf(answer, batch, head) {
  const factors = answer.factors(batch, head);
  const scores = answer.matrix('scores', batch, head);
  if (!scores || !factors.K) return null;
  const { rows, cols } = factors.K;
  const pair = (score, key) => pairOf(factors, answer.asked, key, score, nearOf(answer.summary));
  const pairs = Array.from(rowOf(scores, answer.asked).subarray(0, rows), pair);
  if (!pairs.every(Boolean)) return null;
  const data = new Float64Array(pairs.length * cols);
  pairs.forEach(({ products }, key) => data.set(products, key * cols));
  return measured({ rows: pairs.length, cols, data });
}

// Returns the arithmetic of a cell {batch, head, row, col} of an answer:
//   q, k, products: arrays, or null if the scores do not come from them; sum: the sum of the products
//   d: the columns of q; score, scaled, masked: the numbers of the server; factor: the scale of the head, or null for 1/√d
//   near: the relative error of the numbers of the server
//   digits: to how many digits the server rounds, if it is so few that the steps do not fit together, or null
//   softcap: or null; added: what bias and ALiBi add; forbidden: whether the key is masked
//   softmax: that of softmaxOf(), or null; weight = power / total, where total has the power of the sink, too
//   squashed: the number whose sigmoid is the weight, or null
//   weight: that of the head, or NaN if it is not known; mean: the mean over heads if the answer has only this, or null
//   extra: whether the request adds the key, and the page does not know its rows of K and V
export function arithmetic(answer, { batch, head, row, col }) {
  const { options } = answer.summary;
  const rowAt = (name) => rowOf(answer.matrix(name, batch, head), row);
  const [score, scaled, masked] = ['scores', 'scaled_scores', 'masked_scores'].map((name) => rowAt(name)[col]);
  const { Q, K } = answer.factors(batch, head);
  const near = nearOf(answer.summary);
  const averaged = answer.matrices.weights[0].length < answer.heads;
  const own = averaged ? null : rowAt('weights');
  const sink = ofHead(options.sink ?? null, head);
  const known = typeof sink === 'number' || sink === null ? sink : undefined;
  const softmax = hasSoftmax(options) ? softmaxOf(rowAt('masked_scores'), col, known, own) : null;
  const forbidden = masked === -Infinity;
  const scale = ofHead(options.scale, head);
  return {
    ...(pairOf({ Q, K }, row, col, score, near) ?? { q: null, k: null, products: null, sum: null }),
    ...{ d: Q?.cols ?? null, score, scaled, masked, forbidden, near, softmax },
    weight: own ? own[col] : weightOf(rowAt('masked_scores'), col, softmax, options),
    mean: averaged ? rowAt('weights')[col] : null,
    digits: options.digits < FEW ? options.digits : null,
    factor: typeof scale === 'number' ? scale : null,
    softcap: options.softcap > 0 ? options.softcap : null,
    added: forbidden ? 0 : masked - scaled,
    squashed: options.normalization === 'sigmoid' ? masked + (options.sigmoid_bias ?? 0) : null,
    extra: Boolean(K) && col >= K.rows,
  };
}
