// Downloads of a step: what its figure shows as PNG and SVG, its numbers as CSV and JSON.
import { css, position, textOn } from './colour.js';
import { downloadPNG, save, toCSV } from './download.js';
import { axes, FONT } from './geometry.js';
import { show } from './numbers.js';

// Characters that XML has no way to write become U+FFFD.
const notXML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const escape = (text) => text.replace(notXML, '\ufffd').replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
const round = (x) => Math.round(x * 100) / 100;

function svgCells(figure) {
  const { given, range } = figure;
  const { matrix, scale } = given;
  const { width, height } = figure.size();
  const gap = figure.gap();
  const write = figure.numbersFit();
  const parts = [];
  for (let row = range.row0; row < range.row1; row++) {
    for (let col = range.col0; col < range.col1; col++) {
      const at = row * matrix.cols + col;
      const t = position(scale, matrix.data[at]);
      const [x, y] = [round((col - range.col0) * width), round((row - range.row0) * height)];
      const fill = figure.masked(at) ? 'url(#hatch)' : css(scale.table, t).replace(/(\d) (?=\d)/g, '$1,');
      parts.push(`<rect x="${x}" y="${y}" width="${round(width - gap)}" height="${round(height - gap)}" fill="${fill}"/>`);
      if (write && !figure.masked(at)) {
        const place = `x="${round(x + width / 2)}" y="${round(y + height / 2 + 4)}"`;
        parts.push(`<text ${place} text-anchor="middle" fill="${textOn(scale.table, t)}">${show(matrix.data[at], 3)}</text>`);
      }
    }
  }
  return parts.join('');
}

function svgLabels({ box, range, given }, size) {
  const { rows, cols } = axes(box, range, given.rowLabels, given.colLabels);
  const parts = rows.map(({ at, text }) => {
    const y = round(box.top + (at - range.row0 + 0.5) * size.height + 4);
    return `<text x="${box.left - 5}" y="${y}" text-anchor="end">${escape(text)}</text>`;
  });
  for (const { at, text } of cols) {
    const x = round(box.left + (at - range.col0 + 0.5) * size.width);
    const turned = `transform="translate(${x + 4} ${box.top - 5}) rotate(-90)"`;
    const place = box.across ? turned : `x="${x}" y="${box.top - 5}" text-anchor="middle"`;
    parts.push(`<text ${place}>${escape(text)}</text>`);
  }
  return parts.join('');
}

function dataURL({ bitmap, width, height }) {
  const canvas = Object.assign(document.createElement('canvas'), { width, height });
  canvas.getContext('2d').drawImage(bitmap, 0, 0);
  return canvas.toDataURL();
}

// The figure as the text of an SVG file. Many numbers stand in it as one picture.
export function figureSVG(figure) {
  const { box, given, pixels } = figure;
  const picture = `width="${box.plotWidth}" height="${box.plotHeight}"`;
  const cells = pixels
    ? `<rect ${picture} fill="url(#hatch)"/><image ${picture} preserveAspectRatio="none" image-rendering="pixelated" href="${dataURL(pixels)}"/>`
    : svgCells(figure);
  const hatch =
    '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">' +
    `<line x1="0" x2="0" y2="5" stroke="${given.colours.hatch}" stroke-width="1.4"/></pattern>`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${box.width}" height="${box.height}" viewBox="0 0 ${box.width} ${box.height}">` +
    `<defs>${hatch}</defs><rect width="100%" height="100%" fill="${given.colours.paper}"/>` +
    `<g font-size="11" font-family="${escape(FONT.replace(/^\S+ /, '')).replaceAll('&quot;', "'")}" fill="${given.colours.ink}">` +
    `${svgLabels(figure, figure.size())}<g transform="translate(${box.left} ${box.top})">${cells}</g></g></svg>\n`
  );
}

function asJSON(name, { rows, cols, data }, given) {
  const values = Array.from({ length: rows }, (_, row) =>
    Array.from(data.subarray(row * cols, (row + 1) * cols), (x) => (x === -Infinity ? null : x)),
  );
  const labels = (count, label) => Array.from({ length: count }, (_, at) => label(at));
  return `${JSON.stringify({ name, rows: labels(rows, given.rowLabels), columns: labels(cols, given.colLabels), values })}\n`;
}

// lines: {text, width, height} of an SVG file, where lines are shown instead of the figure.
const FORMATS = {
  png: ({ figure, lines, name }) => downloadPNG(lines ?? figure.picture(), `${name}.png`),
  svg: ({ figure, lines, name }) => save(`${name}.svg`, 'image/svg+xml', lines?.text ?? figureSVG(figure)),
  csv({ figure, name }) {
    const { matrix, rowLabels, colLabels } = figure.given;
    const labels = (count, label) => Array.from({ length: count }, (_, at) => label(at));
    const rows = labels(matrix.rows, rowLabels);
    save(`${name}.csv`, 'text/csv', toCSV(matrix.data, matrix.rows, matrix.cols, rows, labels(matrix.cols, colLabels)));
  },
  json: ({ figure, name }) => save(`${name}.json`, 'application/json', asJSON(name, figure.given.matrix, figure.given)),
};

// A menu of what a figure can be saved as; of() gives {figure, lines or null, name} when one is chosen. say(text) if it cannot be.
export function createMenu(parent, of, say) {
  const menu = document.createElement('details');
  menu.className = 'menu';
  const summary = document.createElement('summary');
  summary.textContent = 'Save';
  const list = document.createElement('div');
  for (const format of Object.keys(FORMATS)) {
    const button = Object.assign(document.createElement('button'), { type: 'button', textContent: format.toUpperCase() });
    button.dataset.download = format;
    button.addEventListener('click', async () => {
      menu.open = false;
      summary.focus();
      try {
        await FORMATS[format](of());
      } catch (error) {
        say(`Not saved: ${error.message}`);
      }
    });
    list.append(button);
  }
  menu.append(summary, list);
  menu.addEventListener('focusout', (event) => (menu.open = menu.contains(event.relatedTarget) && menu.open));
  parent.append(menu);
  return { name: (title) => summary.setAttribute('aria-label', `Save ${title}`) };
}
