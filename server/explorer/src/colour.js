// colour.js turns numbers into colours, on a linear or a logarithmic scale, in palettes that colour-blind people can read. Weights have a
// sequential palette that begins at 0; all other numbers have a palette that diverges from 0. The page and the worker use this module.

const STOPS = {
  viridis: ['440154', '482878', '3e4989', '31688e', '26828e', '1f9e89', '35b779', '6ece58', 'b5de2b', 'fde725'],
  cividis: ['00224e', '123570', '3b496c', '575d6d', '707173', '8a8678', 'a59c74', 'c3b369', 'e1cc55', 'fee838'],
  ink: ['f4f1ea', 'dfe3e0', 'bccfd2', '93b5c0', '6a98ad', '487a98', '305c80', '203f63', '152745', '0c1229'],
  light: ['0b4f94', '4a8fc7', 'a5c9e5', 'f2f0eb', 'f9cba4', 'e58339', '9c3a00'],
  dark: ['8cc2ff', '4683c4', '2a4a6d', '23252c', '63402a', 'b9692f', 'ffb074'],
  'errors-light': ['08306b', '1d6bb5', '5aa3dc', 'd9d8d4', 'f0954a', 'd95f02', '8f2d00'],
  'errors-dark': ['a9d2ff', '5b9be0', '2f6cb3', '3a3c42', 'b5601f', 'ef8a3c', 'ffc59a'],
};

export const SEQUENTIAL = ['viridis', 'cividis', 'ink'];

const tables = new Map();

