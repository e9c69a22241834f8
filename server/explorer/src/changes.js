// changes.js says in words how a request differs from the example that it came from. It needs no page.
const NAMED = 3; // changes that are named; the others are counted
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const isList = (value) => Array.isArray(value) && value.length < 5 && value.every((one) => typeof one !== 'object');
const sayable = (value) => typeof value !== 'object' || isList(value);

// The values that options have if a request does not name them.
const DEFAULTS = {
  ...{ causal: false, alibi: false, mean_over_heads: false },
  ...{ alignment: 'top_left', normalization: 'softmax', dtype: 'float32', scale: '1/√d' },
};

function word(value) {
  if (value === true) return 'on';
  if (value === false) return 'off';
  return typeof value === 'string' ? value.replaceAll('_', ' ') : JSON.stringify(value).replaceAll(',', ', ');
}

function change(key, now, then, source) {
  const [here, there] = [now ?? DEFAULTS[key], then ?? DEFAULTS[key]];
  if (same(here, there)) return null;
  if (key === 'text' || key === 'tokens') return 'the sentence is different';
  if (there === undefined) return `${key} is ${sayable(here) ? word(here) : 'set'}; the ${source} does not set it`;
  if (here === undefined) return `${key} is left out`;
  if (!sayable(here) || !sayable(there)) return `${key} is not the ${source}’s`;
  return `${key} is ${word(here)}; in the ${source} it is ${word(there)}`;
}

// Describes the difference between two requests {path, body} in words. The text is empty if nothing that matters is different. source: what
// the second request comes from.
export function changes(now, then, source = 'notebook') {
  if (!now.body || typeof now.body !== 'object') return '';
  const keys = [...new Set([...Object.keys(then.body), ...Object.keys(now.body)])];
  const list = keys.map((key) => change(key, now.body[key], then.body[key], source)).filter(Boolean);
  if (now.path !== then.path) list.push(`the path is ${now.path}; in the ${source} it is ${then.path}`);
  const rest = list.length - NAMED;
  const said = rest > 0 ? [...list.slice(0, NAMED), `${rest} more ${rest === 1 ? 'change' : 'changes'}`] : list;
  return said.length ? `Edited: ${said.join('. ')}.` : '';
}
