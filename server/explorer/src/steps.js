// steps.js has the steps of attention in the order in which they are computed: their titles, formulas and texts. stage.js shows them.
import { ofHead } from './arithmetic.js';
import { formatNumber } from './numbers.js';
import { hasSoftmax, isTurned, sourceOf } from './request.js';

const mi = (text) => `<mi>${text}</mi>`;
const mo = (text) => `<mo>${text}</mo>`;
const sub = (base, below) => `<msub>${mi(base)}${mi(below)}</msub>`;
const transposed = (base) => `<msup>${mi(base)}<mo>⊤</mo></msup>`;
const math = (...parts) => `<math>${parts.join('')}</math>`;
const root = '<mfrac><mn>1</mn><msqrt><mi>d</mi></msqrt></mfrac>';

// The formulas of the steps, as parts of MathML.
const FORMULAS = {
  X: [mi('X')],
  context: [mi('C')],
  value_context: [sub('C', 'V')],
  W_Q: [sub('W', 'Q')],
  W_K: [sub('W', 'K')],
  W_V: [sub('W', 'V')],
  products: [sub('q', 'c'), sub('k', 'c')],
  scores: [mi('S'), mo('='), mi('Q'), transposed('K')],
  masked_scores: [sub('S', 'masked'), mo('='), sub('S', 'scaled'), mo('+'), mi('M')],
  gates: [sub('g', 't'), mo('='), `<msup>${mi('e')}${mi('decay')}</msup>`],
  uncorrected: [mi('U')],
  corrections: [mi('C')],
  weights: [mi('A'), mo('='), mi('softmax'), mo('('), sub('S', 'masked'), mo(')')],
  states: [mi('S')],
  mixed: [mi('A'), mi('V')],
  joined: [mi('A'), mi('V'), mo('…')],
  W_O: [sub('W', 'O')],
  output: [mi('Y'), mo('='), mi('A'), mi('V')],
};

// rows and cols say what a row and a column stand for: a query, a key, both (a word is a query and a key), or a dimension. measure: what a
// number of the step is. names: the names of the axes, if they are others.
const step = (name, title, measure, rows, cols, text, names) => ({ name, title, measure, rows, cols, text, names });

// prettier-ignore
export const STEPS = [
  step('X', 'Words', 'entry of X', 'both', 'dimension', 'one row for each word'),
  step('context', 'Context', 'entry of C', 'key', 'dimension', 'what is attended to'),
  step('value_context', 'Value context', 'entry of C_V', 'key', 'dimension', 'what the values are made of'),
  step('W_Q', 'W_Q', 'entry of W_Q', 'dimension', 'dimension', 'learnt in training: it turns each word into its query'),
  step('Q', 'Queries', 'entry of Q', 'query', 'dimension', 'what each word looks for'),
  step('W_K', 'W_K', 'entry of W_K', 'dimension', 'dimension', 'learnt in training: it turns each word into its key'),
  step('K', 'Keys', 'entry of K', 'key', 'dimension', 'what each word offers'),
  step('W_V', 'W_V', 'entry of W_V', 'dimension', 'dimension', 'learnt in training: it turns each word into its value'),
  step('V', 'Values', 'entry of V', 'key', 'dimension', 'what each word hands on'),
  step('products', 'Products', 'product', 'key', 'dimension', 'each number of the query, times that of the key in the same column; a row sums to the score'),
  step('scores', 'Scores', 'score', 'query', 'key', 'how well query and key match'),
  step('scaled_scores', 'Scaled', 'scaled score', 'query', 'key', 'makes the weights more equal'),
  step('masked_scores', 'Masked', 'masked score', 'query', 'key', 'M is −∞ in the hatched cells'),
  step('gates', 'Gates', 'gate', 'query', 'gate', 'how much of the state each word keeps: 1 keeps all, and 0 forgets all', { rows: 'word ↓', cols: 'column of K →' }),
  step('uncorrected', 'Uncorrected', 'weight before corrections', 'query', 'key', 'the scaled score, times the share of its value that the key writes, times the gates since then'),
  step('corrections', 'Corrections', 'correction', 'query', 'key', 'what words in between took away, or added, when they wrote under a similar key'),
  step('weights', 'Weights', 'weight', 'query', 'key', 'how each query shares its attention among the keys; each row sums to 1'),
  step('states', 'State', 'entry of the state', 'dimension', 'dimension', 'what all words so far have stored. Each query reads its output from it, and no list of keys is kept', { rows: 'column of K ↓', cols: 'column of V →' }),
  step('mixed', 'Mixed values', 'entry of A V', 'query', 'dimension', 'what this head gives to each word: the values, mixed by its weights'),
  step('joined', 'All heads', 'entry of all heads', 'query', 'dimension', 'the mixed values of all heads, side by side'),
  step('W_O', 'W_O', 'entry of W_O', 'dimension', 'dimension', 'learnt in training: it mixes the outputs of all heads'),
  step('output', 'Output', 'entry of Y', 'query', 'dimension', 'each word is a mix of the values'),
];

