// answer.test.mjs computes attention of drawn matrices in plain loops, and compares what the page says of every cell: how it was made, the
// values that a head mixes, and the words of its row and column.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Answer, product } from '../../../server/explorer/src/answer.js';
import { arithmetic, ofHead } from '../../../server/explorer/src/arithmetic.js';
import { measured } from '../../../server/explorer/src/matrices.js';
import { drawing } from '../draw.mjs';

const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-9 * (1 + Math.abs(b)), `${what}: ${a} is not ${b}`);
const filled = (rows, cols, cell) =>
  measured({ rows, cols, data: Float64Array.from({ length: rows * cols }, (_, at) => cell(Math.floor(at / cols), at % cols)) });
const at = ({ cols, data }, row, col) => data[row * cols + col];
const sum = (list) => list.reduce((total, x) => total + x, 0);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const KINDS = [undefined, 'softmax', 'none', 'sigmoid', 'stick_breaking'];

// Computes a row of weights of masked scores as the documents define it.
function weightsOf(row, { normalization, sigmoid_bias = 0 }, sink) {
  if (normalization === 'none') return row.map((x) => (x === -Infinity ? 0 : x));
  if (normalization === 'sigmoid') return row.map((x) => sigmoid(x + sigmoid_bias));
  if (normalization === 'stick_breaking')
    return row.map((x, col) => row.slice(col + 1).reduce((left, later) => left * sigmoid(-later), sigmoid(x)));
  const largest = Math.max(...row, sink ?? -Infinity);
  const powers = row.map((x) => (x === -Infinity ? 0 : Math.exp(x - largest)));
  const total = sum(powers) + (sink === null ? 0 : Math.exp(sink - largest));
  return powers.map((power) => (total ? power / total : 0));
}

// Draws a request and computes its answer.
function drawn({ whole, pick, random, matrix }) {
  const [batch, heads, n, m, d, width] = [whole(1, 2), whole(1, 3), whole(1, 4), whole(1, 7), whole(1, 3), whole(1, 3)];
  const large = pick([1, 1, 1, 60]);
  const options = {
    ...{ normalization: pick(KINDS), softcap: pick([undefined, 3]), sigmoid_bias: pick([undefined, -1]) },
    ...{ scale: pick([undefined, 0.5, Array.from({ length: heads }, () => random() + 0.1)]) },
    ...{ sink: pick([undefined, null, 0.5, Array.from({ length: heads }, () => 2 * random())]) },
  };
  const softmax = (options.normalization ?? 'softmax') === 'softmax';
  const averaged = pick([false, false, true]);
  const names = ['Q', 'K', 'V', 'scores', 'scaled_scores', 'masked_scores', 'weights', 'output'];
  const matrices = Object.fromEntries(names.map((name) => [name, []]));
  const own = []; // the weights of each head
  for (let item = 0; item < batch; item++) {
    for (const name of names) matrices[name].push([]);
    own.push([]);
    for (let head = 0; head < heads; head++) {
      const [Q, K, V] = [matrix(n, d), matrix(m, d), matrix(m, width)].map(measured);
      const cap = options.softcap;
      const scale = large * (ofHead(options.scale, head) ?? 1 / Math.sqrt(d));
      const scores = filled(n, m, (i, j) => sum([...Array(d).keys()].map((c) => at(Q, i, c) * at(K, j, c))));
      const scaled = filled(n, m, (i, j) => (cap ? cap * Math.tanh((scale * at(scores, i, j)) / cap) : scale * at(scores, i, j)));
      const masked = filled(n, m, (i, j) => (i === 2 || random() < 0.3 ? -Infinity : at(scaled, i, j) + 0.25 * (j % 2)));
      const sink = softmax ? (ofHead(options.sink ?? null, head) ?? null) : null;
      const rows = Array.from({ length: n }, (_, i) => weightsOf([...masked.data.subarray(i * m, (i + 1) * m)], options, sink));
      const weights = filled(n, m, (i, j) => rows[i][j]);
      const output = filled(n, width, (i, c) => sum(rows[i].map((weight, j) => weight * at(V, j, c))));
      const all = { Q, K, V, scores, scaled_scores: scaled, masked_scores: masked, weights, output };
      for (const name of names) matrices[name][item].push(all[name]);
      own[item].push(weights);
    }
    if (averaged) matrices.weights[item] = [filled(n, m, (i, j) => sum(own[item].map((one) => at(one, i, j))) / heads)];
  }
  const answer = new Answer({ summary: { options, shapes: {} }, matrices }, []);
  return { answer, own, averaged: averaged && heads > 1, large, options, sizes: { batch, heads, n, m, d } };
}

