// legend.js makes what stands below a heat map: its smallest and its largest number, and the bar of its colours.
import { make, setBox } from './dom.js';
import { formatNumber } from './numbers.js';
import { BAR_HEIGHT, barWidth, CanvasSurface, paintBar } from './paint.js';

// Returns the range of a matrix as text: "0.1 to 0.9".
export function makeRange({ lo, hi, data }) {
  const range = make('span', 'range');
  if (lo === 0 && hi === 0 && !data.some(Number.isFinite)) {
    range.textContent = 'no finite number';
    return range;
  }
  range.append(make('span', 'low', null, formatNumber(lo, 3)), ' to ', make('span', 'high', null, formatNumber(hi, 3)));
  return range;
}

// Paints the bar of a scale's colours on a canvas. measure: what its numbers are. plotWidth: the width of the cells of the figure.
export function drawBar(canvas, { scale, measure, plotWidth, colours }) {
  const width = barWidth(plotWidth);
  const size = { width, height: BAR_HEIGHT };
  setBox(canvas, size);
  const ariaLabel = `Colours: ${measure} from ${formatNumber(scale.lo, 3)} to ${formatNumber(scale.hi, 3)}`;
  Object.assign(canvas, { role: 'img', ariaLabel });
  paintBar(new CanvasSurface(canvas, size, window.devicePixelRatio), { scale, title: measure, width, colours });
}
