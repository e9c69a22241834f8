// steps.js has the steps of attention in the order in which they are computed: their titles, formulas and texts. stage.js shows them.
import { ofHead } from './arithmetic.js';
import { formatNumber } from './numbers.js';
import { hasSoftmax, isTurned, sourceOf } from './request.js';

const ROOT = '<mfrac><mn>1</mn><msqrt><mi>d</mi></msqrt></mfrac>';

function symbolOf(text) {
  const kind = /^\p{L}/u.test(text) ? 'mi' : /\d/.test(text) ? 'mn' : 'mo';
  return `<${kind}>${text}</${kind}>`;
}

// Returns a formula as MathML. formula: names, numbers and signs between spaces; below a name stands what follows _, and above it what follows ^.
function mathOf(formula) {
  const partOf = (part) => {
    if (part === '1/√d') return ROOT;
    const [, base, place, small] = /^([^_^]+)([_^]?)(.*)$/.exec(part);
    if (!place) return symbolOf(base);
    const tag = place === '^' ? 'msup' : base === '∏' ? 'munder' : 'msub';
    return `<${tag}>${symbolOf(base)}${symbolOf(small)}</${tag}>`;
  };
  return `<math>${formula.split(' ').map(partOf).join('')}</math>`;
}

// rows and cols say what a row and a column stand for: a query, a key, both (a word is a query and a key), or a dimension. measure: what a
// number of the step is. formula: that of softmax with one head, for mathOf(); '' if it depends on the request. names: the names of the axes, if
// they are others.
const step = (name, title, measure, rows, cols, formula, text, names) => ({ name, title, measure, rows, cols, formula, text, names });