export const stepNamed = (name) => STEPS.find((step) => step.name === name);

// The names of the axes of figures.
const ROWS = { query: 'query ↓', key: 'key ↓', both: 'word ↓' };
const COLUMNS = { key: 'key →', dimension: 'column →' };
export const axisNames = ({ rows, cols, names }) => names ?? { rows: ROWS[rows], cols: COLUMNS[cols] };

function scaledText(step, options) {
  const { scale } = options;
  if (typeof (scale ?? 1) !== 'number') return 'the scores times the scale of their head';
  if (scale === 1) return 'the scores themselves, because scale is 1';
  if (!hasSoftmax(options) || scale <= 0) return 'the scores times the scale';
  return scale > 1 ? 'larger scores make softmax sharper' : step.text;
}

// What the weights are, for each rule of states.
const WITHOUT_SOFTMAX = {
  linear: 'the scaled scores themselves, without softmax; what has been written stays for ever',
  gated: 'the scaled scores, times the gates between key and query; what has been written fades',
  delta: 'the uncorrected weights and the corrections; a word that writes under an old key replaces what was there',
  gated_delta: 'the uncorrected weights and the corrections; what has been written fades, and a later word may replace it',
};

// Returns whether the numbers of a step may be negative.
export const isSigned = (name, { normalization, update }) =>
  name === 'weights' ? normalization === 'none' || Boolean(update) : name !== 'gates';

// Returns the text of a step for a request.
export function textOf(step, { options }) {
  if (step.name === 'scaled_scores') return scaledText(step, options);
  if (step.name === 'output' && options.update) return 'what each query reads from the state: the values, mixed by the weights';
  if (step.name !== 'weights') return step.text;
  if (options.update) return WITHOUT_SOFTMAX[options.update];
  if (options.normalization === 'none') return 'the masked scores themselves, and 0 in the hatched cells';
  if (options.normalization === 'stick_breaking') return 'from the last key on, each takes the sigmoid of its score of what is left of 1';
  if (!hasSoftmax(options)) return 'the sigmoid of each masked score; a row need not sum to 1';
  return options.sink != null ? 'how each query shares its attention; the sink takes the rest up to 1' : step.text;
}

// Returns the parts of the formula of a step without softmax, or undefined if it is that of the step.
function ofState(name, update) {
  const scaled = sub('S', 'scaled');
  const gates = `<munder>${mo('∏')}${mi('t')}</munder>${sub('g', 't')}`;
  const gated = update.startsWith('gated');
  const corrects = update.endsWith('delta');
  if (name === 'weights') return [mi('A'), mo('='), ...(corrects ? [mi('U'), mo('+'), mi('C')] : gated ? [scaled, gates] : [scaled])];
  if (name === 'uncorrected') return [mi('U'), mo('='), scaled, mi('β'), ...(gated ? [gates] : [])];
  if (name === 'corrections') return [mi('C'), mo('='), mi('A'), mo('−'), mi('U')];
  if (name !== 'states') return undefined;
  const before = [...(gated ? [mi('g')] : []), mi('S')];
  return [mi('S'), mo('←'), ...before, mo('+'), mi('k'), `<msup>${mi('u')}<mo>⊤</mo></msup>`];
}

// Returns the parts of the formula of Q, K or V, whose biases a request may add.
function ofRows(name, summary) {
  const { projected, shapes, words } = summary;
  const given = 'X' in shapes || words ? [mo('='), mi('X')] : [];
  const made = projected ? [mo('='), ...FORMULAS[sourceOf(name, summary)], sub('W', name)] : given;
  return [mi(name), ...made, ...(shapes[`b_${name}`] ? [mo('+'), sub('b', name)] : [])];
}

