// savemenu.js has the menu that saves a step: its figure as PNG or SVG, or as SVG for a paper (black on white); its numbers as CSV or JSON.
import { make, makeButton } from './dom.js';
import { downloadPNG, save, toCSV } from './download.js';
import { nested } from './matrices.js';
import { fileOf } from './paint.js';

function numbersOf({ matrix, rowLabels, colLabels }) {
  const labels = (count, label) => Array.from({ length: count }, (_, at) => label(at));
  return { ...matrix, rowNames: labels(matrix.rows, rowLabels), colNames: labels(matrix.cols, colLabels) };
}

// Writes numbers as JSON, which has null for −∞.
function asJSON(name, { rows, cols, data, rowNames, colNames }) {
  const values = nested(data, [rows, cols]).map((row) => [...row]);
  return `${JSON.stringify({ name, rows: rowNames, columns: colNames, values })}\n`;
}

// Saves a step as SVG. printed: whether it is for a paper: black on white in the light colours, whatever the theme of the page is.
async function saveSVG({ figure, lines, name }, printed) {
  save(`${name}.svg`, 'image/svg+xml', lines?.picture(printed).text ?? fileOf(await figure.drawing(printed), 'svg'));
}

// Functions that save a step in a format. lines: what makes a picture() of lines (lines.js) if they are shown instead of the figure.
const FORMATS = {
  png: async ({ figure, lines, name }) => downloadPNG(lines?.picture() ?? fileOf(await figure.drawing(), 'png'), name),
  svg: (chosen) => saveSVG(chosen, false),
  paper: (chosen) => saveSVG({ ...chosen, name: `${chosen.name}-paper` }, true),
  csv: ({ figure, name }) => save(`${name}.csv`, 'text/csv', toCSV(numbersOf(figure.given))),
  json: ({ figure, name }) => save(`${name}.json`, 'application/json', asJSON(name, numbersOf(figure.given))),
};

// Makes the menu. chosen() returns {figure, lines, name} when the user has chosen a format; lines may be null. tell(title, detail) tells
// the user why nothing was saved. The returned name(title) sets what the menu saves, for screen readers.
export function createSaveMenu(parent, chosen, tell) {
  const menu = make('details', 'menu', parent);
  const summary = make('summary', '', menu, 'Save');
  const list = make('div', '', menu);
  for (const format of Object.keys(FORMATS)) {
    const button = makeButton(list, format === 'paper' ? 'For a paper' : format.toUpperCase(), async () => {
      menu.open = false;
      summary.focus();
      try {
        await FORMATS[format](chosen());
      } catch (error) {
        tell('The file was not saved', error.message);
      }
    });
    button.dataset.download = format;
  }
  menu.addEventListener('focusout', (event) => (menu.open = menu.contains(event.relatedTarget) && menu.open));
  return { name: (title) => (summary.ariaLabel = `Save ${title}`) };
}
