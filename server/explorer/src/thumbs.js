// Small pictures of matrices: the strip of steps and the choice of heads.
import { raster } from './colour.js';
import { whole } from './geometry.js';

const MOST_NUMBERS = 60_000; // more are drawn by the worker
const SIDE = 64;

// Draws a matrix on a canvas, a pixel for each number or for many of them. picture(part, side) asks the worker.
export async function drawThumb(canvas, matrix, mask, scale, picture) {
  const part = whole(matrix);
  let width;
  let height;
  let source;
  if (matrix.rows * matrix.cols > MOST_NUMBERS) {
    const drawn = await picture(part, SIDE);
    if (drawn.gone) return;
    ({ width, height } = drawn);
    source = drawn.bitmap;
  } else {
    const drawn = raster({ ...matrix, mask }, scale, part, SIDE);
    ({ width, height } = drawn);
    source = new ImageData(drawn.pixels, width, height);
  }
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext('2d');
  if (source instanceof ImageData) context.putImageData(source, 0, 0);
  else context.drawImage(source, 0, 0);
}

// The size at which a thumb of this shape is shown: no side longer than `most`, none thinner than can be seen.
export function thumbSize({ rows, cols }, most) {
  const unit = most / Math.max(rows, cols);
  return { width: Math.max(cols * unit, 6), height: Math.max(rows * unit, 6) };
}
