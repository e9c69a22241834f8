// download.js - files of what the page shows: CSV of a matrix, SVG and PNG of a drawing. The page makes them itself.

const PNG_SCALE = 2;
// What a drawing outside of its page needs of the style it has there.
const STYLES = [
  'fill', 'fill-opacity', 'font-family', 'font-size', 'font-style', 'font-weight', 'opacity', 'stroke', 'stroke-dasharray',
  'stroke-linecap', 'stroke-linejoin', 'stroke-opacity', 'stroke-width', 'text-anchor', 'visibility',
];

// Hands `data` (text, bytes or a Blob) to the user as a file.
export function save(name, type, data) {
  const url = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  // The browser reads the file after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

function numberText(value) {
  if (value === null || Number.isNaN(value)) {
    return '';
  }
  return Number.isFinite(value) ? String(value) : value < 0 ? '-inf' : 'inf';
}

// A field of RFC 4180. A label that a spreadsheet would take for a formula gets an apostrophe before it: labels may come
// with a link from somebody else.
function field(label) {
  const text = /^[=+\-@\t\r]/.test(label) ? `'${label}` : String(label);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// A matrix, flat and row-major, as CSV with the labels as first line and column (none: only numbers). null and NaN leave a
// field empty, −∞ is -inf, as NumPy reads it.
export function toCSV(matrix, rows, cols, rowLabels, colLabels) {
  const lines = colLabels ? [[...(rowLabels ? [''] : []), ...colLabels.map(field)].join(',')] : [];
  for (let row = 0; row < rows; row++) {
    const numbers = Array.from({ length: cols }, (_, col) => numberText(matrix[row * cols + col]));
    lines.push([...(rowLabels ? [field(rowLabels[row])] : []), ...numbers].join(','));
  }
  return `${lines.join('\r\n')}\r\n`;
}

function sizeOf(source) {
  const box = source.getBoundingClientRect();
  return { width: Math.round(box.width), height: Math.round(box.height) };
}

// An <svg> as the text of a file that looks the same without the page's style sheet.
export function toSVG(svg) {
  const copy = svg.cloneNode(true);
  const { width, height } = sizeOf(svg);
  const from = [svg, ...svg.querySelectorAll('*')];
  [copy, ...copy.querySelectorAll('*')].forEach((element, i) => {
    const style = getComputedStyle(from[i]);
    element.removeAttribute('class');
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      if (value) {
        element.setAttribute(name, value);
      }
    }
  });
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  return new XMLSerializer().serializeToString(copy);
}

async function loaded(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  return image;
}

// The text of an SVG file as a canvas.
async function rasterOf(text, { width, height }, ground) {
  const url = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  try {
    const image = await loaded(url);
    const canvas = document.createElement('canvas');
    canvas.width = width * PNG_SCALE;
    canvas.height = height * PNG_SCALE;
    const context = canvas.getContext('2d');
    context.fillStyle = ground;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas;
  } finally {
    URL.revokeObjectURL(url);
  }
}

function groundOf(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (colour && colour !== 'transparent' && !/,\s*0\)$/.test(colour)) {
      return colour;
    }
  }
  return 'white';
}

// Saves an <svg> or {text, width, height} (of an SVG file), in twice its size, or a canvas, in its own, as NAME.png.
export async function downloadPNG(source, name) {
  const canvas =
    source instanceof HTMLCanvasElement ? source
    : source instanceof SVGElement ? await rasterOf(toSVG(source), sizeOf(source), groundOf(source))
    : await rasterOf(source.text, source, 'white');
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  if (!blob) {
    throw new Error('the browser makes no image of this size');
  }
  save(name.endsWith('.png') ? name : `${name}.png`, 'image/png', blob);
}
