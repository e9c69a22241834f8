// answer.js gives the parts of an answer: the matrix of a step for a batch item and a head, its mask, and the labels of its rows and
// columns. It uses only the worker's reply and the labels of the user; it needs no page.

import { productsOf } from './arithmetic.js';
import { columns, measured, rowOf } from './matrices.js';

const MOST = 4_000_000; // products; the page does not mix the values of a longer request

function intersection(masks) {
  if (masks.some((mask) => !mask)) return null;
  const common = masks[0].slice();
  for (const mask of masks) for (let at = 0; at < common.length; at++) common[at] &= mask[at];
  return common;
}

// Returns a byte for each pair of n words, 1 if the key comes after the query.
const laterKeys = (n) => Uint8Array.from({ length: n * n }, (_, at) => Number(at % n > Math.floor(at / n)));

export function product(a, b) {
  const data = new Float64Array(a.rows * b.cols);
  for (let row = 0; row < a.rows; row++) {
    for (let k = 0; k < a.cols; k++) {
      const factor = a.data[row * a.cols + k];
      for (let col = 0; col < b.cols; col++) data[row * b.cols + col] += factor * b.data[k * b.cols + col];
    }
  }
  return measured({ rows: a.rows, cols: b.cols, data });
}

function sideBySide(all) {
  const cols = all.reduce((sum, one) => sum + one.cols, 0);
  const data = Float64Array.from(Array.from({ length: all[0].rows }, (_, row) => all.flatMap((one) => [...rowOf(one, row)])).flat());
  return measured({ rows: all[0].rows, cols, data });
}

// An answer to a request for attention. labels: the names that the user gave the rows, or none.
export class Answer {
  constructor(reply, labels) {
    this.reply = reply;
    this.summary = reply.summary;
    this.matrices = reply.matrices;
    this.statistics = reply.statistics;
    this.common = [];
    this.made = []; // for each batch item, what mixed() has made, by head
    this.mean = null; // the mean of the weights over heads, a matrix for each batch item, once the server has sent it
    this.relabel(labels ?? []);
    const all = this.matrices.scores ?? this.matrices.weights; // without softmax, the server gives the weights alone
    const [[scores]] = all;
    this.queries = scores.rows;
    this.keys = scores.cols;
    this.heads = all[0].length;
    this.batch = all.length;
    this.own = null; // what linear.js adds to an answer without softmax
    this.position = null; // the position after which the state is shown, or null for the last one
    this.asked = 0; // the query whose products with the keys are shown
    this.later = this.summary.options.update ? laterKeys(this.queries) : null;
    this.past = this.summary.shapes.past_K?.at(-2) ?? 0; // how many keys stand before those of the words
  }

  // Sets the names of the rows: the labels of the user, or else the words of the answer. The labels take the place of words only if each word
  // has one; otherwise `unfit` says in a sentence why they do not.
  relabel(labels) {
    const { tokens } = this.reply;
    const count = labels.length;
    const fits = !tokens || count === tokens.length;
    this.unfit = fits || !count ? '' : `${count} label${count === 1 ? '' : 's'} for ${tokens.length} words: the words are shown.`;
    this.labels = fits ? labels : tokens;
  }

  // Returns the place of a head in a result, as {batch, head}. A result has fewer heads than the scores if several query heads share a key
  // head, or if the weights are a mean.
  place(name, batch, head) {
    const groups = this.matrices[name];
    if (!groups) return null;
    const item = Math.min(batch, groups.length - 1);
    const count = groups[item].length;
    return { batch: item, head: count === this.heads ? head : Math.floor((head * count) / this.heads) };
  }

  // Returns a matrix. Of the states, it is the one that is shown. The page itself makes `mixed`, `joined` and `products`, which no answer has.
  matrix(name, batch, head) {
    if (name === 'mixed') return this.mixed(batch, head);
    if (name === 'joined') return this.joined(batch);
    if (name === 'products') return this.products(batch, head);
    const place = this.place(name, batch, head);
    return place && this.shown(this.matrices[name][place.batch][place.head]);
  }

