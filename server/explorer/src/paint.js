// paint.js is the one painter of heat maps: cells, hatching, numbers and labels. It paints on a surface: a canvas (for the page, for a
// small picture, or for a PNG file) or the text of an SVG file. All lengths are CSS pixels.
import { css, paintPixels, position, textOn } from './colour.js';
import { axes, FONT, ticks, widthOf, wholeRange } from './geometry.js';
import { formatNumber } from './numbers.js';

export const READABLE = { width: 38, height: 22 }; // a cell of this size has room for its number
const SQUEEZED = 1.15; // a number may be so many times as wide as its cell, because it can be squeezed
const HATCHING = 5; // the distance of the lines of the hatching
const BAR = { width: 200, thick: 8, title: 13, below: 16 }; // the bar of colours, with room for its title and for its numbers
const SIDE = 64; // most pixels of a side of a picture; the worker draws a larger matrix
export const BAR_HEIGHT = BAR.title + BAR.thick + BAR.below;
export const PRINTED = { ink: '#000000', paper: '#ffffff', hatch: '#8d8a84' }; // the colours of a figure for a paper

// Returns the size of the cells in `range` when they fill the box, and the gap between them.
export function cellSize({ plotWidth, plotHeight }, { row0, row1, col0, col1 }) {
  const width = plotWidth / (col1 - col0);
  const height = plotHeight / (row1 - row0);
  return { width, height, gap: Math.min(width, height) >= 6 ? 1 : 0 };
}

// A canvas as a surface. ratio: pixels of the canvas for each pixel of CSS. hatching: the colour of masked cells; without it, they stay
// transparent.
export class CanvasSurface {
  constructor(canvas, { width, height }, ratio, hatching) {
    this.hatching = hatching;
    this.ratio = ratio;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    this.context = canvas.getContext('2d');
    this.context.scale(ratio, ratio);
    this.context.imageSmoothingEnabled = false;
    this.written = false;
  }

  move(x, y) {
    this.context.translate(x, y);
  }

  // Paints a cell. Its edges are whole pixels of the canvas, so that cells are sharp and have no seams between them.
  cell(x, y, width, height, colour) {
    const snap = (at) => Math.round(at * this.ratio) / this.ratio;
    const [left, top] = [snap(x), snap(y)];
    this.context.fillStyle = colour;
    this.context.fillRect(left, top, snap(x + width) - left, snap(y + height) - top);
  }

  hatch(x, y, width, height) {
    if (!this.hatching) return;
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.strokeStyle = this.hatching;
    context.beginPath();
    for (let at = Math.floor((x - y - height) / HATCHING) * HATCHING; at < x + width - y + HATCHING; at += HATCHING) {
      context.moveTo(at + y, y);
      context.lineTo(at + y + height, y + height);
    }
    context.stroke();
    context.restore();
  }

  picture({ bitmap }, place, inside) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(...inside);
    context.clip();
    context.imageSmoothingEnabled = bitmap.width > place[2] * this.ratio; // a smaller picture would lose rows and columns
    context.drawImage(bitmap, ...place);
    context.restore();
  }

  // Writes a text. align: 'left', 'center' or 'right'. turned: whether the text runs upwards. strong: whether it is bold.
  text(text, x, y, { colour, align, most, turned, strong }) {
    const { context } = this;
    // A font takes long to find, and most canvases have no text.
    if (!this.written) Object.assign(context, { font: FONT, textBaseline: 'middle' });
    this.written = true;
    context.save();
    context.translate(x, y);
    if (turned) context.rotate(-Math.PI / 2);
    if (strong) context.font = `600 ${FONT}`;
    context.fillStyle = colour;
    context.textAlign = align;
    context.fillText(text, 0, 1, most);
    context.restore();
  }
}

// Returns a drawing {size, colours: {ink, paper, hatch}, paint(surface)} on a new canvas, in twice its size, or as the text of an SVG file.
export function fileOf({ size, colours, paint }, format) {
  const canvas = document.createElement('canvas');
  const on = format === 'png' ? new CanvasSurface(canvas, size, 2, colours.hatch) : new SVGSurface(size, colours.hatch);
  on.cell(0, 0, size.width, size.height, colours.paper);
  paint(on);
  return format === 'png' ? canvas : on.toString();
}

// XML cannot write these characters, so they become U+FFFD.
const notXML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const escape = (text) => text.replace(notXML, '\ufffd').replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
const round = (x) => Math.round(x * 100) / 100;
const ANCHORS = { left: 'start', center: 'middle', right: 'end' };

