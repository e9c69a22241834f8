// tooltip.js has the box beside the pointer, which shows the numbers of a cell. The page has one such box.
import { make, makeWith, setBox } from './dom.js';

const box = makeWith('div', document.querySelector('main') ?? document.body, { id: 'tooltip', hidden: true, role: 'tooltip' });

const EDGE = 10; // pixels between the box and its cell

// After a tap, scrolling hides the box, because the page does not know then where the finger is.
let tapped = false;
window.addEventListener('scroll', () => tapped && hideTooltip(), { passive: true, capture: true });

// Returns where a box of a length begins that stands beyond [from, to], within [least, most]: after it if there is room, or else before it.
function beyond(length, from, to, least, most) {
  if (to + EDGE + length <= most) return to + EDGE;
  return Math.max(least, Math.min(from - EDGE - length, most - length));
}

// Shows the box for a cell, beside its row and its column, so that it covers neither. entries: [[name, value, strong]], where strong
// entries are set in bold. cell: its rectangle on the screen, or null for the place of the pointer. The box does not cover the arithmetic
// either.
export function showTooltip(title, entries, { clientX, clientY, pointerType }, cell = null) {
  tapped = pointerType === 'touch';
  box.replaceChildren();
  make('p', '', box, title);
  const list = make('dl', '', box);
  for (const [name, value, strong] of entries) {
    make('dt', '', list, name);
    make('dd', strong ? 'strong' : '', list, value);
  }
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const { left, right, top, bottom } = cell ?? { left: clientX, right: clientX, top: clientY, bottom: clientY };
  const written = document.getElementById('written')?.getBoundingClientRect().top ?? Infinity;
  const floor = written > bottom ? Math.min(written, window.innerHeight) : window.innerHeight;
  setBox(box, { left: beyond(width, left, right, 4, window.innerWidth), top: beyond(height, top, bottom, 4, floor) });
}

// Hides the box, and returns whether it was there.
export function hideTooltip() {
  const shown = !box.hidden;
  box.hidden = true;
  return shown;
}
