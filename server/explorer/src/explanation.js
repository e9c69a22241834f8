// explanation.js explains one row of weights in words and bars: the row that the pointer is on, or that the user has locked.
import { make } from './dom.js';
import { formatNumber } from './numbers.js';

const MOST = 8; // bars
const NAMED = 3; // keys in the sentence

// Writes a sentence with the keys of the largest weights and the sum of the other weights.
function sentence(lead, query, keys, keyLabel) {
  make('strong', '', lead, query);
  if (!keys.length) {
    lead.append(' may attend to no key. Its weights and its output are 0.');
    return;
  }
  const said = keys.filter(({ weight }, at) => at === 0 || Math.abs(weight) >= 0.0005).slice(0, NAMED);
  const rest = keys.slice(said.length);
  said.forEach(({ key, weight }, at) => {
    const before = at === 0 ? ' gives ' : at === said.length - 1 && !rest.length ? ' and ' : ', ';
    lead.append(`${before}${formatNumber(weight, 3)} to `);
    make('strong', '', lead, keyLabel(key));
  });
  if (rest.length) {
    const sum = rest.reduce((total, { weight }) => total + weight, 0);
    const others = rest.length === 1 ? 'the other key' : `the other ${rest.length.toLocaleString('en')} keys`;
    const much = Math.abs(sum) < 0.0005 ? 'nearly nothing' : formatNumber(sum, 3);
    lead.append(`${said.length > 1 ? ',' : ''} and ${much} to ${others}`);
  }
  lead.append('.');
}

function bars(container, keys, keyLabel) {
  const most = Math.abs(keys[0].weight) || 1;
  const list = make('ol', '', container);
  for (const { weight, key } of keys.slice(0, MOST)) {
    const item = make('li', '', list);
    make('span', '', item, keyLabel(key));
    const track = make('span', 'track', item);
    make('i', '', track).style.width = `${Math.max(1, (Math.abs(weight) / most) * 100)}%`;
    make('b', '', item, formatNumber(weight, 3));
  }
}

// Says an entropy in words. With a sink, the entropy may be small although no key has a large weight.
function spread(entropy, largest) {
  const equal = Math.exp(entropy);
  if (equal < 1.05 && largest > 0.9) return 'nearly all weight on 1 key';
  const over = formatNumber(equal, 2);
  return `as much as ${over} equal ${over === '1' ? 'weight' : 'weights'}`;
}

// Writes the explanation of a row. given: {query, row, mask, keyLabel(col), entropy, locked}, or null for a hint how to choose a row.
// query: the label of the row. row: its weights. mask: 1 for each masked key, or null. entropy: may be undefined. locked: whether the user
// has locked the row.
export function drawExplanation(container, given) {
  container.replaceChildren();
  const lead = make('p', 'lead', container);
  if (!given) {
    lead.textContent = matchMedia('(hover: hover)').matches
      ? 'Point at a row to see it explained in words. Click to keep it.'
      : 'Tap a row to see it explained in words.';
    return;
  }
  const { query, row, mask, keyLabel, entropy, locked } = given;
  const keys = Array.from(row, (weight, key) => ({ weight, key })).filter(({ key }) => !mask?.[key]);
  keys.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight) || a.key - b.key);
  sentence(lead, query, keys, keyLabel);
  if (!keys.length) return;
  bars(container, keys, keyLabel);
  const notes = [];
  if (keys.length > MOST) notes.push(`and ${(keys.length - MOST).toLocaleString('en')} more`);
  if (entropy >= 0) notes.push(`entropy ${formatNumber(entropy, 3)}: ${spread(entropy, keys[0].weight)}`);
  if (locked) notes.push('Esc releases the row');
  for (const note of notes) make('p', 'note', container, note);
}
