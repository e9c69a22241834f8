// download.js - files made of what the page shows: CSV of a matrix, SVG and PNG of a drawing. A drawing is an <svg>, a
// <canvas> or a plot of plotly.js; nothing leaves the page on the way.

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

// The shortest decimal that reads back as the same number of the array's type.
export function shortest(value, single = false) {
  if (value === null || value === undefined || Number.isNaN(value)) {
    return '';
  }
  if (!Number.isFinite(value)) {
    return value < 0 ? '-inf' : 'inf';
  }
  for (let digits = 6; single && digits < 9; digits++) {
    const shorter = Number(value.toPrecision(digits));
    if (Math.fround(shorter) === value) {
      return String(shorter);
    }
  }
  return String(single ? Number(value.toPrecision(9)) : value);
}

// A field of RFC 4180. A label that a spreadsheet would take for a formula gets an apostrophe before it: labels may come
// with a link from somebody else.
function field(label) {
  const text = /^[=+\-@\t\r]/.test(label) ? `'${label}` : String(label);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// A matrix, flat and row-major, as CSV with the labels as first line and column (none: only numbers). Numbers of a
// Float32Array are written as such; null and NaN leave a field empty, −∞ is -inf, as NumPy reads it.
export function toCSV(matrix, rows, cols, rowLabels, colLabels) {
  const single = matrix instanceof Float32Array;
  const lines = colLabels ? [[...(rowLabels ? [''] : []), ...colLabels.map(field)].join(',')] : [];
  for (let row = 0; row < rows; row++) {
    const numbers = Array.from({ length: cols }, (_, col) => shortest(matrix[row * cols + col], single));
    lines.push([...(rowLabels ? [field(rowLabels[row])] : []), ...numbers].join(','));
  }
  return `${lines.join('\r\n')}\r\n`;
}

const isPlot = (source) => Boolean(source.classList?.contains('js-plotly-plot'));

async function plotImage(plot, format, scale) {
  const { default: Plotly } = await import('plotly.js-cartesian-dist-min');
  return Plotly.toImage(plot, { format, scale, width: plot.clientWidth, height: plot.clientHeight });
}

function sizeOf(source) {
  const box = source.getBoundingClientRect();
  return { width: Math.round(box.width), height: Math.round(box.height) };
}

// A copy of an <svg> that looks the same without the page's style sheet.
function standalone(svg) {
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

// The drawing as the text of an SVG file; a canvas becomes an image in it.
export async function toSVG(source) {
  if (isPlot(source)) {
    const url = await plotImage(source, 'svg', 1);
    return decodeURIComponent(url.slice(url.indexOf(',') + 1));
  }
  if (source instanceof SVGElement) {
    return standalone(source);
  }
  const { width, height } = sizeOf(source);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
    `<image width="${width}" height="${height}" href="${source.toDataURL('image/png')}"/></svg>`
  );
}

async function loaded(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  return image;
}

// A canvas with the drawing on the ground it has on the page.
async function rasterOf(svg) {
  const { width, height } = sizeOf(svg);
  const url = URL.createObjectURL(new Blob([standalone(svg)], { type: 'image/svg+xml' }));
  try {
    const image = await loaded(url);
    const canvas = document.createElement('canvas');
    canvas.width = width * PNG_SCALE;
    canvas.height = height * PNG_SCALE;
    const context = canvas.getContext('2d');
    context.fillStyle = groundOf(svg);
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

// Saves the drawing as NAME.png, SVG and plots in twice their size on the page, a canvas in its own.
export async function downloadPNG(source, name) {
  const file = name.endsWith('.png') ? name : `${name}.png`;
  if (isPlot(source)) {
    const url = await plotImage(source, 'png', PNG_SCALE);
    const bytes = Uint8Array.from(atob(url.slice(url.indexOf(',') + 1)), (c) => c.charCodeAt(0));
    save(file, 'image/png', bytes);
    return;
  }
  const canvas = source instanceof SVGElement ? await rasterOf(source) : source;
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  if (!blob) {
    throw new Error('the browser makes no image of this size');
  }
  save(file, 'image/png', blob);
}