test('what is said of each cell of drawn answers is what makes its weight', () => {
  const draws = drawing(9);
  for (let round = 0; round < 150; round++) {
    const { answer, own, averaged, large, options, sizes } = drawn(draws);
    const { batch, heads, n, m, d } = sizes;
    assert.deepEqual([answer.batch, answer.heads, answer.queries, answer.keys], [batch, heads, n, m]);
    const place = {
      batch: draws.whole(0, batch - 1),
      head: draws.whole(0, heads - 1),
      row: draws.whole(0, n - 1),
      col: draws.whole(0, m - 1),
    };
    const { row, col } = place;
    const of = (name) => answer.matrices[name][place.batch][place.head];
    const made = arithmetic(answer, place);
    const value = (name) => at(of(name), row, col);
    assert.deepEqual([made.score, made.scaled, made.masked], [value('scores'), value('scaled_scores'), value('masked_scores')]);
    assert.deepEqual([...made.q], [...of('Q').data.subarray(row * d, (row + 1) * d)]);
    assert.deepEqual([...made.k], [...of('K').data.subarray(col * d, (col + 1) * d)]);
    made.products.forEach((x, c) => assert.equal(x, made.q[c] * made.k[c]));
    near(made.sum, made.score, 'the sum of the products');
    assert.equal(made.d, d);
    // The masks, and that of the mean over heads: what all heads mask.
    const hides = (one) => Array.from(one.data, (x) => Number(x === -Infinity));
    const bitsOf = (one) => (hides(one).includes(1) ? hides(one) : null);
    const ofHeads = answer.matrices.masked_scores[place.batch].map(bitsOf);
    const common = ofHeads.every(Boolean) ? ofHeads[0].map((_, cell) => Number(ofHeads.every((bits) => bits[cell]))) : null;
    const masks = ['mask', 'commonMask', 'maskOfWeights'].map((name) => answer[name](place.batch, place.head));
    const list = (bits) => bits && [...bits];
    assert.deepEqual(masks.map(list), [ofHeads[place.head], common, averaged ? common : ofHeads[place.head]]);
    const seesNone = [...of('masked_scores').data.subarray(row * m, (row + 1) * m)].every((x) => x === -Infinity);
    assert.equal(answer.isEmpty(masks[0], row), seesNone);
    const forbidden = made.masked === -Infinity;
    assert.equal(made.forbidden, forbidden);
    assert.equal(made.added, forbidden ? 0 : made.masked - made.scaled);
    near(made.weight, at(own[place.batch][place.head], row, col), `the weight, ${options.normalization}`);
    if (averaged) assert.equal(made.mean, at(answer.matrices.weights[place.batch][0], row, col));
    else assert.equal(made.mean, null);
    const scale = ofHead(options.scale, place.head);
    assert.deepEqual([made.factor, made.softcap], [scale ?? null, options.softcap ?? null]);
    if (options.normalization === 'sigmoid') near(sigmoid(made.squashed), made.weight, 'squashed');
    else assert.equal(made.squashed, null);
    assert.equal(made.extra, false);
    const { softmax } = made;
    assert.equal(Boolean(softmax), (options.normalization ?? 'softmax') === 'softmax');
    if (!softmax) continue;
    const open = [...of('masked_scores').data.subarray(row * m, (row + 1) * m)];
    const sink = ofHead(options.sink ?? null, place.head);
    const largest = Math.max(...open, sink ?? -Infinity);
    assert.equal(softmax.shift, open.some((x) => x > -Infinity) && Math.abs(largest) > 40 ? largest : 0, `${large}`);
    const powers = open.map((x) => Math.exp(x - softmax.shift));
    near(softmax.power, powers[col], 'the power');
    if (m <= 5) softmax.powers.forEach((x, key) => near(x, powers[key], 'the powers'));
    else assert.equal(softmax.powers, null);
    if (sink === null) assert.equal(softmax.sinkPower, null);
    else near(softmax.sinkPower, Math.exp(sink - softmax.shift), 'the power of the sink');
    near(softmax.total, sum(powers) + (softmax.sinkPower ?? 0), 'the sum of the row');
  }
});

