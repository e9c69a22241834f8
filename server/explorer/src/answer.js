// answer.js gives the parts of an answer: the matrix of a step for a batch item and a head, its mask, and the labels of its rows and
// columns. It uses only the worker's reply and the labels of the user; it needs no page.

function intersection(masks) {
  if (masks.some((mask) => !mask)) return null;
  const common = masks[0].slice();
  for (const mask of masks) for (let at = 0; at < common.length; at++) common[at] &= mask[at];
  return common;
}

// An answer to a request for attention. labels: the names that the user gave the rows, or none.
export class Answer {
  constructor(reply, labels) {
    this.reply = reply;
    this.summary = reply.summary;
    this.matrices = reply.matrices;
    this.statistics = reply.statistics;
    this.common = [];
    this.mean = null; // the mean of the weights over heads, a matrix for each batch item, once the server has sent it
    this.relabel(labels);
    const [[scores]] = this.matrices.scores;
    this.queries = scores.rows;
    this.keys = scores.cols;
    this.heads = this.matrices.scores[0].length;
    this.batch = this.matrices.scores.length;
    this.past = this.summary.shapes.past_K?.at(-2) ?? 0; // how many keys stand before those of the words
  }

  // Sets the names of the rows: the words of the answer, or else the labels of the user.
  relabel(labels) {
    this.labels = this.reply.tokens ?? labels ?? [];
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

  matrix(name, batch, head) {
    const place = this.place(name, batch, head);
    return place && this.matrices[name][place.batch][place.head];
  }

  entropy(batch, head) {
    return this.matrices.entropy?.[batch]?.[head] ?? null;
  }

  // Returns a byte for each cell, 1 if the query may not attend to the key. Returns null if no cell is masked.
  mask(batch, head) {
    return this.matrix('masked_scores', batch, head).bits;
  }

  // Returns the mask of the cells that are masked in every head, or null.
  commonMask(batch) {
    this.common[batch] ??= { bits: intersection(this.matrices.masked_scores[batch].map(({ bits }) => bits)) };
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

  // Returns the key that a word is, or undefined if the keys are others. The keys of past_K stand before those of the words.
  keyOf(word) {
    return this.isShared() ? word + this.past : undefined;
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
    return kind === 'both' ? (at) => this.word(at) : (at) => String(at);
  }
}