// Returns the parts of the formula of the scaled scores.
function ofScaled({ scale, softcap }) {
  const factor = typeof scale === 'number' ? `<mn>${formatNumber(scale, 4)}</mn>${mo('·')}` : scale ? mi('s') : root;
  const cap = softcap > 0 && `<mn>${softcap}</mn>`;
  const capped = cap ? [cap, mi('tanh'), mo('('), factor, mi('S'), mo('/'), cap, mo(')')] : [factor, mi('S')];
  return [sub('S', 'scaled'), mo('='), ...capped];
}

// Returns whether the outputs of the heads are multiplied by the sigmoid of a gate.
const gated = ({ shapes }) => Boolean(shapes.gate || shapes.W_G);

// Returns the formula of a step for a request.
export function formulaOf(step, summary) {
  const { options, shapes } = summary;
  if ('QKV'.includes(step.name)) return math(...ofRows(step.name, summary));
  if (step.name === 'scores' && isTurned(options)) return math(mi('S'));
  if (step.name === 'scaled_scores') return math(...ofScaled(options));
  if (options.update) {
    const formula = ofState(step.name, options.update);
    if (formula) return math(...formula);
  }
  if (step.name === 'weights' && options.normalization === 'none') return math(mi('A'), mo('='), sub('S', 'masked'));
  if (step.name === 'weights' && options.normalization === 'stick_breaking')
    return math(mi('A'), mo('='), mi('stick'), mo('('), sub('S', 'masked'), mo(')'));
  if (step.name === 'weights' && !hasSoftmax(options)) {
    const bias = options.sigmoid_bias ? [mo('+'), mi('b')] : [];
    return math(mi('A'), mo('='), mi('σ'), mo('('), sub('S', 'masked'), ...bias, mo(')'));
  }
  if (step.name === 'output' && (shapes.W_O || gated(summary))) {
    const gate = gated(summary) ? [mi('σ'), mo('('), mi('G'), mo(')'), mo('∘')] : [];
    return math(mi('Y'), mo('='), mo('('), ...gate, mi('A'), mi('V'), mo(')'), ...(shapes.W_O ? [sub('W', 'O')] : []));
  }
  return math(...FORMULAS[step.name]);
}

const SHORT = {
  ...{ context: 'C', value_context: 'C_V', joined: 'all heads' },
  ...{ scaled_scores: 'scaled', masked_scores: 'masked', states: 'state' },
};
const MEANT = { Q: 'queries', K: 'keys', V: 'values' };

// Returns the title of a matrix in the flow. id: the name of a step, or q, k or v for the matrices beside the scores and the weights.
export function titleOf(id, summary) {
  const { projected, shapes, options } = summary;
  const name = id.toUpperCase();
  const bias = shapes[`b_${name}`] ? ` + b_${name}` : '';
  if (id === 'X') return 'X, words';
  if (id === 'k') return projected || !bias ? 'Kᵀ' : '(K + b_K)ᵀ';
  if (id in MEANT) return `${id} = ${SHORT[sourceOf(id, summary)] ?? 'X'} W_${id}${bias}`;
  if (name in MEANT) return projected ? name : bias ? name + bias : `${name}, ${MEANT[name]}`;
  if (id === 'scores') return isTurned(options) || (!projected && (shapes.b_Q || shapes.b_K)) ? 'S' : 'S = Q Kᵀ';
  if (id === 'weights') return options.normalization === 'none' ? 'A' : 'A, weights';
  if (id === 'mixed') return 'A V';
  if (id === 'output') return shapes.W_O ? 'Y' : 'Y, output';
  return SHORT[id] ?? id;
}

// The keys of requests that may add to a score or forbid it.
const FORBIDS = ['mask', 'bias', 'causal', 'window', 'key_padding', 'lengths', 'sequences', 'sequence_offsets', 'alibi', 'alibi_slopes', 'decay'];

// Returns what leads to a matrix of the flow, in a word. d: the columns of Q.
export function opOf(id, { path, options, shapes }, head, d) {
  if (id === 'scaled_scores') {
    const scale = ofHead(options.scale, head);
    const cap = options.softcap > 0 ? `, capped at ${options.softcap}` : '';
    return (typeof scale === 'number' ? `× ${formatNumber(scale, 4)}` : `÷ √${d ?? 'd'}`) + cap;
  }
  // The page does not know the rules of a stored layer, whose answer has no path.
  if (id === 'masked_scores') return !path || FORBIDS.some((key) => options[key] || shapes[key]) ? 'mask' : 'no mask';
  if (id !== 'weights') return '';
  if (options.update) return '';
  return { none: '', sigmoid: 'sigmoid', stick_breaking: 'stick' }[options.normalization] ?? 'softmax';
}