test('a drawn sink has what the weights leave of 1; numbers that do not fit together are not shown as products', () => {
  const masked = filled(1, 2, (_, j) => j);
  const total = 1 + Math.E + 2; // the power of the sink is 2
  const weights = filled(1, 2, (_, j) => Math.exp(j) / total);
  const one = filled(1, 1, () => 1);
  const matrices = { Q: [[one]], K: [[filled(2, 1, (j) => j)]], scores: [[masked]], scaled_scores: [[masked]], masked_scores: [[masked]], weights: [[weights]] }; // prettier-ignore
  const make = (options, more = {}) =>
    arithmetic(new Answer({ summary: { options, shapes: {} }, matrices: { ...matrices, ...more } }, []), { batch: 0, head: 0, row: 0, col: 1 }); // prettier-ignore
  const { softmax } = make({ sink: { random: 'rand' } });
  near(softmax.total, total, 'the sum');
  near(softmax.sinkPower, 2, 'the power of the sink');
  const whole = filled(1, 2, (_, j) => Math.exp(j) / (1 + Math.E));
  assert.equal(make({ sink: { random: 'rand' } }, { weights: [[whole]] }).softmax.sinkPower, undefined);
  const all = make({});
  assert.deepEqual([all.digits, all.near, [...all.products]], [null, 1e-4, [1]]);
  assert.deepEqual([make({ digits: 4 }).digits, make({ digits: 5 }).digits, make({ digits: 3 }).near], [4, null, 0.01]);
  const other = make({}, { K: [[filled(2, 1, () => 2)]] });
  assert.deepEqual([other.q, other.k, other.products, other.sum], [null, null, null, null]);
  assert.equal(make({}, { K: [[filled(2, 2, () => 1)]] }).products, null, 'q and k have different lengths');
  const short = make({}, { K: [[filled(1, 1, () => 1)]] });
  assert.equal(short.extra, true);
});

test('products of matrices, and the values that heads mix, are those of plain loops', () => {
  const draws = drawing(10);
  for (let round = 0; round < 100; round++) {
    const { whole, matrix, pick } = draws;
    const [n, m, heads] = [whole(1, 3), whole(1, 3), whole(2, 3)];
    const widths = Array.from({ length: heads }, () => whole(1, 3));
    const [A, V] = [widths.map(() => matrix(n, m)), widths.map((width) => matrix(m, width))];
    const wanted = A.map((a, h) => filled(n, widths[h], (i, c) => sum([...Array(m).keys()].map((j) => at(a, i, j) * at(V[h], j, c)))));
    wanted.forEach((one, h) => product(A[h], V[h]).data.forEach((x, cell) => near(x, one.data[cell], 'the product')));
    const total = sum(widths);
    const starts = widths.map((_, h) => sum(widths.slice(0, h)));
    const joined = filled(n, total, (i, c) => {
      const h = widths.findIndex((width, head) => c < starts[head] + width);
      return at(wanted[h], i, c - starts[h]);
    });
    const projected = pick([false, true]);
    // Without W_O, the output has the numbers, and the page does not compute them again.
    const output = matrix(n, projected ? 2 : total);
    const partAt = (h) => (projected ? wanted[h] : filled(n, widths[h], (i, c) => at(output, i, starts[h] + c)));
    const shapes = projected ? { W_O: [total, 2] } : {};
    const answer = new Answer({ summary: { options: {}, shapes }, matrices: { weights: [A], V: [V], output: [[output]] } }, []);
    wanted.forEach((_, h) => answer.matrix('mixed', 0, h).data.forEach((x, cell) => near(x, partAt(h).data[cell], 'the mixed values')));
    const side = answer.matrix('joined', 0, 0);
    if (!projected) assert.equal(side, null);
    else side.data.forEach((x, cell) => near(x, joined.data[cell], 'all heads'));
  }
  // A mean over heads does not tell what each head mixes, and more than four million products are too many.
  const mixedOf = (A, V, heads = [A]) =>
    new Answer({ summary: { options: {}, shapes: { W_O: [] } }, matrices: { scores: [heads], weights: [[A]], V: [heads.map(() => V)], output: [[A]] } }, []).matrix('mixed', 0, 0); // prettier-ignore
  const zeros = (rows, cols) => ({ rows, cols, data: new Float64Array(rows * cols) });
  assert.equal(mixedOf(zeros(2, 3), zeros(3, 1)).rows, 2);
  assert.equal(mixedOf(zeros(2, 3), zeros(3, 1), [zeros(2, 3), zeros(2, 3)]), null);
  assert.equal(mixedOf(zeros(2, 3), zeros(4, 1)), null, 'V has other keys');
  assert.deepEqual([mixedOf(zeros(1000, 500), zeros(500, 8))?.cols, mixedOf(zeros(1000, 500), zeros(500, 9))], [8, null]);
  const one = filled(1, 1, () => 1);
  const alone = new Answer({ summary: { options: {}, shapes: {} }, matrices: { weights: [[one]], V: [[one]], output: [[one]] } }, []);
  assert.equal(alone.matrix('mixed', 0, 0), null, 'they are the output itself');
});

