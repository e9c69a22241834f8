// explanation.js explains one row of weights in words and bars: the row that the pointer is on, or that the user has locked.
import { make } from './dom.js';
import { formatNumber } from './numbers.js';

const MOST = 8; // bars
const NAMED = 3; // keys in the sentence

// Returns the keys that a row may attend to, the largest weight first.
function keysOf({ row, mask }) {
  const keys = Array.from(row, (weight, key) => ({ weight, key })).filter(({ key }) => !mask?.[key]);
  return keys.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight) || a.key - b.key);
}

// Returns the sentence about a row as parts [text, strong]: the keys of the largest weights, and the sum of the other weights.
function partsOf(given) {
  const { query, keyLabel } = given;
  const keys = keysOf(given);
  const parts = [[query, true]];
  if (!keys.length) return [...parts, [' may attend to no key. Its weights and its output are 0.']];
  const large = keys.filter(({ weight }, at) => at === 0 || Math.abs(weight) >= 0.0005);
  const said = keys.length === NAMED + 1 && large.length > NAMED ? keys : large.slice(0, NAMED); // one key more is named, not counted
  const rest = keys.slice(said.length);
  said.forEach(({ key, weight }, at) => {
    const before = at === 0 ? ' gives ' : at === said.length - 1 && !rest.length ? ' and ' : ', ';
    parts.push([`${before}${formatNumber(weight, 3)} to `], [keyLabel(key), true]);
  });
  if (rest.length) {
    const sum = rest.reduce((total, { weight }) => total + weight, 0);
    const others = rest.length === 1 ? 'the other key' : `the other ${rest.length.toLocaleString('en')} keys`;
    const much = Math.abs(sum) < 0.0005 ? 'nearly nothing' : formatNumber(sum, 3);
    parts.push([`${said.length > 1 ? ',' : ''} and ${much} to ${others}`]);
  }
  return [...parts, ['.']];
}

// Returns the sentence about a row as text. given: as for drawExplanation().
export const sentenceOf = (given) => partsOf(given).reduce((sentence, [text]) => sentence + text, '');

// Adds an item to a list: a bar, whose length is a part of 1, and a number. Returns the empty element before the bar.
export function addBar(list, part, number) {
  const item = make('li', '', list);
  const before = make('span', '', item);
  make('i', '', make('span', 'track', item)).style.width = `${Math.max(1, 100 * part)}%`;
  make('b', '', item, number);
  return before;
}

function bars(container, keys, keyLabel) {
  const most = Math.abs(keys[0].weight) || 1;
  const list = make('ol', '', container);
  for (const { weight, key } of keys.slice(0, MOST)) {
    addBar(list, Math.abs(weight) / most, formatNumber(weight, 3)).textContent = keyLabel(key);
  }
}

// Says an entropy in words. With a sink, the entropy may be small although no key has a large weight.
function spread(entropy, largest) {
  const equal = Math.exp(entropy);
  if (equal < 1.05 && largest > 0.9) return 'nearly all weight on 1 key';
  const over = formatNumber(equal, 2);
  return `as much as ${over} equal ${over === '1' ? 'weight' : 'weights'}`;
}

// Writes the explanation of a row. given: {query, row, mask, keyLabel(col), entropy, locked}. query: the label of the row. row: its
// weights. mask: 1 for each masked key, or null. entropy: may be undefined. locked: whether the user has locked the row.
export function drawExplanation(container, given) {
  container.replaceChildren();
  const lead = make('p', 'lead', container);
  const { keyLabel, entropy, locked } = given;
  const keys = keysOf(given);
  for (const [text, strong] of partsOf(given)) make(strong ? 'strong' : 'span', '', lead, text);
  if (!keys.length) return;
  bars(container, keys, keyLabel);
  const notes = [];
  if (keys.length > MOST) notes.push(`and ${(keys.length - MOST).toLocaleString('en')} more`);
  if (entropy >= 0) notes.push(`entropy ${formatNumber(entropy, 3)}: ${spread(entropy, keys[0].weight)}`);
  if (locked) notes.push('Esc releases the row');
  for (const note of notes) make('p', 'note', container, note);
}