  // Returns the values mixed by the weights of a head, or null if they are the output itself or are not known.
  mixed(batch, head) {
    const { shapes } = this.summary;
    if (!shapes.W_O && this.heads < 2) return null;
    const made = (this.made[batch] ??= []);
    if (made[head] !== undefined) return made[head];
    const [A, V, output] = ['weights', 'V', 'output'].map((name) => this.matrix(name, batch, head));
    const whole = this.matrices.weights[batch].length === this.heads && V?.rows === A.cols;
    const sizes = Array.from({ length: this.heads }, (_, at) => this.matrix('V', batch, at)?.cols ?? NaN);
    const cuts = sizes.map((_, at) => sizes.slice(0, at).reduce((sum, size) => sum + size, 0));
    if (!shapes.W_O && output.cols === cuts.at(-1) + sizes.at(-1)) made[head] = columns(output, cuts[head], sizes[head]);
    else if (!shapes.W_O && V && output.cols === V.cols) made[head] = null;
    else made[head] = whole && A.rows * A.cols * V.cols <= MOST ? product(A, V) : null;
    return made[head];
  }

  // Returns the mixed values of all heads, side by side, if W_O multiplies them.
  joined(batch) {
    if (!this.summary.shapes.W_O) return null;
    const all = Array.from({ length: this.heads }, (_, head) => this.mixed(batch, head));
    return all.every(Boolean) ? (this.made[batch].joined ??= sideBySide(all)) : null;
  }

  // Returns the matrices whose rows are multiplied to scores, {Q, K}, as far as they are known.
  factors(batch, head) {
    return this.own?.factors?.(batch, head) ?? { Q: this.matrix('Q', batch, head), K: this.matrix('K', batch, head) };
  }

  // Returns the products of the query that is shown with all keys, or null if they are not known.
  products(batch, head) {
    const key = [batch, head, this.asked].join();
    if (this.multiplied?.key !== key) this.multiplied = { key, matrix: productsOf(this, batch, head) };
    return this.multiplied.matrix;
  }

  // Returns the state that is shown of a list of states. A matrix is no list.
  shown(found) {
    return Array.isArray(found) ? found[Math.min(this.position ?? Infinity, found.length - 1)] : found;
  }

  // Returns all matrices with a name, as [batch][head].
  groups(name) {
    const all = this.matrices[name];
    return name === 'states' ? all?.map((item) => item.map((list) => this.shown(list))) : all;
  }

  entropy(batch, head) {
    return this.matrices.entropy?.[batch]?.[head] ?? null;
  }

  // Returns a byte for each cell, 1 if the query may not attend to the key. Returns null if no cell is masked.
  mask(batch, head) {
    return this.later ?? this.matrix('masked_scores', batch, head)?.bits ?? null;
  }

  // Returns the mask of the cells that are masked in every head, or null.
  commonMask(batch) {
    if (this.later) return this.later;
    this.common[batch] ??= { bits: intersection(this.matrices.masked_scores?.[batch].map(({ bits }) => bits) ?? [null]) };
    return this.common[batch].bits;
  }

  maskOfWeights(batch, head) {
    return this.matrices.weights[batch].length < this.heads ? this.commonMask(batch) : this.mask(batch, head);
  }

  // Returns whether a query may attend to no key.
  isEmpty(mask, row) {
    return Boolean(mask) && !mask.subarray(row * this.keys, (row + 1) * this.keys).includes(0);
  }

  // Returns whether each word is a query and a key.
  isShared() {
    const { shapes, words } = this.summary;
    return (('X' in shapes || words) && !shapes.context) || (this.queries === this.keys && this.key(0) === this.query(0));
  }

  // Returns whether the queries and the keys are the same words.
  isSelf() {
    return this.queries === this.keys && this.isShared();
  }

  // Returns the word that a key is, or undefined if it is none.
  wordOf(key) {
    const word = key - this.past;
    return this.isShared() && word >= 0 && word < this.queries ? word : undefined;
  }

  query(row) {
    return this.labels[row] || `q${row}`;
  }

  key(col) {
    return this.keys === this.labels.length && !this.summary.shapes.context ? this.labels[col] || `k${col}` : `k${col}`;
  }

  word(row) {
    return this.labels[row] || `x${row}`;
  }

  // Returns a function from an index to its label. kind: query, key, both or dimension.
  label(kind) {
    if (kind === 'query') return (at) => this.query(at);
    if (kind === 'key') return (at) => this.key(at);
    if (kind === 'gate') return (at) => (this.matrices.gates[0][0].cols === 1 ? 'all' : String(at));
    return kind === 'both' ? (at) => this.word(at) : (at) => String(at);
  }
}
