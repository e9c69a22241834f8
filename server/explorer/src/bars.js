// bars.js draws bars beside a heat map: for each row, one bar for each number of the row, such as its largest weight. The bars stand at
// the height of the rows that the figure shows, also when it is zoomed.
import { formatNumber } from './numbers.js';
import { CanvasSurface } from './paint.js';

const WIDTH = 72;
const GAP = 18;
const ROOMY = 26; // pixels; a row of this height has room for the number above its bar

export function barsWidth(columns) {
  return columns.length * (WIDTH + GAP);
}

// Draws the bars. columns: [{title, values, most}], where `most` is the number of a bar at full width. colours: {ink, bar, track}.
export function drawBars(canvas, { box, range, size }, columns, colours) {
  const on = new CanvasSurface(canvas, { width: barsWidth(columns), height: box.height }, window.devicePixelRatio);
  const written = { colour: colours.ink, align: 'left' };
  const roomy = size.height >= ROOMY;
  const thick = roomy ? 4 : size.height < 4 ? size.height : Math.min(size.height - 2, 6);
  columns.forEach(({ title, values, most }, place) => {
    const left = GAP + place * (WIDTH + GAP);
    on.text(title, left, box.top - 11, written);
    for (let row = range.row0; row < range.row1; row++) {
      const middle = box.top + (row - range.row0 + 0.5) * size.height;
      const top = roomy ? middle + 1 : middle - thick / 2;
      const part = most > 0 && Number.isFinite(values[row]) ? Math.min(Math.abs(values[row]) / most, 1) : 0;
      on.cell(left, top, WIDTH, thick, colours.track);
      on.cell(left, top, part * WIDTH, thick, colours.bar);
      if (roomy) on.text(formatNumber(values[row], 3), left, middle - 9, written);
    }
  });
}
