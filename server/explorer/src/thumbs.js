// thumbs.js draws small pictures of matrices: of heads, of states and of differences.
import { paintPixels } from './colour.js';
import { wholeRange } from './geometry.js';

const SIDE = 64; // most pixels of a side of a picture; the worker draws a larger matrix

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
