// savemenu.js has the menu that saves a step: its figure as PNG or SVG, or as SVG for a paper (black on white); its numbers as CSV or JSON.
import { downloadPNG, save, toCSV } from './download.js';

function asJSON(name, { rows, cols, data }, given) {
  const values = Array.from({ length: rows }, (_, row) =>
    Array.from(data.subarray(row * cols, (row + 1) * cols), (x) => (x === -Infinity ? null : x)),
  );
  const labels = (count, label) => Array.from({ length: count }, (_, at) => label(at));
  return `${JSON.stringify({ name, rows: labels(rows, given.rowLabels), columns: labels(cols, given.colLabels), values })}\n`;
}

// Functions that save a step in a format. lines: what makes a picture() of lines (lines.js) if they are shown instead of the figure.
const FORMATS = {
  png: async ({ figure, lines, name }) => downloadPNG(lines?.picture() ?? (await figure.toCanvas()), `${name}.png`),
  svg: async ({ figure, lines, name }) => save(`${name}.svg`, 'image/svg+xml', lines?.picture().text ?? (await figure.toSVG())),
  paper: async ({ figure, lines, name }) =>
    save(`${name}-paper.svg`, 'image/svg+xml', lines?.picture(true).text ?? (await figure.toSVG(true))),
  csv({ figure, name }) {
    const { matrix, rowLabels, colLabels } = figure.given;
    const labels = (count, label) => Array.from({ length: count }, (_, at) => label(at));
    const rows = labels(matrix.rows, rowLabels);
    save(`${name}.csv`, 'text/csv', toCSV(matrix.data, matrix.rows, matrix.cols, rows, labels(matrix.cols, colLabels)));
  },
  json: ({ figure, name }) => save(`${name}.json`, 'application/json', asJSON(name, figure.given.matrix, figure.given)),
};

// Makes the menu. chosen() returns {figure, lines, name} when the user has chosen a format; lines may be null. tell(title, detail) tells
// the user why nothing was saved. The returned name(title) sets what the menu saves, for screen readers.
export function createSaveMenu(parent, chosen, tell) {
  const menu = document.createElement('details');
  menu.className = 'menu';
  const summary = document.createElement('summary');
  summary.textContent = 'Save';
  const list = document.createElement('div');
  for (const format of Object.keys(FORMATS)) {
    const title = format === 'paper' ? 'For a paper' : format.toUpperCase();
    const button = Object.assign(document.createElement('button'), { type: 'button', textContent: title });
    button.dataset.download = format;
    button.addEventListener('click', async () => {
      menu.open = false;
      summary.focus();
      try {
        await FORMATS[format](chosen());
      } catch (error) {
        tell('The file was not saved', error.message);
      }
    });
    list.append(button);
  }
  menu.append(summary, list);
  menu.addEventListener('focusout', (event) => (menu.open = menu.contains(event.relatedTarget) && menu.open));
  parent.append(menu);
  return { name: (title) => summary.setAttribute('aria-label', `Save ${title}`) };
}