class SVGSurface {
  constructor({ width, height }, hatching) {
    const family = FONT.replace(/^\S+ /, '').replaceAll('"', "'");
    this.parts = [
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`,
      '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">',
      `<line x1="0" x2="0" y2="5" stroke="${hatching}" stroke-width="1.4"/></pattern></defs>`,
      `<g font-size="11" font-family="${family}">`,
    ];
    this.ends = ['</g></svg>\n'];
  }

  move(x, y) {
    this.parts.push(`<g transform="translate(${x} ${y})">`);
    this.ends.unshift('</g>');
  }

  cell(x, y, width, height, colour) {
    const fill = colour.replace(/(\d) (?=\d)/g, '$1,'); // older programs need commas between the numbers of rgb()
    this.parts.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" fill="${fill}"/>`);
  }

  hatch(x, y, width, height) {
    this.cell(x, y, width, height, 'url(#hatch)');
  }

  picture({ bitmap, width, height }, place) {
    const canvas = Object.assign(document.createElement('canvas'), { width, height });
    canvas.getContext('2d').drawImage(bitmap, 0, 0);
    const [x, y, wide, high] = place.map(round);
    const attributes = `x="${x}" y="${y}" width="${wide}" height="${high}" preserveAspectRatio="none" image-rendering="pixelated"`;
    this.parts.push(`<image ${attributes} href="${canvas.toDataURL()}"/>`);
  }

  text(text, x, y, { colour, align, most, turned, strong }) {
    const place = turned ? `transform="translate(${round(x + 4)} ${round(y)}) rotate(-90)"` : `x="${round(x)}" y="${round(y + 4)}"`;
    const bold = strong ? ' font-weight="600"' : '';
    const squeezed = most && widthOf(text) > most ? ` textLength="${round(most)}" lengthAdjust="spacingAndGlyphs"` : '';
    this.parts.push(`<text ${place}${bold}${squeezed} text-anchor="${ANCHORS[align]}" fill="${colour}">${escape(text)}</text>`);
  }

  toString() {
    return [...this.parts, ...this.ends].join('');
  }
}

// Writes a number with as many digits as fit into a width. With two digits or one it may lose the 0 before its point. If nothing fits, a
// small number is about 0, and any other is squeezed: no number is left out.
function fitted(value, digits, width) {
  const forms = [];
  for (let count = digits; count > 0; count--) {
    forms.push(formatNumber(value, count));
    if (count < 3) forms.push(forms.at(-1).replace('0.', '.'));
  }
  const shortest = (best, form) => (widthOf(form) < widthOf(best) ? form : best);
  return forms.find((form) => widthOf(form) <= width * SQUEEZED) ?? (Math.abs(value) < 0.01 ? '≈0' : forms.reduce(shortest));
}

// Paints the cells in `range`; the first is at the origin. shades: the numbers that choose the colours, if they are others. numbers: whether
// numbers are written into cells that have room for them. readable: the least size of such a cell. digits: the significant digits of a
// number. fit: whether a number gets fewer digits, or none, if it is too wide for its cell.
export function paintCells(on, { matrix, shades = matrix.data, mask, scale, range, size, numbers, readable = READABLE, digits = 3, fit }) {
  const { width, height, gap } = size;
  const write = numbers && width >= readable.width && height >= readable.height;
  for (let row = range.row0; row < range.row1; row++) {
    for (let col = range.col0; col < range.col1; col++) {
      const at = row * matrix.cols + col;
      const place = [(col - range.col0) * width, (row - range.row0) * height, width - gap, height - gap];
      if (mask?.[at] === 1 || matrix.data[at] === -Infinity) {
        on.hatch(...place);
        continue;
      }
      const value = matrix.data[at];
      const t = position(scale, shades[at]);
      on.cell(...place, css(scale.table, t));
      if (!write) continue;
      const [x, y] = [place[0] + place[2] / 2, place[1] + place[3] / 2];
      const text = fit ? fitted(value, digits, place[2]) : formatNumber(value, digits);
      on.text(text, x, y, { colour: textOn(scale.table, t), align: 'center', most: width - gap - 4 });
    }
  }
}

// Paints the range that is shown from a picture of the cells in `pixels.part`, which the worker has made. Masked cells of the picture are
// transparent, so the hatching below it shows there.
function paintPicture(on, { pixels, range, size: { width, height }, box }) {
  const { part } = pixels;
  const inside = [0, 0, box.plotWidth, box.plotHeight];
  const place = [(part.col0 - range.col0) * width, (part.row0 - range.row0) * height];
  on.hatch(...inside);
  on.picture(pixels, [...place, (part.col1 - part.col0) * width, (part.row1 - part.row0) * height], inside);
}

