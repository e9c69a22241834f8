// keyboard.js has the keyboard shortcuts of the page, which do nothing while the user types in a field, except for Escape, and the arrow
// keys in heat maps. The user can switch the shortcuts off, except for Escape. The browser keeps this for the next visit if the page may
// store it.
import { keep, kept } from './dom.js';

const STORED = 'shortcuts'; // the key in the storage of the browser

// Calls does[name]() when the key with this name is pressed. box: the check box that switches shortcuts off.
export function listenToKeyboard(does, box) {
  box.checked = kept(STORED) !== 'off';
  box.addEventListener('change', () => keep(STORED, box.checked ? 'on' : 'off'));
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector('dialog[open]')) return;
    const typing = event.target.closest?.('textarea, select, input:not([type=checkbox]):not([type=range])');
    if (typing && event.key !== 'Escape') return;
    if (typing) typing.blur();
    if (!(event.key in does) || (!box.checked && event.key !== 'Escape')) return;
    does[event.key]();
    event.preventDefault();
  });
}

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Returns the cell of a matrix that an arrow key leads to, or null for another key. cell: where the focus was, or null for the first cell.
export function movedCell(cell, event, { rows, cols }) {
  if (!(event.key in MOVES) || event.ctrlKey || event.metaKey || event.altKey) return null;
  if (!cell) return { row: 0, col: 0 };
  const [down, right] = MOVES[event.key];
  const within = (x, count) => Math.min(Math.max(x, 0), count - 1);
  return { row: within(cell.row + down, rows), col: within(cell.col + right, cols) };
}

// Moves the focus along a list of elements with the arrow keys left and right. Returns the element that has it then, or undefined.
export function moveAlong(list, event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const at = list.indexOf(event.target);
  if (!step || at < 0) return undefined;
  const to = list[Math.min(Math.max(at + step, 0), list.length - 1)];
  to.focus();
  event.preventDefault();
  event.stopPropagation();
  return to;
}
