// numbers.js writes numbers as people read them: in text, and a matrix as a table.

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

// Writes a number of bytes with its unit.
export function formatBytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 999_500 ? `${(count / 1000).toPrecision(3)} kB` : `${(count / 1e6).toPrecision(3)} MB`;
}

function cellOf(tag, text, scope) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (scope) element.scope = scope;
  return element;
}

// Makes a table whose headers stay in sight. extra: more columns, [{title, values}]. Each cell has all digits of its number in data-value.
export function createTable({ title, matrix, mask, rowLabels, colLabels, extra = [] }) {
  const region = document.createElement('div');
  region.className = 'numbers';
  if (matrix.rows > MOST_SIDE || matrix.cols > MOST_SIDE) {
    const note = document.createElement('p');
    note.className = 'note';
    note.textContent = `${matrix.rows} × ${matrix.cols} numbers are too many for a table. Save them as CSV.`;
    region.append(note);
    return region;
  }
  Object.assign(region, { tabIndex: 0, role: 'region', ariaLabel: `${title}, as numbers` });
  const table = document.createElement('table');
  const caption = document.createElement('caption');
  caption.className = 'unseen';
  caption.textContent = title;
  const head = table.createTHead().insertRow();
  head.append(cellOf('td', ''));
  for (let col = 0; col < matrix.cols; col++) head.append(cellOf('th', colLabels(col), 'col'));
  for (const { title: name } of extra) head.append(cellOf('th', name, 'col'));
  const body = table.createTBody();
  for (let row = 0; row < matrix.rows; row++) {
    const line = body.insertRow();
    line.append(cellOf('th', rowLabels(row), 'row'));
    for (let col = 0; col < matrix.cols; col++) {
      const value = matrix.data[row * matrix.cols + col];
      const cell = cellOf('td', formatNumber(value, 6));
      cell.dataset.value = value === -Infinity ? '-Infinity' : value;
      if (mask?.(row, col)) cell.dataset.masked = 'true';
      line.append(cell);
    }
    for (const { values } of extra) {
      const cell = cellOf('td', formatNumber(values[row], 6));
      cell.className = 'extra';
      line.append(cell);
    }
  }
  table.prepend(caption);
  region.append(table);
  return region;
}
