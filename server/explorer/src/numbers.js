// numbers.js writes numbers as people read them: in text, and a matrix as a table.
import { make } from './dom.js';

const MOST_SIDE = 64; // rows or columns of a table

// Writes a number with so many significant digits, and without zeros at its end.
export function formatNumber(x, digits = 4) {
  if (x === undefined || Number.isNaN(x)) return '–';
  if (Math.abs(x) === Infinity) return x < 0 ? '−∞' : '∞';
  if (x === 0) return '0';
  const rounded = Number(x.toPrecision(digits));
  const size = Math.abs(rounded);
  const text = size < 1e-4 || size >= 1e6 ? rounded.toExponential() : String(rounded);
  return text.replaceAll('-', '−').replace('e+', 'e');
}

export function formatBytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 999_500 ? `${(count / 1000).toPrecision(3)} kB` : `${(count / 1e6).toPrecision(3)} MB`;
}

// Makes a table whose headers stay in sight. extra: more columns, [{title, values}]. Each cell has all digits of its number in data-value.
export function createTable({ title, matrix, mask, rowLabels, colLabels, extra = [] }) {
  const region = make('div', 'numbers');
  if (matrix.rows > MOST_SIDE || matrix.cols > MOST_SIDE) {
    make('p', 'note', region, `${matrix.rows} × ${matrix.cols} numbers are too many for a table. Save them as CSV.`);
    return region;
  }
  Object.assign(region, { tabIndex: 0, role: 'region', ariaLabel: `${title}, as numbers` });
  const table = make('table', '', region);
  make('caption', 'unseen', table, title);
  const header = (line, text, scope) => Object.assign(make('th', '', line, text), { scope });
  const head = table.createTHead().insertRow();
  make('td', '', head);
  for (let col = 0; col < matrix.cols; col++) header(head, colLabels(col), 'col');
  for (const one of extra) header(head, one.title, 'col');
  const body = table.createTBody();
  for (let row = 0; row < matrix.rows; row++) {
    const line = body.insertRow();
    header(line, rowLabels(row), 'row');
    for (let col = 0; col < matrix.cols; col++) {
      const value = matrix.data[row * matrix.cols + col];
      const cell = make('td', '', line, formatNumber(value, 6));
      cell.dataset.value = value === -Infinity ? '-Infinity' : value;
      if (mask?.(row, col)) cell.dataset.masked = 'true';
    }
    for (const { values } of extra) make('td', 'extra', line, formatNumber(values[row], 6));
  }
  return region;
}
