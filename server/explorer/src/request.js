// request.js says what a request means: its shapes, heads and batch, which results to ask for, and which options apply. It needs no page.
// It checks nothing; the server does.

import { parse } from './jsontext.js';
import { OF_SCORES, ruleOf } from './rules.js';

const MOST_OF_STATES = 200_000; // numbers
const MANY = 100_000; // numbers; an answer that has more is not asked for as text
const GRADIENTS = ['grad_output', 'grad_lse', 'grad_weights', 'grad_present_state'];
export const MATRICES = [
  ...['X', 'Q', 'K', 'V', 'context', 'value_context', 'past_K', 'past_V', 'mask', 'bias', 'gate', 'embedding', 'decay', 'beta'],
  ...['past_state', ...GRADIENTS],
];
export const PROJECTIONS = ['W_Q', 'W_K', 'W_V', 'W_O', 'W_G', 'b_Q', 'b_K', 'b_V', 'b_O', 'b_G', 'bias_K', 'bias_V'];

export const PATHS = ['/attention', '/self-attention', '/multi-head-attention', '/linear-attention'];
const projects = (path) => path === PATHS[1] || path === PATHS[2];

// A matrix of a file that the page holds stands in the text of a request as {"file": "Q.npy", "dtype": "F32", "shape": [8, 512, 64]}. The
// worker sends its bytes. Returns whether a value stands for such a matrix.
export const isHeld = (value) => typeof value?.file === 'string' && Array.isArray(value.shape);

export const hasHeld = (text) => text.includes('"file"') && Object.values(parse(text) ?? {}).some(isHeld);

// Returns the shape of nested arrays by their first elements, or that of a draw {"random": ..., "shape": ...} or of a matrix that is held.
export function shapeOf(value) {
  const isList = () => Array.isArray(value) || ArrayBuffer.isView(value);
  if (value && typeof value === 'object' && !isList()) return Array.isArray(value.shape) ? value.shape : [];
  const shape = [];
  for (; isList(); value = value[0]) shape.push(value.length);
  return shape;
}

// Returns whether a body fits only attention without softmax. At the other paths, `decay` needs `causal`.
const hasState = (body) => ['update', 'normalize_QK', 'beta', 'past_state'].some((key) => key in body) || ('decay' in body && !body.causal);

export function pathFor(body) {
  if (Array.isArray(body.heads)) return PATHS[2];
  const biases = ['b_Q', 'b_K', 'b_V']; // of Q, K and V, too
  if (!Object.keys(body).some((key) => PROJECTIONS.includes(key) && !biases.includes(key))) return hasState(body) ? PATHS[3] : PATHS[0];
  return body.heads > 1 || shapeOf(body.W_Q).length === 3 ? PATHS[2] : PATHS[1];
}

// Returns the path for an edited body: the present path, unless the keys of the body fit only another one.
export function pathAfter(path, body) {
  const other = pathFor(body);
  return other !== PATHS[3] && projects(path) === projects(other) ? path : other;
}

const OF_SOFTMAX = ['X', 'axis', 'random', 'dtype', 'digits', 'timeout', 'expected', 'computed_in', 'tolerance', 'fail_on_difference'];

// Returns whether a body fits only /softmax, which the page does not show.
export function isSoftmax(body) {
  const keys = Object.keys(body);
  return 'X' in body && keys.every((key) => OF_SOFTMAX.includes(key)) && ('axis' in body || shapeOf(body.X).length === 1);
}

const EXPECTED = 'expected.'; // before the names of results in a file
const expectedOf = (body) => [
  ...Object.keys(Object(body.expected)),
  ...Object.keys(body).flatMap((key) => (key.startsWith(EXPECTED) ? [key.slice(EXPECTED.length)] : [])),
];

// Returns what the page needs to know of a body: its options, and the shapes of its matrices. projected: the path projects X to Q, K and V.
// packed: the columns of a matrix hold all heads side by side. axes: how many axes of the batch the call has. words: the body
// has a text or tokens. drawn: the server draws K and V, so the body does not have their numbers. expected: the names of the results that
// the body expects. options.update: the rule by which a state changes, if the path is that of attention without softmax.
export function summarise(path, body) {
  const options = {};
  const shapes = {};
  for (const [key, value] of Object.entries(body)) {
    if (MATRICES.includes(key) || PROJECTIONS.includes(key)) shapes[key] = shapeOf(value);
    else if (key === 'heads' && Array.isArray(value)) options.heads = { own: value.length };
    else options[key] = value;
  }
  const projected = projects(path);
  if (path === PATHS[3]) options.update = ruleOf(path, body);
  const rank = Math.max(...['X', 'Q', 'K', 'V'].map((name) => shapes[name]?.length ?? 0));
  const packed = !projected && Number.isInteger(options.heads);
  const axes = Math.max(rank - (projected || packed ? 2 : 3), 0);
  const words = 'text' in body || 'tokens' in body;
  const drawn = !projected && (words || [body.X, body.K].some((value) => value && !Array.isArray(value) && !isHeld(value)));
  return { path, options, shapes, projected, packed, axes, words, drawn, expected: expectedOf(body) };
}

// Returns whether an answer has so many numbers that it comes as bytes. One with the digits that the user chose is text, and so are heads of
// several sizes, which no tensor holds.
export function isLarge({ shapes, options, projected, packed }) {
  const { text, tokens, heads, digits } = options;
  if (heads?.own || digits !== undefined) return false;
  const words = Array.isArray(tokens) ? tokens.length : typeof text === 'string' ? text.split(/\s+/).length : undefined;
  const rows = (...names) => shapes[names.find((name) => shapes[name])]?.at(-2) ?? words ?? 1;
  const leading = Math.max(...['Q', 'K', 'X'].map((name) => (shapes[name] ?? []).slice(0, -2).reduce((a, b) => a * b, 1)));
  const apart = projected || packed ? (heads ?? shapes.W_Q?.at(-3) ?? 1) : 1;
  return leading * apart * rows('Q', 'X') * rows('K', 'context', 'X') * 4 > MANY;
}

