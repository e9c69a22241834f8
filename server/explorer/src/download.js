// download.js makes files in the page and hands them to the user: CSV of a matrix, SVG and PNG of a drawing.
import { makeWith } from './dom.js';
import { nested } from './matrices.js';

const PNG_SCALE = 2; // pixels of a PNG for each pixel of CSS
// The properties of a drawing's style that are written into its file, because the file has no style sheet.
const STYLES = [
  ...['fill', 'fill-opacity', 'font-family', 'font-size', 'font-style', 'font-weight', 'opacity', 'stroke', 'stroke-dasharray'],
  ...['stroke-linecap', 'stroke-linejoin', 'stroke-opacity', 'stroke-width', 'text-anchor', 'visibility'],
];

// Hands `data` (text, bytes or a Blob) to the user as a file.
export function save(name, type, data) {
  const url = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type }));
  const link = makeWith('a', document.body, { href: url, download: name });
  link.click();
  link.remove();
  // The browser reads the file after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

function csvNumber(value) {
  if (Number.isNaN(value)) return '';
  return Number.isFinite(value) ? String(value) : value < 0 ? '-inf' : 'inf';
}

// Writes a label as a field of RFC 4180. A label that a spreadsheet would take for a formula gets an apostrophe before it, because labels
// may come with a link from somebody else.
function field(label) {
  const text = /^[=+\-@\t\r]/.test(label) ? `'${label}` : String(label);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// Writes a matrix as CSV. The names of its columns and rows are the first line and the first column. The field of NaN is empty, and −∞ is
// -inf, which NumPy can read.
export function toCSV({ rows, cols, data, rowNames, colNames }) {
  const rest = nested(data, [rows, cols]).map((numbers, row) => [field(rowNames[row]), ...Array.from(numbers, csvNumber)]);
  return [['', ...colNames.map(field)], ...rest].map((line) => `${line.join(',')}\r\n`).join('');
}

// Returns an <svg> as an SVG file that looks the same without the style sheet of the page: {text, width, height}.
export function toSVG(svg) {
  const copy = svg.cloneNode(true);
  const box = svg.getBoundingClientRect();
  const [width, height] = [Math.round(box.width), Math.round(box.height)];
  const from = [svg, ...svg.querySelectorAll('*')];
  [copy, ...copy.querySelectorAll('*')].forEach((element, i) => {
    const style = getComputedStyle(from[i]);
    element.removeAttribute('class');
    element.removeAttribute('style');
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      if (value) element.setAttribute(name, value);
    }
  });
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

// Draws an SVG file on a new canvas, in twice its size and on the ground of the page.
async function rasterOf({ text, width, height }) {
  const url = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  try {
    const image = makeWith('img', null, { src: url });
    await image.decode();
    const canvas = makeWith('canvas', null, { width: width * PNG_SCALE, height: height * PNG_SCALE });
    const context = canvas.getContext('2d');
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas;
  } finally {
    URL.revokeObjectURL(url);
  }
}

// Saves a drawing as NAME.png. source: the {text, width, height} of an SVG file, or a canvas, which is saved in its own size.
export async function downloadPNG(source, name) {
  const canvas = source.text ? await rasterOf(source) : source;
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  if (!blob) throw new Error('the browser makes no image of this size');
  save(`${name}.png`, 'image/png', blob);
}
