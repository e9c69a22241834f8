// What one query attends to, in words and bars: the row that is pointed at or locked.
import { show } from './numbers.js';

const MOST = 8;

// given: {query, row (numbers), mask (bits of the row) or null, keyLabel(j), locked} or null.
export function drawReading(container, given) {
  container.replaceChildren();
  const lead = document.createElement('p');
  container.append(lead);
  if (!given) {
    lead.textContent = matchMedia('(hover: hover)').matches ? 'Point at a row to read it; click to keep it.' : 'Tap a row to read it.';
    return;
  }
  const { query, row, mask, keyLabel, locked } = given;
  const keys = Array.from(row, (weight, key) => ({ weight, key })).filter(({ key }) => !mask?.[key]);
  const strong = document.createElement('strong');
  strong.textContent = query;
  if (!keys.length) {
    lead.append(strong, ' may attend to nothing: its weights and its output are 0.');
    return;
  }
  keys.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight) || a.key - b.key);
  lead.append(strong, ` attends${locked ? '' : ' most'} to`);
  const most = Math.abs(keys[0].weight) || 1;
  const list = document.createElement('ol');
  for (const { weight, key } of keys.slice(0, MOST)) {
    const item = document.createElement('li');
    const name = document.createElement('span');
    const bar = document.createElement('i');
    const value = document.createElement('b');
    name.textContent = keyLabel(key);
    value.textContent = show(weight, 3);
    bar.style.width = `${Math.max(1, (Math.abs(weight) / most) * 100)}%`;
    const track = document.createElement('span');
    track.className = 'track';
    track.append(bar);
    item.append(name, track, value);
    list.append(item);
  }
  container.append(list);
  if (keys.length > MOST) {
    const rest = document.createElement('p');
    rest.className = 'note';
    rest.textContent = `and ${(keys.length - MOST).toLocaleString('en')} more`;
    container.append(rest);
  }
}
