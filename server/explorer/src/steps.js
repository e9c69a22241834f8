// steps.js has the steps of attention in the order in which they are computed: their titles, formulas and texts. view.js draws them.
import { hasSoftmax } from './request.js';

const mi = (text) => `<mi>${text}</mi>`;
const mo = (text) => `<mo>${text}</mo>`;
const sub = (base, below) => `<msub>${mi(base)}${mi(below)}</msub>`;
const transposed = (base) => `<msup>${mi(base)}<mo>⊤</mo></msup>`;
const math = (...parts) => `<math>${parts.join('')}</math>`;
const projection = (name) => math(mi(name), mo('='), mi('X'), sub('W', name));
const root = '<mfrac><mn>1</mn><msqrt><mi>d</mi></msqrt></mfrac>';

// The steps. rows and cols say what a row and a column stand for: a query, a key, both (a word is a query and a key), or a dimension.
// measure: what a number of the step is.
export const STEPS = [
  {
    name: 'X',
    group: 'project',
    measure: 'entry of X',
    title: 'Words',
    formula: math(mi('X')),
    rows: 'both',
    cols: 'dimension',
    text: 'one row for each word',
  },
  {
    name: 'context',
    group: 'project',
    measure: 'entry of C',
    title: 'Context',
    formula: math(mi('C')),
    rows: 'key',
    cols: 'dimension',
    text: 'what is attended to',
  },
  {
    name: 'Q',
    group: 'project',
    measure: 'entry of Q',
    title: 'Queries',
    formula: projection('Q'),
    rows: 'query',
    cols: 'dimension',
    text: 'what each word looks for',
  },
  {
    name: 'K',
    group: 'project',
    measure: 'entry of K',
    title: 'Keys',
    formula: projection('K'),
    rows: 'key',
    cols: 'dimension',
    text: 'what each word offers',
  },
  {
    name: 'V',
    group: 'project',
    measure: 'entry of V',
    title: 'Values',
    formula: projection('V'),
    rows: 'key',
    cols: 'dimension',
    text: 'what each word hands on',
  },
  {
    name: 'scores',
    group: 'score',
    measure: 'score',
    title: 'Scores',
    formula: math(mi('S'), mo('='), mi('Q'), transposed('K')),
    rows: 'query',
    cols: 'key',
    text: 'how well query and key match',
  },
  {
    name: 'scaled_scores',
    group: 'score',
    measure: 'scaled score',
    title: 'Scaled',
    formula: math(sub('S', 'scaled'), mo('='), root, mi('S')),
    rows: 'query',
    cols: 'key',
    text: 'makes the weights more equal',
  },
  {
    name: 'masked_scores',
    group: 'score',
    measure: 'masked score',
    title: 'Masked',
    formula: math(sub('S', 'masked'), mo('='), sub('S', 'scaled'), mo('+'), mi('M')),
    rows: 'query',
    cols: 'key',
    text: 'M is −∞ in the hatched cells',
  },
  {
    name: 'gates',
    group: 'forget',
    measure: 'gate',
    title: 'Gates',
    formula: math(sub('g', 't'), mo('='), `<msup>${mi('e')}${mi('decay')}</msup>`),
    rows: 'query',
    cols: 'gate',
    names: { rows: 'word ↓', cols: 'column of K →' },
    text: 'how much of the state each word keeps: 1 keeps all, and 0 forgets all',
  },
  {
    name: 'uncorrected',
    group: 'forget',
    measure: 'weight before corrections',
    title: 'Uncorrected',
    formula: math(mi('U')),
    rows: 'query',
    cols: 'key',
    text: 'the scaled score, times the share of its value that the key writes, times the gates since then',
  },
  {
    name: 'corrections',
    group: 'forget',
    measure: 'correction',
    title: 'Corrections',
    formula: math(mi('C')),
    rows: 'query',
    cols: 'key',
    text: 'what words in between took away, or added, when they wrote under a similar key',
  },
  {
    name: 'weights',
    group: 'weigh',
    measure: 'weight',
    title: 'Weights',
    formula: math(mi('A'), mo('='), mi('softmax'), mo('('), sub('S', 'masked'), mo(')')),
    rows: 'query',
    cols: 'key',
    text: 'how each query shares its attention among the keys; each row sums to 1',
  },
  {
    name: 'states',
    group: 'mix',
    measure: 'entry of the state',
    title: 'State',
    formula: math(mi('S')),
    rows: 'dimension',
    cols: 'dimension',
    names: { rows: 'column of K ↓', cols: 'column of V →' },
    text: 'what all words so far have stored. Each query reads its output from it, and no list of keys is kept',
  },
  {
    name: 'output',
    group: 'mix',
    measure: 'entry of Y',
    title: 'Output',
    formula: math(mi('Y'), mo('='), mi('A'), mi('V')),
    rows: 'query',
    cols: 'dimension',
    text: 'each word is a mix of the values',
  },
];

// The names of the axes of figures.
const ROWS = { query: 'query ↓', key: 'key ↓', both: 'word ↓' };
const COLUMNS = { key: 'key →', dimension: 'column →' };
export const axisNames = ({ rows, cols, names }) => names ?? { rows: ROWS[rows], cols: COLUMNS[cols] };

export const GROUPS = {
  project: 'Words become queries, keys and values',
  score: 'Every query meets every key',
  forget: 'Words forget and correct what is stored',
  weigh: 'Softmax turns scores into weights',
  mix: 'The weights mix the values',
};

// Returns the heading of a group for a request.
export function titleOf(group, { options }) {
  if (group === 'mix' && options.update) return 'The state gives the output';
  if (group !== 'weigh' || hasSoftmax(options)) return GROUPS[group];
  if (options.update) return 'What is left are the weights';
  if (options.normalization === 'stick_breaking') return 'Broken sticks turn scores into weights';
  return options.normalization === 'none' ? 'The masked scores are the weights, without softmax' : 'The sigmoid turns scores into weights';
}

function scaledText(step, options) {
  const { scale } = options;
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
  return 'sink' in options ? 'how each query shares its attention; the sink takes the rest up to 1' : step.text;
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

// Returns the formula of a step for a request.
export function formulaOf(step, summary) {
  const { options, projected, shapes } = summary;
  const own = !projected && 'QKV'.includes(step.name);
  if (own) return math(mi(step.name), ...('X' in shapes || summary.words ? [mo('='), mi('X')] : []));
  if ('KV'.includes(step.name) && shapes.context) return math(mi(step.name), mo('='), mi('C'), sub('W', step.name));
  if (step.name === 'scaled_scores' && 'scale' in options) {
    return math(sub('S', 'scaled'), mo('='), `<mn>${Number(options.scale)}</mn>`, mo('·'), mi('S'));
  }
  if (options.update) {
    const formula = ofState(step.name, options.update);
    if (formula) return math(...formula);
  }
  if (step.name === 'weights' && options.normalization === 'none') return math(mi('A'), mo('='), sub('S', 'masked'));
  if (step.name === 'weights' && options.normalization === 'stick_breaking') {
    return math(mi('A'), mo('='), mi('stick'), mo('('), sub('S', 'masked'), mo(')'));
  }
  if (step.name === 'weights' && !hasSoftmax(options)) {
    const bias = options.sigmoid_bias ? [mo('+'), mi('b')] : [];
    return math(mi('A'), mo('='), mi('σ'), mo('('), sub('S', 'masked'), ...bias, mo(')'));
  }
  if (step.name === 'output' && shapes.W_O) return math(mi('Y'), mo('='), mo('('), mi('A'), mi('V'), mo(')'), sub('W', 'O'));
  return step.formula;
}
