// rules.js has the rules by which words attend: softmax, and the four by which a state changes. It turns a request for one rule into that
// for another one. It needs no page.
import { members, parse, withMember } from './jsontext.js';
import * as keys from './keys.js';

// The keys that only softmax has, and those that only states have. A decay of softmax has another shape than one of states, so it does not
// stay when the rule changes.
export const OF_SCORES = keys.OF_SCORES.split(' ');
const OF_STATES = ['decay', ...keys.OF_STATES.split(' ')];

// The keys that a rule of states needs beside its matrices.
const NEEDED = { linear: [], gated: ['decay'], delta: ['beta'], gated_delta: ['decay', 'beta'] };

// Returns the rule of a request: softmax, or the update of the state. If the request does not name the update, what is given says it.
export function ruleOf(path, { update, decay, beta }) {
  if (path !== '/linear-attention') return 'softmax';
  return update ?? (decay ? (beta ? 'gated_delta' : 'gated') : beta ? 'delta' : 'linear');
}

// Cuts a list of numbers to n, or repeats its last number. Other values stay as they are.
function fitted(value, n) {
  if (!Array.isArray(value) || !value.every(Number.isFinite)) return value;
  return Array.from({ length: n }, (_, at) => value[Math.min(at, value.length - 1)]);
}

// Returns the text of a request for another rule. Its words, its matrices and all options stay that both rules take. text: a request whose
// matrices are not those of the example. variant: the example of the new rule, {path, body}. stash: a Map that keeps the values (JSON text)
// that a rule does not take, until a rule takes them.
export function carried(text, variant, stash) {
  const all = members(text);
  const body = parse(text);
  if (!all || !body) return text;
  const rule = ruleOf(variant.path, variant.body);
  const n = (body.K ?? body.X)?.length;
  const takes =
    rule === 'softmax'
      ? (key) => !OF_STATES.includes(key)
      : (key) => !OF_SCORES.includes(key) && (!['decay', 'beta'].includes(key) || NEEDED[rule].includes(key));
  let made = text;
  for (const [key, { start, end }] of all) {
    if (takes(key)) continue;
    stash.set(key, text.slice(start, end));
    made = withMember(made, key, undefined);
  }
  if (rule === 'softmax' && !body.causal) made = withMember(made, 'causal', 'true');
  if (rule !== 'softmax') {
    if (body.causal !== undefined && body.causal !== true) made = withMember(made, 'causal', undefined);
    made = withMember(made, 'update', JSON.stringify(rule));
  }
  for (const key of rule === 'softmax' ? OF_SCORES : [...NEEDED[rule], 'past_state', 'normalize_QK']) {
    if (key in body) continue;
    if (stash.has(key)) made = withMember(made, key, stash.get(key));
    else if (key in variant.body) made = withMember(made, key, JSON.stringify(fitted(variant.body[key], n)));
    stash.delete(key);
  }
  return made;
}
