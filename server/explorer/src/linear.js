// linear.js shows attention without softmax. It adds to an answer what the server does not send (the scores, the weights before corrections,
// the corrections, and how each weight was made), and it says what each word does to the state. The page loads it with the first such answer.
import { make } from './dom.js';
import { columns, matrices, measured, rank, rowOf, vectors } from './matrices.js';
import { formatNumber } from './numbers.js';
import { normalised, partsOf, stepOf, weightsOf } from './recurrence.js';

const NEAR = 1e-3; // relative error; if the weights of the page differ more from those of the server, the page does not explain them
const MOST = 20_000_000; // products; the page does not explain the weights of a longer request
const EPSILON = 1e-6; // the server's norm_epsilon if the request names none
const SHOWN = 12; // words between key and query that the arithmetic names

const ofHead = (item, head, heads) => item?.[Math.floor((head * item.length) / heads)] ?? null;

// Returns the shares of a request as lists [batch][head], or null if they are not lists of numbers. packed: a list for each row has a number
// for each head.
function sharesOf(beta, { packed }) {
  if (!Array.isArray(beta)) return null;
  const items = Math.max(rank(beta) - 2, 0);
  if (!packed || rank(beta) < 2) return vectors(beta, items);
  return matrices(beta, items).map(([all]) => Array.from({ length: all.cols }, (_, head) => columns(all, head, 1).data));
}

// Returns the parts of a head that the page computes with, or null if it does not have their numbers.
function headOf(answer, body, batch, head) {
  const { update, scale, normalize_QK, norm_epsilon = EPSILON } = answer.summary.options;
  const at = (name) => answer.matrix(name, batch, head);
  let [Q, K] = [at('Q'), at('K')];
  if (!Q || !K || Q.cols !== K.cols || Q.rows * K.rows * K.cols > MOST) return null;
  if (normalize_QK) [Q, K] = [Q, K].map((matrix) => normalised(matrix, norm_epsilon));
  const gates = at('gates');
  const shares = sharesOf(body?.beta, answer.summary);
  const beta = ofHead(shares?.[Math.min(batch, shares.length - 1)], head, answer.heads);
  if (update.endsWith('delta') && beta?.length !== K.rows) return null;
  const factor = Array.isArray(scale) ? (scale[head] ?? scale[0]) : scale;
  return { Q, K, V: at('V'), gates, beta, scale: factor ?? 1 / Math.sqrt(Q.cols), ownScale: typeof factor === 'number' };
}

function agree(a, b) {
  const most = b.reduce((largest, value) => Math.max(largest, Math.abs(value)), 1e-30);
  return a.every((value, at) => Math.abs(value - b[at]) <= NEAR * most);
}

// Adds the steps that the server does not send to the matrices of an answer. Returns the heads as [batch][head], or null if the page cannot
// compute the weights of the server.
function complete(answer, body) {
  const all = answer.matrices.weights.map((item, batch) =>
    item.map((weights, head) => {
      const parts = headOf(answer, body, batch, head);
      const made = parts && weightsOf(parts);
      return made && agree(made.weights, weights.data) ? { parts, made, weights } : null;
    }),
  );
  if (all.some((item) => item.some((head) => !head))) return null;
  const { options } = answer.summary;
  const n = answer.queries;
  const matrix = (data) => measured({ rows: n, cols: n, data });
  const add = (name, from) => (answer.matrices[name] = all.map((item) => item.map((one) => matrix(from(one)))));
  add('scores', ({ made }) => made.scores);
  add('scaled_scores', ({ made }) => made.scaled_scores);
  if (options.update.endsWith('delta')) {
    add('uncorrected', ({ made }) => made.uncorrected);
    add('corrections', ({ made, weights }) => weights.data.map((weight, at) => weight - made.uncorrected[at]));
  }
  return all.map((item) => item.map(({ parts }) => parts));
}

// Gives all states of a head the range of numbers that they have together.
function measureStates(answer) {
  for (const list of answer.matrices.states?.flat() ?? []) {
    const reach = { lo: Math.min(...list.map(({ lo }) => lo)), hi: Math.max(...list.map(({ hi }) => hi)) };
    for (const state of list) state.reach = reach;
  }
}

const signedText = (value, digits = 3) => `${value < 0 ? '−' : '+'} ${formatNumber(Math.abs(value), digits)}`;
const gateText = ([lo, hi]) => (lo === hi ? formatNumber(lo, 3) : `${formatNumber(lo, 3)} to ${formatNumber(hi, 3)}`);

// Returns the links from the products to the weight: [[step, what, value]].
function linksOf({ parts, scale, d, key, forbidden, weight }) {
  if (forbidden) return [['weights', 'a later word, which is not in the state yet: weight', 0]];
  if (!parts) return [['weights', 'weight', weight]];
  const { score, scaled, share, stored, gate, uncorrected, corrected, steps, gated, delta } = parts;
  const links = [
    ['scores', '=', score],
    ['scaled_scores', scale === null ? `× 1/√${d} =` : `× ${formatNumber(scale, 4)} =`, scaled],
  ];
  if (delta) links.push(['uncorrected', `× ${formatNumber(share, 3)}, the share that ${key} writes =`, stored]);
  const through = gate === null ? 'after the gates of its columns =' : `× ${formatNumber(gate, 3)}, the gates since then =`;
  if (gated && steps.length) links.push([delta ? 'uncorrected' : 'weights', through, uncorrected]);
  if (delta && steps.length) links.push(['weights', `${signedText(corrected)} by corrections =`, weight]);
  if (links.length === 2) links.push(['weights', 'no softmax: weight', weight]);
  return links;
}

