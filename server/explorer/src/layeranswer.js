// layeranswer.js makes answers of stored layers that the stage shows, and leaves words out of them. It needs no page.
import { Answer } from './answer.js';
import { arithmetic } from './arithmetic.js';
import { measured } from './matrices.js';
import { factorsOf } from './rollout.js';
import { stepNamed } from './steps.js';

const PLAIN = { options: {}, shapes: { X: [], W_O: [] }, projected: true, axes: 0 }; // the summary of an answer that has only weights

// Returns rows and columns of a matrix. null stands for all of them.
export function pick({ rows, cols, data }, rowsKept, colsKept) {
  const [down, across] = [rowsKept ?? [...Array(rows).keys()], colsKept ?? [...Array(cols).keys()]];
  const part = down.flatMap((row) => across.map((col) => data[row * cols + col]));
  return measured({ rows: down.length, cols: across.length, data: Float64Array.from(part) });
}

// Returns the answer of a layer. reply: that of the worker, or {matrices: {weights}} if the layer has too many other numbers.
export function answerOfLayer(reply, labels) {
  const { matrices } = reply;
  const answer = new Answer({ summary: PLAIN, ...reply }, labels);
  const alone = ({ batch, head, row, col }) => {
    const weight = matrices.weights[batch][head].data[row * answer.keys + col];
    return { links: [['weights', 'the other numbers of this layer are too many for the page. Weight:', weight]] };
  };
  answer.own = { arithmetic: (place) => (matrices.scores ? arithmetic(answer, place) : alone(place)) };
  return answer;
}

// Returns the answer that has the rollout as its weights. layers: [{weights}], with the weights as [batch][head].
export function answerOfRollout(layers, rollouts, labels) {
  const answer = new Answer({ summary: PLAIN, matrices: { weights: rollouts.map((matrix) => [matrix]) } }, labels);
  const factors = [];
  function ofCell({ batch, row, col }) {
    const [last, below] = (factors[batch] ??= factorsOf(layers.map(({ weights }) => weights[batch])));
    const q = last.data.subarray(row * last.cols, (row + 1) * last.cols);
    const k = q.map((_, at) => below.data[at * below.cols + col]);
    return { q, k, products: true, links: [['weights', '=', rollouts[batch].data[row * below.cols + col]]] };
  }
  answer.own = { arithmetic: ofCell };
  return answer;
}

// Returns an answer without the rows and columns of words that are left out. kept: the words that stay. Each number stays that of the model,
// and so does what it is made of.
export function withoutWords(answer, kept) {
  const only = (name, one) => {
    if (ArrayBuffer.isView(one)) return Float64Array.from(kept, (at) => one[at]);
    const { rows, cols } = stepNamed(name);
    return pick(one, rows === 'dimension' ? null : kept, cols === 'key' ? kept : null);
  };
  const entries = Object.entries(answer.matrices).map(([name, items]) => [name, items.map((item) => item.map((one) => only(name, one)))]);
  const short = new Answer({ ...answer.reply, matrices: Object.fromEntries(entries) }, kept.map((at) => answer.labels[at])); // prettier-ignore
  short.mixed = (batch, head) =>
    ((short.made[batch] ??= [])[head] ??= answer.mixed(batch, head) && pick(answer.mixed(batch, head), kept, null));
  const ofCell = (place) => answer.own.arithmetic({ ...place, row: kept[place.row], col: kept[place.col] });
  return Object.assign(short, { of: answer.of, own: { arithmetic: ofCell } });
}
