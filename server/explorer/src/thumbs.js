// Small pictures of matrices, for the strip of steps and for the choice of heads.
import { whole } from './geometry.js';
import { CanvasSurface, paintCells } from './paint.js';

const SIDE = 64; // of a thumb in its own pixels, at most; a larger matrix is drawn by the worker

// Draws a matrix on a canvas, a pixel for each number or for many of them. picture(part, side) asks the worker.
export async function drawThumb(canvas, matrix, mask, scale, picture) {
  const range = whole(matrix);
  const { rows, cols } = matrix;
  if (Math.max(rows, cols) <= SIDE) {
    const surface = new CanvasSurface(canvas, { width: cols, height: rows }, 1);
    return paintCells(surface, { matrix, mask, scale, range, size: { width: 1, height: 1, gap: 0 } });
  }
  const { gone, bitmap, width, height } = await picture(range, SIDE);
  if (!gone) new CanvasSurface(canvas, { width, height }, 1).picture({ bitmap }, [0, 0], [0, 0, width, height]);
}

// The size of the thumb of a matrix: no side is longer than `most`, and each side is wide enough to be seen.
export function thumbSize({ rows, cols }, most) {
  const unit = most / Math.max(rows, cols);
  return { width: Math.max(cols * unit, 6), height: Math.max(rows * unit, 6) };
}
