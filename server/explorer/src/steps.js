// The steps of attention in the order in which they are computed: how each is called, written and read. Facts only; drawing is view.js's.

const mi = (text) => `<mi>${text}</mi>`;
const mo = (text) => `<mo>${text}</mo>`;
const sub = (base, below) => `<msub>${mi(base)}${mi(below)}</msub>`;
const transposed = (base) => `<msup>${mi(base)}<mo>⊤</mo></msup>`;
const math = (...parts) => `<math>${parts.join('')}</math>`;
const projection = (name) => math(mi(name), mo('='), mi('X'), sub('W', name));
const root = '<mfrac><mn>1</mn><msqrt><mi>d</mi></msqrt></mfrac>';

// rows and cols say what an index there is: a query, a key, or a dimension. variance: whether `statistics` has it.
export const STEPS = [
  { name: 'X', group: 'project', title: 'Words', formula: math(mi('X')), rows: 'both', cols: 'dimension', text: 'one row for each word' },
  {
    name: 'context',
    group: 'project',
    title: 'Context',
    formula: math(mi('C')),
    rows: 'key',
    cols: 'dimension',
    text: 'what is attended to',
  },
  {
    name: 'Q',
    group: 'project',
    title: 'Queries',
    formula: projection('Q'),
    rows: 'query',
    cols: 'dimension',
    text: 'what each word asks',
  },
  { name: 'K', group: 'project', title: 'Keys', formula: projection('K'), rows: 'key', cols: 'dimension', text: 'what each word offers' },
  {
    name: 'V',
    group: 'project',
    title: 'Values',
    formula: projection('V'),
    rows: 'key',
    cols: 'dimension',
    text: 'what each word hands on',
  },
  {
    name: 'scores',
    group: 'score',
    title: 'Scores',
    formula: math(mi('S'), mo('='), mi('Q'), transposed('K')),
    rows: 'query',
    cols: 'key',
    text: 'how well each query fits each key',
  },
  {
    name: 'scaled_scores',
    group: 'score',
    title: 'Scaled',
    formula: math(sub('S', 'scaled'), mo('='), root, mi('S')),
    rows: 'query',
    cols: 'key',
    text: 'small, so that softmax stays soft',
  },
  {
    name: 'masked_scores',
    group: 'score',
    title: 'Masked',
    formula: math(sub('S', 'masked'), mo('='), sub('S', 'scaled'), mo('+'), mi('M')),
    rows: 'query',
    cols: 'key',
    text: 'M is −∞ where hatched',
  },
  {
    name: 'weights',
    group: 'weigh',
    title: 'Weights',
    formula: math(mi('A'), mo('='), mi('softmax'), mo('('), sub('S', 'masked'), mo(')')),
    rows: 'query',
    cols: 'key',
    text: 'how each query spends its attention; each row sums to 1',
  },
  {
    name: 'output',
    group: 'mix',
    title: 'Output',
    formula: math(mi('Y'), mo('='), mi('A'), mi('V')),
    rows: 'query',
    cols: 'dimension',
    text: 'each word, as a mix of the values',
  },
];

export const GROUPS = {
  project: 'Words become queries, keys and values',
  score: 'Every query meets every key',
  weigh: 'Softmax turns scores into weights',
  mix: 'Values, mixed by weight',
};

// The heading of a group, as this request has it.
export function titleOf(group, { options }) {
  return group === 'weigh' && options.normalization === 'none' ? 'Masked scores are the weights, without softmax' : GROUPS[group];
}

function scaledText(step, { scale, normalization }) {
  if (scale === 1) return 'the scores as they are: scale is 1';
  if (normalization === 'none' || scale <= 0) return 'the scores, times the scale';
  return scale > 1 ? 'larger, so that softmax gets sharper' : step.text;
}

// What a step is about, as this request has it.
export function textOf(step, { options }) {
  if (step.name === 'scaled_scores') return scaledText(step, options);
  if (step.name !== 'weights') return step.text;
  if (options.normalization === 'none') return 'the masked scores themselves, 0 where hatched';
  return 'sink' in options ? 'how each query spends its attention; what is missing to 1 went to the sink' : step.text;
}

// The formula of a step as this request has it.
export function formulaOf(step, summary) {
  const { options, projected, shapes } = summary;
  const own = !projected && 'QKV'.includes(step.name);
  if (own) return math(mi(step.name), ...('X' in shapes || summary.words ? [mo('='), mi('X')] : []));
  if ('KV'.includes(step.name) && shapes.context) return math(mi(step.name), mo('='), mi('C'), sub('W', step.name));
  if (step.name === 'scaled_scores' && 'scale' in options) {
    return math(sub('S', 'scaled'), mo('='), `<mn>${Number(options.scale)}</mn>`, mo('·'), mi('S'));
  }
  if (step.name === 'weights' && options.normalization === 'none') return math(mi('A'), mo('='), sub('S', 'masked'));
  if (step.name === 'output' && shapes.W_O) return math(mi('Y'), mo('='), mo('('), mi('A'), mi('V'), mo(')'), sub('W', 'O'));
  return step.formula;
}
