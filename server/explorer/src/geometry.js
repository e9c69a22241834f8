// geometry.js computes the sizes and margins of heat maps, and which labels their axes have.

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const LINE = 13; // pixels; the height of a label
const CLOSE = 10.5; // pixels; if rows are at least as high as this, all of them have labels
const FEW_ROWS = 48;
const COMFORTABLE = 14; // pixels; few rows are at least as high as this, also if the figure is then higher than it should be
const LONGEST_LABEL = 110; // pixels
const ELLIPSIS = '…';

const context = document.createElement('canvas').getContext('2d');

const widths = new Map();
const MOST_WIDTHS = 10_000;

// Returns the width of a text in pixels. Measuring takes long, so the widths of texts are kept.
export function widthOf(text) {
  if (!widths.has(text)) {
    if (widths.size === MOST_WIDTHS) widths.clear();
    context.font = FONT;
    widths.set(text, context.measureText(text).width);
  }
  return widths.get(text);
}

export function elide(text, width) {
  if (widthOf(text) <= width) return text;
  let end = text.length - 1;
  while (end > 1 && widthOf(text.slice(0, end) + ELLIPSIS) > width) end--;
  return text.slice(0, end) + ELLIPSIS;
}

// Returns n so that every n-th row or column gets a label. size: the height of a row or the width of a column. least: the least distance
// between two labels.
function labelStep(count, size, least) {
  if (least === LINE && size >= CLOSE) return 1;
  for (const base of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]) if (base * size >= least || base >= count) return base;
  return count;
}

// Returns the width of the labels of the rows, which is at most a third of the width of the figure. name: the name of the axis of rows.
function leftMargin(rows, labels, width, name) {
  let most = widthOf(name);
  const every = Math.max(1, Math.floor(rows / 64));
  for (let row = 0; row < rows; row += every) most = Math.max(most, widthOf(labels(row)));
  return Math.ceil(Math.min(most, LONGEST_LABEL, width / 3)) + 8;
}

// Returns the sizes of a figure. rowLabels(row) and colLabels(col) are functions. names: the names of both axes, {rows, cols}, which stand
// above and beside the labels. most: the longest side of a cell. tallest: the largest height of all rows together. In the result, `across`
// says whether the labels of the columns are turned.
export function layOut({ rows, cols, rowLabels, colLabels, names, width, most = 56, tallest = 620 }) {
  const left = leftMargin(rows, rowLabels, width, names.rows);
  const room = Math.max(40, width - left - 2);
  const highest = Math.min(most, Math.max(tallest / rows, rows <= FEW_ROWS ? COMFORTABLE : 0));
  const square = rows === cols && rows <= FEW_ROWS; // a larger map takes the width
  const cellWidth = Math.min(most, room / cols, square ? highest : most);
  const cellHeight = square ? cellWidth : Math.min(Math.max(cellWidth, rows <= FEW_ROWS ? 13 : 1), highest);
  const plotWidth = Math.round(cellWidth * cols);
  const plotHeight = Math.max(8, Math.round(cellHeight * rows));
  let widest = 0;
  for (let col = 0; col < Math.min(cols, 64); col++) widest = Math.max(widest, widthOf(colLabels(col)));
  const across = widest + 6 > plotWidth / cols && widest > 22;
  const top = LINE + 3 + (across ? Math.ceil(Math.min(widest, LONGEST_LABEL)) + 8 : 18);
  const wide = Math.max(plotWidth, Math.ceil(widthOf(names.cols)));
  return { left, top, plotWidth, plotHeight, across, width: left + wide + 2, height: top + plotHeight + 2 };
}

// Returns the labels of an axis from `first` to before `last`, as many as there is room for: [{at, text}].
function axisLabels(labels, first, last, size, room, least) {
  const count = last - first;
  const every = labelStep(count, size, least);
  const found = [];
  for (let at = Math.ceil(first / every) * every; at < last; at += every) found.push({ at, text: elide(labels(at), room) });
  return found;
}

export function axes(box, range, rowLabels, colLabels) {
  const height = box.plotHeight / (range.row1 - range.row0);
  const width = box.plotWidth / (range.col1 - range.col0);
  const least = box.across ? LINE : Math.max(LINE, widthOf(colLabels(range.col1 - 1)) + 6);
  return {
    rows: axisLabels(rowLabels, range.row0, range.row1, height, box.left - 7, LINE),
    cols: axisLabels(colLabels, range.col0, range.col1, width, LONGEST_LABEL, least),
  };
}

// Returns round numbers from lo to hi, at most seven.
export function ticks(lo, hi) {
  const least = (hi - lo) / 5;
  const decade = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((factor) => factor * decade >= least * 0.999) * decade;
  const found = [];
  for (let at = Math.ceil(lo / step - 1e-9); at * step <= hi + step * 1e-9; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

export const wholeRange = ({ rows, cols }) => ({ row0: 0, row1: rows, col0: 0, col1: cols });