// Returns the name of the matrix of which Q, K or V is made.
export const sourceOf = (name, { shapes }) =>
  ({ Q: [], K: ['context'], V: ['value_context', 'context'] })[name].find((source) => source in shapes) ?? 'X';

// Returns whether the scores are made of other rows than Q and K, which a norm or a rotation has changed. given: a request, or its options.
export const isTurned = (given) => ['rotary', 'rotary_cos', 'norm_Q', 'norm_K', 'normalize_QK'].some((key) => given[key]);

export const hasSoftmax = ({ normalization, update }) => !update && (normalization ?? 'softmax') === 'softmax';

// Returns whether the states after all positions are few numbers.
function areFew({ shapes }) {
  const [K, V] = ['K', 'V'].map((name) => shapes[name] ?? shapes.X ?? []);
  const most = Math.max(...[K, V].map((shape) => shape.reduce((product, size) => product * size, 1)));
  return most * Math.max(K.at(-1), V.at(-1)) <= MOST_OF_STATES;
}

// Returns why the answer to a request has no weights that the page could show, as {detail, pointer}, or null.
export function withoutWeights({ options, shapes }) {
  const key = ['sequences', 'sequence_offsets'].find((name) => options[name]);
  const whole = 'The server has computed their output and has no weights of them. Send one sequence, or separate them with a mask.';
  if (key) return { detail: `This page shows the weights of sequences that are not packed. ${whole}`, pointer: `/${key}` };
  const empty = ['Q', 'K', 'X'].find((name) => shapes[name]?.includes(0));
  return empty ? { detail: `${empty} has no row, so there is no weight to show.`, pointer: `/${empty}` } : null;
}

// Returns the results that the page asks for: those that it shows, and those that the request expects, to compare them. A request with
// gradients of results must ask for a gradient.
export function wanted(summary) {
  if (withoutWeights(summary)) return ['output'];
  const list = shownOf(summary);
  const compared = (summary.expected ?? []).filter((name) => /^(lse|entropy|grad_\w+)$/.test(name));
  return [...list, ...compared.filter((name) => !list.includes(name))];
}

function shownOf(summary) {
  if (summary.options.update)
    return ['weights', ...(summary.shapes.decay ? ['decays'] : []), ...(areFew(summary) ? ['states'] : []), 'output'];
  const list = [];
  if (summary.projected) list.push('Q', 'K', 'V');
  const { shapes, drawn } = summary;
  if (shapes.past_K || drawn || (!summary.projected && (shapes.b_K || shapes.b_V))) list.push('present_K', 'present_V');
  list.push('scores', 'statistics', 'scaled_scores', 'masked_scores', 'weights');
  if (hasSoftmax(summary.options)) list.push('entropy');
  if (GRADIENTS.some((name) => name in summary.shapes)) list.push('grad_V');
  return [...list, 'output'];
}

const DRAWN = ['random', 'shape', 'low', 'high', 'mean', 'std', 'dtype'];

// Returns the body of a call to /attention whose answer has the numbers of a drawn Q (or of another matrix with this name), or null if it is
// not drawn. /attention does not return Q, but it returns K as present_K. So this call draws as K what the request draws as Q. Everything
// that the request draws before Q is drawn before this K, too, and discarded.
// words: the shape of the embedding that the server draws for words, or undefined.
export function askFor(body, wanted, words) {
  if (typeof body[wanted]?.random !== 'string') return null;
  const draws = [];
  for (const [key, value] of Object.entries(body)) {
    if (key === 'embedding_dim' && words) draws.push({ random: 'randn', shape: words });
    if (typeof value?.random !== 'string') continue;
    draws.push(...[...(value.discard ?? []), value].map((draw) => Object.fromEntries(DRAWN.map((name) => [name, draw[name]]))));
    if (key === wanted) break;
  }
  const K = draws.pop();
  if (draws.length) K.discard = draws;
  const shape = [body[wanted].shape].flat();
  const drawn = (rows, cols) => ({ random: 'rand', shape: [...shape.slice(0, -2), rows, cols] });
  const { random, dtype } = body;
  return { random, dtype, K, Q: drawn(1, shape.at(-1)), V: drawn(shape.at(-2), 1), return: ['present_K'] };
}

// Returns the reasons why options do not apply to a request, as {option: reason}. heads: how many heads the answer has.
export function inapplicable(summary, heads) {
  const { options, shapes, projected } = summary;
  const reasons = {};
  if (options.causal === 'bottom_right') reasons.alignment = 'set by Causal';
  if (!hasSoftmax(options)) reasons.sink = 'needs softmax';
  if (options.update) for (const key of ['causal', ...OF_SCORES]) reasons[key] = key === 'causal' ? 'always on' : 'needs softmax';
  if (options.normalization !== 'sigmoid') reasons.sigmoid_bias = 'needs sigmoid';
  if (options.heads?.own) reasons.heads = reasons.kv_heads = 'each head has its own';
  else if (projected && shapes.W_Q?.length === 3) reasons.heads = reasons.kv_heads = 'set by W_Q';
  else if (!projected && !summary.packed && (shapes.Q ?? shapes.X ?? []).length > 2) reasons.heads = reasons.kv_heads = 'an axis of Q';
  else if (!Number.isInteger(options.heads)) reasons.kv_heads = 'needs heads';
  if (heads < 2) reasons.mean_over_heads = 'one head';
  if (!projected) reasons.weight_layout = 'needs projections';
  return reasons;
}