function paintLabels(on, { box, range, size, rowLabels, colLabels, names, colours }) {
  const { rows, cols } = axes(box, range, rowLabels, colLabels);
  const colour = colours.ink;
  on.text(names.rows, box.left - 4, box.across ? box.top - 9 : 7, { colour, align: 'right' });
  on.text(names.cols, box.left, 7, { colour, align: 'left' });
  for (const { at, text } of rows) on.text(text, box.left - 4, box.top + (at - range.row0 + 0.5) * size.height, { colour, align: 'right' });
  const upper = box.across ? { colour, align: 'left', turned: true } : { colour, align: 'center' };
  for (const { at, text } of cols) {
    const x = box.left + (at - range.col0 + 0.5) * size.width;
    if (box.across) on.text(text, x, box.top - 5, upper);
    else on.text(text, Math.min(x, box.width - widthOf(text) / 2), box.top - 9, upper); // the last label must end within the figure
  }
}

// Paints a figure. shown: {box, range, size, matrix, mask, scale, rowLabels, colLabels, names, colours, pixels}. If there is a picture
// (pixels), it is painted instead of the cells.
export function paintFigure(on, shown) {
  paintLabels(on, shown);
  on.move(shown.box.left, shown.box.top);
  if (shown.pixels) paintPicture(on, shown);
  else paintCells(on, { ...shown, numbers: true });
}

// Returns the numbers that a bar of colours names, as {at, text}, where at is 0 to 1.
function marksOf(scale) {
  const { lo, hi, log, signed, least, open } = scale;
  const decades = least ? [-1, -least / hi, least / hi, 1] : signed ? [-1, -0.1, 0, 0.1, 1] : [1e-6, 1e-4, 1e-2, 1];
  const values = log ? decades.map((part) => part * hi) : ticks(lo, hi);
  const marks = values.map((value) => ({ text: formatNumber(value, 3), at: Math.min(Math.max(position(scale, value), 0), 1) }));
  return open ? [...marks.filter(({ at }) => at < 0.7), { text: `≥ ${formatNumber(hi, 2)}`, at: 1 }] : marks;
}

// Returns the width of the bar of colours below a figure whose cells are so wide.
export const barWidth = (plotWidth) => Math.min(Math.max(plotWidth, 120), BAR.width);

// Paints the bar of a scale's colours with its title and its numbers, BAR_HEIGHT high, with the upper left corner at the origin.
export function paintBar(on, { scale, title, width, colours }) {
  const written = { colour: colours.ink, align: 'left' };
  on.text(title, 0, BAR.title / 2 - 1, written);
  const steps = 64;
  for (let i = 0; i < steps; i++) {
    const value = i / (steps - 1);
    const overlap = i < steps - 1 ? 0.6 : 0; // otherwise some programs show seams
    on.cell((i * width) / steps, BAR.title, width / steps + overlap, BAR.thick, css(scale.table, value));
  }
  let free = -Infinity; // a number is left out if it would touch the one before it
  for (const { at, text } of marksOf(scale)) {
    const half = widthOf(text) / 2;
    const x = Math.min(Math.max(at * width, half), width - half);
    if (x - half < free) continue;
    free = x + half + 6;
    on.cell(Math.min(at * width, width - 1), BAR.title + BAR.thick, 1, 3, colours.ink);
    on.text(text, x, BAR.title + BAR.thick + 9, { ...written, align: 'center' });
  }
}

// Draws a matrix on a canvas, which gets the size of the picture. A pixel shows one number, or the mean or the largest of several.
export const paintMap = (canvas, matrix, scale) => paintPixels(canvas, matrix, scale, wholeRange(matrix), SIDE);

// Does the same for a matrix that the worker has, too. picture(part, side) asks the worker for the picture of a large one.
export async function drawThumb(canvas, matrix, mask, scale, picture) {
  canvas.style.imageRendering = '';
  if (Math.max(matrix.rows, matrix.cols) <= SIDE) return paintMap(canvas, { ...matrix, mask }, scale);
  const { gone, bitmap, width, height } = await picture(wholeRange(matrix), SIDE);
  if (!gone) Object.assign(canvas, { width, height }).getContext('2d').drawImage(bitmap, 0, 0);
  canvas.style.imageRendering = 'auto'; // the picture is larger than its place
}

// Returns the size of the picture of a matrix on the page. No side is longer than `most` pixels, and each side is long enough to be seen.
export function thumbSize({ rows, cols }, most) {
  const unit = most / Math.max(rows, cols);
  return { width: Math.max(cols * unit, 6), height: Math.max(rows * unit, 6) };
}