test('results with fewer heads are those of the group; words, labels and masks have their place', () => {
  const zeros = (rows, cols) => filled(rows, cols, () => 0);
  const hidden = filled(2, 3, (i, j) => (j > i ? -Infinity : 0));
  const mixedMask = filled(2, 3, () => -Infinity);
  const summary = { options: {}, shapes: { Q: [], K: [] } };
  const matrices = {
    weights: [Array.from({ length: 4 }, () => zeros(2, 3))],
    masked_scores: [[hidden, hidden, mixedMask, hidden]],
    K: [[filled(3, 1, () => 10), filled(3, 1, () => 20)]],
    states: [[[zeros(1, 1), filled(1, 1, () => 1), filled(1, 1, () => 2)]]],
  };
  const answer = new Answer({ summary, matrices }, ['a', '']);
  assert.deepEqual([0, 1, 2, 3].map((head) => answer.matrix('K', 0, head).data[0]), [10, 10, 20, 20]); // prettier-ignore
  assert.deepEqual(answer.place('K', 7, 3), { batch: 0, head: 1 });
  assert.equal(answer.matrix('Q', 0, 0), null);
  assert.deepEqual([answer.query(0), answer.query(1), answer.key(0), answer.word(1)], ['a', 'q1', 'k0', 'x1']);
  assert.deepEqual(
    ['query', 'key', 'both', 'dimension'].map((kind) => answer.label(kind)(0)),
    ['a', 'k0', 'a', '0'],
  );
  assert.deepEqual([...answer.mask(0, 0)], [0, 1, 1, 0, 0, 1]);
  assert.deepEqual([...answer.commonMask(0)], [0, 1, 1, 0, 0, 1]);
  assert.deepEqual(
    [answer.isEmpty(answer.mask(0, 2), 0), answer.isEmpty(answer.mask(0, 0), 1), answer.isEmpty(null, 0)],
    [true, false, false],
  );
  const gated = (rows, cols) => new Answer({ summary, matrices: { ...matrices, gates: [[zeros(rows, cols)]] } }, []).label('gate')(0);
  assert.deepEqual([gated(2, 1), gated(1, 2)], ['all', '0']);
  // Of the states, the last one is shown if no position is chosen.
  const stateAt = (position) => ((answer.position = position), answer.matrix('states', 0, 0).data[0]);
  assert.deepEqual([null, 0, 1, 2, 9].map(stateAt), [2, 0, 1, 2, 2]);
  answer.position = 1;
  assert.equal(answer.groups('states')[0][0].data[0], 1);
  // Keys are words if there are as many, and past keys stand before them.
  const square = (shapes, labels) => new Answer({ summary: { options: {}, shapes }, matrices: { weights: [[zeros(2, 2)]] } }, labels);
  assert.deepEqual([square({ X: [] }, ['a', 'b']).key(1), square({ X: [], context: [] }, ['a', 'b']).key(1)], ['b', 'k1']);
  assert.deepEqual([square({ X: [] }, []).isSelf(), square({ X: [], context: [] }, []).isSelf()], [true, false]);
  const past = new Answer({ summary: { options: {}, shapes: { X: [], past_K: [2, 4] } }, matrices: { weights: [[zeros(3, 5)]] } }, []);
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((key) => past.wordOf(key)),
    [undefined, undefined, 0, 1, 2],
  );
  // Without softmax, no word sees a later one.
  const linear = new Answer({ summary: { options: { update: 'linear' }, shapes: {} }, matrices: { weights: [[zeros(2, 2)]] } }, []);
  assert.deepEqual([[...linear.mask(0, 0)], [...linear.commonMask(0)]], [[0, 1, 0, 0], [0, 1, 0, 0]]); // prettier-ignore
  // Labels take the place of the words of the answer only if each word has one.
  const words = new Answer({ summary, matrices, tokens: ['x', 'y'] }, ['a']);
  assert.deepEqual([words.query(0), words.unfit], ['x', '1 label for 2 words: the words are shown.']);
  words.relabel(['a', 'b']);
  assert.deepEqual([words.query(1), words.unfit], ['b', '']);
});
