// recurrence.js follows what one word writes into the state of attention without softmax, until another word reads it: the gates fade it,
// and the delta rule corrects it. The implied weights, and the parts of each, follow from this. The module needs no page.
//
// Word t writes beta · k · (v − what the state holds under k). The state takes its key times its value, and what it held under the key
// becomes less. The part x of word j in the state is a vector like its key:
//   x = share · k_j               at word j itself; the share is beta, or 1 without the delta rule
//   x = g_t · x                   at each later word t: the gate, one number or one for each column of K
//   x = x − beta_t (k_t · x) k_t  the correction, with the delta rule
// and the weight of word j for query i is scale · q_i · x.
import { rowOf } from './matrices.js';

const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
const rangeOf = (gates) => [Math.min(...gates), Math.max(...gates)];

function fade(x, gates, t) {
  if (!gates) return;
  const row = rowOf(gates, t);
  for (let at = 0; at < x.length; at++) x[at] *= row.length === 1 ? row[0] : row[at];
}

// Takes away what the delta rule corrects at a word, and returns how much of its key this was.
function correct(x, { K, beta }, t) {
  const k = rowOf(K, t);
  const much = beta[t] * dot(k, x);
  for (let at = 0; at < x.length; at++) x[at] -= much * k[at];
  return much;
}

const written = ({ K, beta }, j) => rowOf(K, j).map((value) => value * (beta ? beta[j] : 1));

// Returns Q or K with each row divided by its norm.
export function normalised(matrix, epsilon) {
  const data = new Float64Array(matrix.data.length);
  for (let row = 0; row < matrix.rows; row++) {
    const values = rowOf(matrix, row);
    const norm = Math.sqrt(dot(values, values) + epsilon);
    data.set(values.map((value) => value / norm), row * matrix.cols); // prettier-ignore
  }
  return { ...matrix, data };
}

// Returns the matrices (n × n) of a head: scores and scaled_scores of all pairs; uncorrected, the weights if nothing were corrected; and
// weights. A head is {Q, K, gates, beta, scale}: matrices {rows, cols, data}, of which gates may be null; and beta, a list or null.
export function weightsOf(head) {
  const { Q, K, gates, beta, scale } = head;
  const n = Q.rows;
  const [scores, scaled, uncorrected, weights] = Array.from({ length: 4 }, () => new Float64Array(n * n));
  for (let j = 0; j < n; j++) {
    const x = written(head, j);
    const plain = written(head, j);
    for (let i = 0; i < n; i++) {
      const q = rowOf(Q, i);
      const at = i * n + j;
      scores[at] = dot(q, rowOf(K, j));
      scaled[at] = scale * scores[at];
      if (i < j) continue;
      if (i > j) {
        fade(x, gates, i);
        fade(plain, gates, i);
        if (beta) correct(x, head, i);
      }
      uncorrected[at] = scale * dot(q, plain);
      weights[at] = scale * dot(q, x);
    }
  }
  return { scores, scaled_scores: scaled, uncorrected, weights };
}

// Returns how the weight of key j for query i was made, where j is at most i:
//   score, scaled, share, stored (scaled · share), uncorrected (after the gates), corrected (the sum of all corrections), weight
//   gate: the product of the gates between the two, or null if there are none or one for each column
//   steps: for each word between them, {word, gate, correction}. gate: [smallest, largest] of its columns, or null. correction: what it
//     changed in this weight, with the gates that follow, or null without the delta rule
// The uncorrected weight and all corrections add up to the weight.
export function partsOf(head, i, j) {
  const { Q, K, gates, beta, scale } = head;
  // read[t]: scale · q_i, faded as the gates fade from word t to query i. A vector that word t writes counts so much in the weight.
  const read = [];
  read[i] = rowOf(Q, i).map((value) => scale * value);
  for (let t = i; t > j; t--) {
    read[t - 1] = read[t].slice();
    fade(read[t - 1], gates, t);
  }
  const x = written(head, j);
  const uncorrected = dot(read[j], x);
  const steps = [];
  for (let t = j + 1; t <= i; t++) {
    fade(x, gates, t);
    const much = beta ? correct(x, head, t) : null;
    const row = gates ? rowOf(gates, t) : null;
    const correction = beta ? -much * dot(read[t], rowOf(K, t)) || 0 : null;
    steps.push({ word: t, gate: row && rangeOf(row), correction });
  }
  const score = dot(rowOf(Q, i), rowOf(K, j));
  const share = beta ? beta[j] : 1;
  return {
    ...{ score, scaled: scale * score, share, stored: scale * score * share, uncorrected, steps },
    gate: gates?.cols === 1 ? steps.reduce((product, { gate }) => product * gate[0], 1) : null,
    corrected: steps.reduce((sum, { correction }) => sum + correction, 0),
    weight: scale * dot(rowOf(Q, i), x),
  };
}

// Returns what word t did to the state: {kept, held, share}. kept: its gates, [smallest, largest], or null. held: what the state held under
// the key, after the gates. share: how much of the way from that to its value the word writes. before: the state before the word.
export function stepOf({ K, V, gates, beta }, before, t) {
  const k = rowOf(K, t);
  const gate = gates ? rowOf(gates, t) : null;
  const held = new Float64Array(V.cols);
  for (let row = 0; row < K.cols; row++) {
    const kept = gate ? gate[gate.length === 1 ? 0 : row] : 1;
    for (let col = 0; col < V.cols; col++) held[col] += k[row] * kept * before[row * V.cols + col];
  }
  return { kept: gate && rangeOf(gate), held, share: beta ? beta[t] : 1 };
}
