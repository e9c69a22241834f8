// Sizes, margins and ticks of a heat map.

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const LINE = 13;
const CLOSE = 10.5; // least height of rows that all have labels
const LONGEST_LABEL = 110;
const ELLIPSIS = '…';

const context = document.createElement('canvas').getContext('2d');

export function widthOf(text) {
  context.font = FONT;
  return context.measureText(text).width;
}

export function elide(text, width) {
  if (widthOf(text) <= width) return text;
  let end = text.length - 1;
  while (end > 1 && widthOf(text.slice(0, end) + ELLIPSIS) > width) end--;
  return text.slice(0, end) + ELLIPSIS;
}

function step(count, size, least) {
  if (least === LINE && size >= CLOSE) return 1;
  for (const base of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]) {
    if (base * size >= least || base >= count) return base;
  }
  return count;
}

// The least width of all cells of a matrix together that is of use.
const useful = (cols) => Math.min(Math.max(cols * 6, 120), 180);

// The width that each of these matrices may have, so that as many as possible stand in a row of this width, `gap` apart. None is left
// alone in a row.
export function share(matrices, width, gap) {
  for (let across = matrices.length; across > 1; across--) {
    const each = Math.floor((width - (across - 1) * gap) / across) - 1;
    const fits = matrices.every(({ rows, cols, rowLabels }) => leftMargin(rows, rowLabels, each) + useful(cols) <= each);
    if (fits && matrices.length % across !== 1) return each;
  }
  return width;
}

// Labels have a third of the width at most.
function leftMargin(rows, labels, width) {
  let most = 0;
  const every = Math.max(1, Math.floor(rows / 64));
  for (let row = 0; row < rows; row += every) most = Math.max(most, widthOf(labels(row)));
  return Math.ceil(Math.min(most, LONGEST_LABEL, width / 3)) + 8;
}

// rowLabels(i) and colLabels(j) are functions. most: the largest side of a cell. tallest: the largest height of all cells together.
export function layOut({ rows, cols, rowLabels, colLabels, width, most = 56, tallest = 620 }) {
  const left = leftMargin(rows, rowLabels, width);
  const room = Math.max(40, width - left - 2);
  const cellWidth = Math.min(most, room / cols);
  let cellHeight = Math.min(Math.max(cellWidth, rows <= 48 ? 13 : 1), most, tallest / rows);
  if (rows === cols && cellWidth < 13) cellHeight = Math.min(cellWidth, tallest / rows);
  const plotWidth = Math.round(cellWidth * cols);
  const plotHeight = Math.max(8, Math.round(cellHeight * rows));
  let widest = 0;
  for (let col = 0; col < Math.min(cols, 64); col++) widest = Math.max(widest, widthOf(colLabels(col)));
  const across = widest + 6 > plotWidth / cols && widest > 22;
  const top = across ? Math.ceil(Math.min(widest, LONGEST_LABEL)) + 8 : 18;
  return { left, top, plotWidth, plotHeight, across, width: left + plotWidth + 2, height: top + plotHeight + 2 };
}

// The labels of an axis from `first` to `last`, as many as there is room for.
export function ticks(labels, first, last, size, room, least) {
  const count = last - first;
  const every = step(count, size, least);
  const found = [];
  for (let at = Math.ceil(first / every) * every; at < last; at += every) found.push({ at, text: elide(labels(at), room) });
  return found;
}

export function axes(box, range, rowLabels, colLabels) {
  const height = box.plotHeight / (range.row1 - range.row0);
  const width = box.plotWidth / (range.col1 - range.col0);
  const least = box.across ? LINE : Math.max(LINE, widthOf(colLabels(range.col1 - 1)) + 6);
  return {
    rows: ticks(rowLabels, range.row0, range.row1, height, box.left - 7, LINE),
    cols: ticks(colLabels, range.col0, range.col1, width, LONGEST_LABEL, least),
  };
}

export const whole = ({ rows, cols }) => ({ row0: 0, row1: rows, col0: 0, col1: cols });