// Returns the words between key and query that are shown: all, or the last one and those with the largest corrections or the smallest gates.
function shownSteps(steps) {
  if (steps.length <= SHOWN) return steps;
  const size = ({ correction, gate }) => (correction === null ? 1 - gate[0] : Math.abs(correction));
  const chosen = new Set([...steps.slice(0, -1)].sort((a, b) => size(b) - size(a)).slice(0, SHOWN - 1));
  return steps.filter((step, at) => chosen.has(step) || at === steps.length - 1);
}

// Adds what the page computes to an answer. text: the request.
export function understand(answer, text) {
  const body = text === null ? null : JSON.parse(text);
  measureStates(answer);
  const heads = complete(answer, body);
  const partsAt = (batch, head) => heads?.[batch]?.[head] ?? null;

  // Returns the arithmetic of a cell: the row of Q and that of K, if the page knows them, the links to the weight, and what drawWay() takes.
  function arithmetic({ batch, head, row, col }) {
    const one = partsAt(batch, head);
    const weights = answer.matrix('weights', batch, head);
    const weight = weights.data[row * weights.cols + col];
    const forbidden = col > row;
    const parts = one && !forbidden ? partsOf(one, row, col) : null;
    if (parts) Object.assign(parts, { gated: Boolean(one.gates), delta: Boolean(one.beta) });
    const scale = one?.ownScale ? one.scale : null;
    const links = linksOf({ parts, scale, d: one?.Q.cols, key: answer.key(col), forbidden, weight });
    return { row, col, weight, parts, links, products: Boolean(one), ...(one && { q: rowOf(one.Q, row), k: rowOf(one.K, col) }) };
  }

  // Draws what the words between key and query did, as a table.
  function drawWay(root, { parts, row, col }) {
    if (!parts?.steps.length) return;
    const shown = shownSteps(parts.steps);
    const most = parts.steps.reduce((best, step) => (Math.abs(step.correction) > Math.abs(best.correction) ? step : best));
    const table = make('table', '', root);
    make('caption', 'unseen', table, `From ${answer.key(col)} to ${answer.query(row)}`);
    const line = (title, cellOf) => {
      const made = table.insertRow();
      Object.assign(make('th', '', made, title), { scope: 'row' });
      for (const step of shown) cellOf(made, step);
    };
    line('then', (made, { word }) => Object.assign(make('th', '', made, answer.key(word)), { scope: 'col', title: answer.key(word) }));
    if (parts.gated) line('gate', (made, { gate }) => make('td', '', made, `× ${gateText(gate)}`));
    if (parts.delta) {
      line('corrects', (made, step) =>
        make('td', step === most && step.correction ? 'strong' : '', made, step.correction ? signedText(step.correction) : '0'),
      );
    }
    const left = parts.steps.length - shown.length;
    if (left) make('p', 'note', root, `and ${left.toLocaleString('en')} more words, which changed less`);
  }

  // Returns the state before the one that is shown, or zeros if the request has none before the first. Returns null after the last word that
  // `lengths` names, because the words after it write nothing.
  function beforeOf(batch, head, position) {
    if (position >= ([answer.summary.options.lengths].flat()[batch] ?? Infinity)) return null;
    const place = answer.place('states', batch, head);
    const states = answer.matrices.states[place.batch][place.head];
    if (position > 0) return states[position - 1].data;
    if (!answer.summary.shapes.past_state) return new Float64Array(states[0].data.length);
    return answer.matrix('past_state', batch, head)?.data ?? null;
  }

  // Returns the numbers of a cell of the state that is shown: what it was, what the gate has left, and what the word has written.
  function factsOf({ batch, head, row, col }) {
    const state = answer.matrix('states', batch, head);
    const position = Math.min(answer.position ?? Infinity, answer.queries - 1);
    const before = beforeOf(batch, head, position);
    if (!before) return [];
    const at = row * state.cols + col;
    const gates = answer.matrix('gates', batch, head);
    const gate = gates ? gates.data[position * gates.cols + (gates.cols === 1 ? 0 : row)] : 1;
    const kept = gate * before[at];
    return [
      [`before ${answer.key(position)}`, formatNumber(before[at])],
      ...(gates ? [[`× its gate ${formatNumber(gate, 3)}`, formatNumber(kept)]] : []),
      ['written', signedText(state.data[at] - kept, 4)],
    ];
  }

  function sayStep(batch, head, position) {
    const one = partsAt(batch, head);
    const before = beforeOf(batch, head, position);
    if (!one?.V || !before) return '';
    const { kept, held, share } = stepOf(one, before, position);
    const short = (values) =>
      values.length > 6 ? null : Array.from(values, (x) => formatNumber(Math.abs(x) < 1e-12 ? 0 : x, 2)).join(', ');
    const word = answer.key(position);
    const value = short(rowOf(one.V, position));
    const keeps = kept ? `${word} keeps ${gateText(kept)} of the state. ` : '';
    if (!one.beta) return `${keeps}${kept ? 'It' : word} adds its key times its value${value === null ? '' : ` (${value})`}.`;
    const way = `${word} writes ${formatNumber(share, 3)} of the way`;
    if (value === null) return `${keeps}${way} from what the state holds under its key to its value.`;
    return `${keeps}Under the key of ${word}, the state holds ${short(held)}. ${way} to its value (${value}).`;
  }

  const { update } = answer.summary.options;
  answer.own = { arithmetic, drawWay: heads && update !== 'linear' ? drawWay : null, factsOf, factors: partsAt, sayStep };
}
