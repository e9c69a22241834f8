// zoom.js has the rectangle that the user drags over a heat map to zoom in. A mouse and a pen drag it at once. A finger drags it after it
// was held still; a finger that moves at once scrolls the page. A range of cells is {row0, row1, col0, col1}, without row1 and col1.
import { makeWith, setBox } from './dom.js';

const CLICK = 5; // pixels; a pointer that moves less has clicked
const THIN = 10; // pixels; a rectangle with a shorter side takes the whole axis
const HOLD = 400; // milliseconds that a finger must be held still
const HAIR = 1e-6; // a part of a cell that is taken for an error of rounding

const clamp = (x, least, most) => Math.min(Math.max(x, least), most);

// Moves and cuts a range so that it is within a matrix. It keeps the size of the range where the matrix is large enough.
export function within({ row0, row1, col0, col1 }, { rows, cols }) {
  const fit = (from, to, count) => {
    const size = Math.min(to - from, count);
    const first = clamp(from, 0, count - size);
    return [first, first + size];
  };
  const [top, bottom] = fit(row0, row1, rows);
  const [left, right] = fit(col0, col1, cols);
  return { row0: top, row1: bottom, col0: left, col1: right };
}

// Returns half of a range in each direction (closer), or twice the range, around a cell. If one side is at least twice as long as the
// other, only this side is halved.
export function scaled({ row0, row1, col0, col1 }, { row, col }, closer, matrix) {
  const [rows, cols] = [row1 - row0, col1 - col0];
  const size = (own, other) => (closer ? (own * 2 > other ? Math.max(Math.ceil(own / 2), Math.min(own, 4)) : own) : own * 2);
  const [high, wide] = [size(rows, cols), size(cols, rows)];
  const [top, left] = [row - Math.floor(high / 2), col - Math.floor(wide / 2)];
  return within({ row0: top, row1: top + high, col0: left, col1: left + wide }, matrix);
}

// Moves a range as little as needed so that it has a cell in it.
export function holding({ row0, row1, col0, col1 }, { row, col }) {
  const down = Math.max(row + 1 - row1, 0) + Math.min(row - row0, 0);
  const right = Math.max(col + 1 - col1, 0) + Math.min(col - col0, 0);
  return { row0: row0 + down, row1: row1 + down, col0: col0 + right, col1: col1 + right };
}

// Listens to the pointer on the root of a figure. plot() returns {bounds, range}, the rectangle of the cells on the screen and their range,
// or null if the figure cannot be zoomed. on: {click(event), begin(), drag(range), reset()}.
export function listenToDrag(root, plot, on) {
  const band = makeWith('i', root, { className: 'zoom-band', hidden: true });
  let down = null; // the event of the pointer that is down
  let draws = false;
  let timer = 0;

  function end() {
    clearTimeout(timer);
    down = null;
    draws = false;
    band.hidden = true;
  }

  // Returns the part of the plot that a drag to `event` covers: {left, right, top, bottom} in pixels of the plot.
  function covered(event, bounds) {
    const side = (a, b, most) => {
      const [from, to] = [Math.min(a, b), Math.max(a, b)].map((x) => clamp(x, 0, most));
      return to - from < THIN ? [0, most] : [from, to];
    };
    const [left, right] = side(down.clientX - bounds.left, event.clientX - bounds.left, bounds.width);
    const [top, bottom] = side(down.clientY - bounds.top, event.clientY - bounds.top, bounds.height);
    return { left, right, top, bottom };
  }

  function draw(event) {
    const { bounds } = plot();
    const { left, right, top, bottom } = covered(event, bounds);
    const corner = root.getBoundingClientRect();
    if (band.hidden) on.begin();
    draws = true;
    band.hidden = false;
    const [x, y] = [bounds.left - corner.left + left, bounds.top - corner.top + top];
    setBox(band, { left: x, top: y, width: right - left, height: bottom - top });
  }

  function zoom(event) {
    const { bounds, range } = plot();
    const { left, right, top, bottom } = covered(event, bounds);
    const [across, along] = [(range.col1 - range.col0) / bounds.width, (range.row1 - range.row0) / bounds.height];
    const first = (x) => Math.floor(x + HAIR);
    const last = (x) => Math.ceil(x - HAIR);
    on.drag({
      row0: range.row0 + first(top * along),
      row1: range.row0 + last(bottom * along),
      col0: range.col0 + first(left * across),
      col1: range.col0 + last(right * across),
    });
  }

  const far = (event) => Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) >= CLICK;

  root.addEventListener('pointerdown', (event) => {
    end();
    if (event.button !== 0 || !event.isPrimary) return;
    down = event;
    if (!plot()) return;
    draws = event.pointerType !== 'touch';
    if (!draws) timer = setTimeout(() => draw(down), HOLD);
  });
  root.addEventListener('pointermove', (event) => {
    if (event.pointerId !== down?.pointerId) return;
    if (!event.buttons) return end(); // the button was released outside of the figure
    if (!far(event)) return;
    clearTimeout(timer);
    if (!draws) return;
    event.stopImmediatePropagation(); // the figure must not show which cell the pointer is on
    root.setPointerCapture(event.pointerId);
    draw(event);
  });
  root.addEventListener('pointerup', (event) => {
    if (event.pointerId !== down?.pointerId) return;
    if (!far(event)) on.click(event);
    else if (!band.hidden) zoom(event);
    end();
  });
  root.addEventListener('pointercancel', end);
  root.addEventListener('dblclick', () => plot() && on.reset());
  root.addEventListener('touchmove', (event) => draws && event.preventDefault(), { passive: false }); // otherwise the page would scroll
  root.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || band.hidden) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    end();
  });
}
