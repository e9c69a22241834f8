// legend.js makes what stands below a heat map, its smallest and its largest number and the bar of its colours, and the bars beside it: for
// each row, one bar for each number of the row, such as its largest weight. The bars stand at the height of the rows that the figure shows,
// also when it is zoomed.
import { css } from './colour.js';
import { make, setBox } from './dom.js';
import { formatNumber } from './numbers.js';
import { BAR_HEIGHT, barWidth, CanvasSurface, paintBar } from './paint.js';

const BAR_WIDTH = 72; // pixels, as all lengths
const BAR_GAP = 18;
const ROOMY = 26; // pixels; a row of this height has room for the number above its bar

// Returns the range of a matrix as text: "0.1 to 0.9".
export function makeRange({ lo, hi, data }) {
  const range = make('span', 'range');
  if (lo === 0 && hi === 0 && !data.some(Number.isFinite)) range.textContent = 'no finite number';
  else range.append(make('span', 'low', null, formatNumber(lo, 3)), ' to ', make('span', 'high', null, formatNumber(hi, 3)));
  return range;
}

// Paints the bar of a scale's colours on a canvas. measure: what its numbers are. plotWidth: the width of the cells of the figure.
export function drawBar(canvas, { scale, measure, plotWidth, colours }) {
  const width = barWidth(plotWidth);
  const size = { width, height: BAR_HEIGHT };
  setBox(canvas, size);
  const ariaLabel = `Colours: ${measure} from ${formatNumber(scale.lo, 3)} to ${formatNumber(scale.hi, 3)}${scale.open ? ' or more' : ''}`;
  Object.assign(canvas, { role: 'img', ariaLabel });
  paintBar(new CanvasSurface(canvas, size, window.devicePixelRatio), { scale, title: measure, width, colours });
}

export const barsWidth = (columns) => columns.length * (BAR_WIDTH + BAR_GAP);

// Draws the bars. columns: [{title, values, most, scale}], where `most` is the number of a bar at full width, and `scale` has the two
// colours of bars that may be negative. colours: {ink, bar, track}.
export function drawBars(canvas, { box, range, size }, columns, colours) {
  const on = new CanvasSurface(canvas, { width: barsWidth(columns), height: box.height }, window.devicePixelRatio);
  const written = { colour: colours.ink, align: 'left' };
  const roomy = size.height >= ROOMY;
  const thick = roomy ? 4 : size.height < 4 ? size.height : Math.min(size.height - 2, 6);
  columns.forEach(({ title, values, most, scale }, place) => {
    const left = BAR_GAP + place * (BAR_WIDTH + BAR_GAP);
    on.text(title, left, box.top - 11, written);
    for (let row = range.row0; row < range.row1; row++) {
      const middle = box.top + (row - range.row0 + 0.5) * size.height;
      const top = roomy ? middle + 1 : middle - thick / 2;
      const part = most > 0 && Number.isFinite(values[row]) ? Math.min(Math.abs(values[row]) / most, 1) : 0;
      on.cell(left, top, BAR_WIDTH, thick, colours.track);
      on.cell(left, top, part * BAR_WIDTH, thick, scale ? css(scale.table, values[row] < 0 ? 0 : 1) : colours.bar);
      if (roomy) on.text(formatNumber(values[row], 3), left, middle - 9, written);
    }
  });
}
