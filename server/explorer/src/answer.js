// An answer as the page reads it: the matrix of a step for a batch item and a head, its mask, and the labels of rows and columns.
// Pure: it is made of a worker's reply and the labels of the user.

function intersection(masks) {
  if (masks.some((mask) => !mask)) return null;
  const common = masks[0].slice();
  for (const mask of masks) for (let at = 0; at < common.length; at++) common[at] &= mask[at];
  return common;
}

export class Answer {
  constructor(reply, labels) {
    this.reply = reply;
    this.summary = reply.summary;
    this.matrices = reply.matrices;
    this.statistics = reply.statistics;
    this.common = [];
    this.mean = null; // [batch] -> matrix, once it has been asked for
    this.relabel(labels);
    const [[scores]] = this.matrices.scores;
    this.queries = scores.rows;
    this.keys = scores.cols;
    this.heads = this.matrices.scores[0].length;
    this.batch = this.matrices.scores.length;
  }

  // The names of the rows: the answer's own words, or else the user's.
  relabel(labels) {
    this.labels = this.reply.tokens ?? labels ?? [];
  }

  // The place of a head in a result. A result may have fewer heads: grouped key heads, or weights that are a mean.
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

  // 1 where a query may not attend; null if it may everywhere.
  mask(batch, head) {
    return this.matrix('masked_scores', batch, head).bits;
  }

  // Masked in every head.
  commonMask(batch) {
    this.common[batch] ??= { bits: intersection(this.matrices.masked_scores[batch].map(({ bits }) => bits)) };
    return this.common[batch].bits;
  }

  maskOfWeights(batch, head) {
    return this.matrices.weights[batch].length < this.heads ? this.commonMask(batch) : this.mask(batch, head);
  }

  // Whether a query may attend to nothing.
  isEmpty(mask, row) {
    return Boolean(mask) && !mask.subarray(row * this.keys, (row + 1) * this.keys).includes(0);
  }

  query(row) {
    return this.labels[row] ?? `q${row}`;
  }

  key(col) {
    return this.keys === this.labels.length && !this.summary.shapes.context ? this.labels[col] : `k${col}`;
  }

  word(row) {
    return this.labels[row] ?? `x${row}`;
  }

  // A function that gives the label of an index. kind: query, key, both or dimension.
  label(kind) {
    if (kind === 'query') return (at) => this.query(at);
    if (kind === 'key') return (at) => this.key(at);
    return kind === 'both' ? (at) => this.word(at) : (at) => String(at);
  }
}
