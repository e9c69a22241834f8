// thumbs.js draws small pictures of matrices, for the row of steps and for the choice of heads.
import { raster } from './colour.js';
import { wholeRange } from './geometry.js';
import { CanvasSurface, paintCells } from './paint.js';

const SIDE = 64; // most pixels of a side of a picture; the worker draws a larger matrix

// Draws a matrix on a canvas. A pixel shows one number, or several of a large matrix. picture(part, side) asks the worker for a picture.
export async function drawThumb(canvas, matrix, mask, scale, picture) {
  const range = wholeRange(matrix);
  const { rows, cols } = matrix;
  if (Math.max(rows, cols) <= SIDE) {
    const surface = new CanvasSurface(canvas, { width: cols, height: rows }, 1);
    return paintCells(surface, { matrix, mask, scale, range, size: { width: 1, height: 1, gap: 0 } });
  }
  const { gone, bitmap, width, height } = await picture(range, SIDE);
  if (!gone) new CanvasSurface(canvas, { width, height }, 1).picture({ bitmap }, [0, 0], [0, 0, width, height]);
}

// Draws a matrix that the worker does not have on a canvas, which gets the size of the picture.
export function paintMap(canvas, matrix, scale) {
  const { width, height, pixels } = raster(matrix, scale, wholeRange(matrix), SIDE);
  Object.assign(canvas, { width, height })
    .getContext('2d')
    .putImageData(new ImageData(pixels, width, height), 0, 0);
}

// Returns the size of the picture of a matrix on the page. No side is longer than `most` pixels, and each side is long enough to be seen.
export function thumbSize({ rows, cols }, most) {
  const unit = most / Math.max(rows, cols);
  return { width: Math.max(cols * unit, 6), height: Math.max(rows * unit, 6) };
}
