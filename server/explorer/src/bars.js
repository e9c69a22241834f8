// Bars beside a heat map, one for each row: how much the row's largest weight is, and its entropy. Follows the figure's rows and zoom.
import { FONT } from './geometry.js';
import { show } from './numbers.js';

const WIDTH = 72;
const GAP = 18;

export function barsWidth(columns) {
  return columns.length * (WIDTH + GAP);
}

// columns: [{title, values, most}]; colours: {ink, bar, track}.
export function drawBars(canvas, figure, columns, colours) {
  const { box, range } = figure;
  const ratio = window.devicePixelRatio || 1;
  const width = barsWidth(columns);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(box.height * ratio);
  Object.assign(canvas.style, { width: `${width}px`, height: `${box.height}px` });
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.font = FONT;
  const { height } = figure.size();
  const thick = height < 4 ? height : Math.min(height - 2, 6);
  columns.forEach(({ title, values, most }, place) => {
    const left = GAP + place * (WIDTH + GAP);
    context.fillStyle = colours.ink;
    context.textAlign = 'left';
    context.textBaseline = 'alphabetic';
    context.fillText(title, left, box.top - 6);
    for (let row = range.row0; row < range.row1; row++) {
      const middle = box.top + (row - range.row0 + 0.5) * height;
      const part = most > 0 && Number.isFinite(values[row]) ? Math.min(Math.abs(values[row]) / most, 1) : 0;
      const roomy = height >= 26;
      const y = roomy ? middle + 1 : middle - thick / 2;
      const size = roomy ? 4 : thick;
      context.fillStyle = colours.track;
      context.fillRect(left, y, WIDTH, size);
      context.fillStyle = colours.bar;
      context.fillRect(left, y, part * WIDTH, size);
      if (roomy) {
        context.fillStyle = colours.ink;
        context.fillText(show(values[row], 3), left, middle - 4);
      }
    }
  });
}