// Returns the 256 colours of a palette, as bytes r, g, b.
export function table(name) {
  if (!tables.has(name)) {
    const stops = STOPS[name].map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    const bytes = new Uint8Array(256 * 3);
    for (let i = 0; i < 256; i++) {
      const place = (i / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      for (let c = 0; c < 3; c++) bytes[i * 3 + c] = Math.round(stops[low][c] + (place - low) * (stops[low + 1][c] - stops[low][c]));
    }
    tables.set(name, bytes);
  }
  return tables.get(name);
}

// Returns the index of the colour at t, which is 0 to 1.
const indexOf = (t) => Math.round(Math.min(Math.max(t, 0), 1) * 255);

// Returns the colour at t (0 to 1) of a palette, as CSS writes it.
export function css(name, t) {
  const at = indexOf(t) * 3;
  const [r, g, b] = table(name).subarray(at, at + 3);
  return `rgb(${r} ${g} ${b})`;
}

// Returns black or white, whichever is easier to read on the colour at t of a palette.
export function textOn(name, t) {
  const at = indexOf(t) * 3;
  const linear = (byte) => (byte / 255 <= 0.03928 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = table(name).subarray(at, at + 3);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.18 ? '#101014' : '#ffffff';
}

// Makes a scale. It is plain data, because it is sent to the worker. lo and hi: the smallest and the largest number of the matrix. least: if
// it is given, the scale is that of errors: smaller ones are grey, and the others have logarithmic colours, however small they are. means:
// 'one' or 'largest' if a pixel that covers several numbers shows their mean; with 'largest', the colours end where nearly all means do.
export function makeScale({ lo, hi, signed, log, palette, dark, least, means }) {
  const reach = Math.max(Math.abs(lo), Math.abs(hi)) || 1;
  if (least) return { signed, log: true, least, table: dark ? 'errors-dark' : 'errors-light', lo: -reach, hi: reach };
  if (signed) return { signed, log, table: dark ? 'dark' : 'light', lo: -reach, hi: reach };
  return { signed, log, table: palette, lo: 0, hi: hi > 0 ? hi : 1, means };
}

// The ranges of the colours for weights of softmax. 'one' ends at 1, so that equal weights always have the same colour. 'largest' ends at
// the largest weight. If the user has not chosen, it is 'largest' for many keys, because then no weight is near 1.
export const RANGES = ['one', 'largest'];
const FEW = 32;
export const rangeOf = (chosen, keys) => chosen ?? (keys <= FEW ? 'one' : 'largest');

const DECADES = 6;
const SAMPLE = 4096; // means
const MOST = 0.99; // the part of the means that have colours of their own

// Returns the place of a number on a scale, 0 to 1. A logarithmic scale has six decades below the largest number; if it is signed, it is
// asinh on both sides of 0.
export function position(scale, x) {
  if (scale.least) {
    const size = Math.abs(x) / scale.least;
    return size < 1 ? 0.5 : 0.5 + Math.sign(x) * Math.min(0.1 + (0.4 * Math.log(size)) / Math.log(scale.hi / scale.least), 0.5);
  }
  if (!scale.log) return (x - scale.lo) / (scale.hi - scale.lo);
  if (scale.signed) return 0.5 + (0.5 * Math.asinh((x / scale.hi) * 100)) / Math.asinh(100);
  return x > 0 ? Math.max(0, 1 + Math.log10(x / scale.hi) / DECADES) : 0;
}

// Returns where the colours of means end, as {hi, open}, because a few large ones would leave all others without a colour. open: whether
// larger ones have the last colour. Some of the means are enough to know it.
function endOf(means) {
  const step = Math.ceil(means.length / SAMPLE) | 1; // an odd number meets all columns of a picture whose width is a power of two
  const some = means.filter((mean, at) => at % step === 0 && mean > 0).sort();
  return some.length ? { hi: some[Math.floor(some.length * MOST)], open: true } : {};
}

// Paints the pixels of a part of a matrix on a canvas, as for raster(). Returns {bitmap, width, height, scale, reduced}, where bitmap is the canvas.
export function paintPixels(bitmap, matrix, scale, part, side) {
  const { pixels, ...made } = raster(matrix, scale, part, side);
  const { width, height } = made;
  Object.assign(bitmap, { width, height });
  bitmap.getContext('2d').putImageData(new ImageData(pixels, width, height), 0, 0);
  return { bitmap, ...made };
}

// Makes pixels of the part [row0, row1) x [col0, col1) of a row-major matrix, at most so many as `side` has: a number, or {width, height}.
// A pixel that covers several numbers shows the one of largest magnitude, or their mean if the scale says so: one large weight would hide
// a thousand others. A pixel is transparent if all its numbers are masked, NaN or -Infinity. Returns {width, height, pixels, scale,
// reduced}. scale: the one that the pixels have. reduced: whether pixels are means of several numbers.
export function raster({ data, cols, mask }, scale, { row0, row1, col0, col1 }, side) {
  const width = Math.min(side.width ?? side, col1 - col0);
  const height = Math.min(side.height ?? side, row1 - row0);
  const values = new Float64Array(width * height);
  for (let y = 0; y < height; y++) {
    const top = row0 + Math.floor((y * (row1 - row0)) / height);
    const bottom = Math.max(top + 1, row0 + Math.floor(((y + 1) * (row1 - row0)) / height));
    for (let x = 0; x < width; x++) {
      const left = col0 + Math.floor((x * (col1 - col0)) / width);
      const right = Math.max(left + 1, col0 + Math.floor(((x + 1) * (col1 - col0)) / width));
      let [best, sum, count] = [NaN, 0, 0];
      for (let row = top; row < bottom; row++) {
        for (let at = row * cols + left; at < row * cols + right; at++) {
          const value = data[at];
          if (mask?.[at] || !(value > -Infinity)) continue;
          if (!(Math.abs(value) <= Math.abs(best))) best = value;
          sum += value;
          count++;
        }
      }
      values[y * width + x] = scale.means ? sum / count : best;
    }
  }
  const reduced = Boolean(scale.means) && (width < col1 - col0 || height < row1 - row0);
  const own = reduced && scale.means === 'largest' ? { ...scale, ...endOf(values) } : scale;
  const colours = table(scale.table);
  const pixels = new Uint8ClampedArray(width * height * 4);
  values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    const colour = indexOf(position(own, value)) * 3;
    pixels.set(colours.subarray(colour, colour + 3), at * 4);
    pixels[at * 4 + 3] = 255;
  });
  return { width, height, pixels, scale: own, reduced };
}