// prettier-ignore
export const STEPS = [
  step('X', 'Words', 'entry of X', 'both', 'dimension', 'X', 'one row for each word'),
  step('context', 'Context', 'entry of C', 'key', 'dimension', 'C', 'what is attended to'),
  step('value_context', 'Value context', 'entry of C_V', 'key', 'dimension', 'C_V', 'what the values are made of'),
  step('W_Q', 'W_Q', 'entry of W_Q', 'dimension', 'dimension', 'W_Q', 'learnt in training: it turns each word into its query'),
  step('Q', 'Queries', 'entry of Q', 'query', 'dimension', '', 'what each word looks for'),
  step('W_K', 'W_K', 'entry of W_K', 'dimension', 'dimension', 'W_K', 'learnt in training: it turns each word into its key'),
  step('K', 'Keys', 'entry of K', 'key', 'dimension', '', 'what each word offers'),
  step('W_V', 'W_V', 'entry of W_V', 'dimension', 'dimension', 'W_V', 'learnt in training: it turns each word into its value'),
  step('V', 'Values', 'entry of V', 'key', 'dimension', '', 'what each word hands on'),
  step('products', 'Products', 'product', 'key', 'dimension', 'q_c k_c', 'each number of the query, times that of the key in the same column; a row sums to the score'),
  step('scores', 'Scores', 'score', 'query', 'key', 'S = Q K^⊤', 'how well query and key match'),
  step('scaled_scores', 'Scaled', 'scaled score', 'query', 'key', '', 'makes the weights more equal'),
  step('masked_scores', 'Masked', 'masked score', 'query', 'key', 'S_masked = S_scaled + M', 'M is −∞ in the hatched cells'),
  step('gates', 'Gates', 'gate', 'query', 'gate', 'g_t = e^decay', 'how much of the state each word keeps: 1 keeps all, and 0 forgets all', { rows: 'word ↓', cols: 'column of K →' }),
  step('uncorrected', 'Uncorrected', 'weight before corrections', 'query', 'key', '', 'the scaled score, times the share of its value that the key writes, times the gates since then'),
  step('corrections', 'Corrections', 'correction', 'query', 'key', '', 'what words in between took away, or added, when they wrote under a similar key'),
  step('weights', 'Weights', 'weight', 'query', 'key', '', 'how each query shares its attention among the keys; each row sums to 1'),
  step('states', 'State', 'entry of the state', 'dimension', 'dimension', '', 'what all words so far have stored. Each query reads its output from it, and no list of keys is kept', { rows: 'column of K ↓', cols: 'column of V →' }),
  step('mixed', 'Mixed values', 'entry of A V', 'query', 'dimension', 'A V', 'what this head gives to each word: the values, mixed by its weights'),
  step('joined', 'All heads', 'entry of all heads', 'query', 'dimension', 'A V …', 'the mixed values of all heads, side by side'),
  step('W_O', 'W_O', 'entry of W_O', 'dimension', 'dimension', 'W_O', 'learnt in training: it mixes the outputs of all heads'),
  step('output', 'Output', 'entry of Y', 'query', 'dimension', 'Y = A V', 'each word is a mix of the values'),
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

export const isSigned = (name, { normalization, update }) =>
  name === 'weights' ? normalization === 'none' || Boolean(update) : name !== 'gates';

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

const SHORT = {
  ...{ context: 'C', value_context: 'C_V', joined: 'all heads' },
  ...{ scaled_scores: 'scaled', masked_scores: 'masked', states: 'state' },
};
// Returns the formula of a step that only attention without softmax has.
function ofState(name, update) {
  const gates = update.startsWith('gated') ? ' ∏_t g_t' : '';
  if (name === 'uncorrected') return `U = S_scaled β${gates}`;
  if (name === 'corrections') return 'C = A − U';
  return `S ← ${gates ? 'g S' : 'S'} + k u^⊤`;
}

function ofWeights({ update, normalization, sigmoid_bias: bias }) {
  if (update?.endsWith('delta')) return 'A = U + C';
  if (update) return update === 'gated' ? 'A = S_scaled ∏_t g_t' : 'A = S_scaled';
  if (normalization === 'none') return 'A = S_masked';
  if (normalization === 'stick_breaking') return 'A = stick ( S_masked )';
  return normalization === 'sigmoid' ? `A = σ ( S_masked${bias ? ' + b' : ''} )` : 'A = softmax ( S_masked )';
}

// Returns the formula of Q, K or V, whose biases a request may add.
function ofRows(name, summary) {
  const { projected, shapes, words } = summary;
  const given = 'X' in shapes || words ? ' = X' : '';
  const made = projected ? ` = ${SHORT[sourceOf(name, summary)] ?? 'X'} W_${name}` : given;
  return name + made + (shapes[`b_${name}`] ? ` + b_${name}` : '');
}

function ofScaled({ scale, softcap }) {
  const factor = typeof scale === 'number' ? `${formatNumber(scale, 4)} ·` : scale ? 's' : '1/√d';
  return softcap > 0 ? `S_scaled = ${softcap} tanh ( ${factor} S / ${softcap} )` : `S_scaled = ${factor} S`;
}

// Returns the formula of the output if something follows the values: a gate, whose sigmoid multiplies them, or W_O.
const ofOutput = ({ gate, W_G, W_O }) => `Y = ( ${gate || W_G ? 'σ ( G ) ∘ ' : ''}A V )${W_O ? ' W_O' : ''}`;

// Returns the formula of a step for a request, as MathML.
export function formulaOf({ name, formula }, summary) {
  const { options, shapes } = summary;
  if ('QKV'.includes(name)) return mathOf(ofRows(name, summary));
  if (name === 'scores' && isTurned(options)) return mathOf('S');
  if (name === 'scaled_scores') return mathOf(ofScaled(options));
  if (name === 'weights') return mathOf(ofWeights(options));
  if (name === 'output' && (shapes.gate || shapes.W_G || shapes.W_O)) return mathOf(ofOutput(shapes));
  return mathOf(formula || ofState(name, options.update));
}

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
const FORBIDS = [
  ...['mask', 'bias', 'causal', 'window', 'key_padding', 'lengths', 'sequences', 'sequence_offsets', 'alibi', 'alibi_slopes', 'decay'],
];

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
