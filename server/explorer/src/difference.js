// difference.js compares a result of the service with the same result of a user's own kernel. It needs no page.
//
// A cell is masked if it is −∞ in both. A cell is broken if the two numbers have no finite difference: the kernel gave NaN or an infinity,
// or only one of the two is −∞.
import { measured } from './matrices.js';
import { shapeText } from './tensortext.js';

// Numbers differ if |theirs − ours| > ATOL + RTOL · |ours|. These are the tolerances of torch.testing.assert_close. RTOL depends on the
// type of the user's numbers. Numbers of 64 bits have that of float32, because the service computes in float32 by default.
export const ATOL = 1e-5;
export const RTOL = { F16: 1e-3, BF16: 1.6e-2, F32: 1.3e-6 };

const MOST_BROKEN = 1000; // places that are listed; the others are counted

function withoutOnes(shape) {
  const first = shape.findIndex((size) => size !== 1);
  return first < 0 ? [] : shape.slice(first);
}

// Returns null if an array of this shape is a result with {batch, heads, rows, cols}, or else a sentence. name: the name of the result.
// Leading axes of size 1 do not matter. The axis of heads may be absent if there is one head.
export function fitTo(shape, { batch, heads, rows, cols }, name = 'output') {
  const whole = [batch, heads, rows, cols];
  const accepted = heads === 1 ? [whole, [batch, rows, cols]] : [whole];
  const given = withoutOnes(shape).join();
  if (accepted.some((one) => withoutOnes(one).join() === given)) return null;
  const shown = accepted.at(-1).slice(batch === 1 ? 1 : 0);
  const result = /^[A-Z]/.test(name) ? name : `the ${name.replaceAll('_', ' ')}`;
  return `The file has ${shapeText(shape)}, and ${result} ${name.endsWith('s') ? 'have' : 'has'} ${shapeText(shown)}.`;
}

// Returns the matrices of an array that fits, as [batch][head]. They share its memory.
export function partsOf({ data }, { batch, heads, rows, cols }) {
  const size = rows * cols;
  const part = (at) => ({ rows, cols, data: data.subarray(at * size, (at + 1) * size) });
  return Array.from({ length: batch }, (_, item) => Array.from({ length: heads }, (_, head) => part(item * heads + head)));
}

// Returns b − a as measured() of matrices.js has it, and {broken, brokenCount}: the indices of the first broken cells, and how many there
// are. A masked cell is −∞, and a broken one is NaN. `masked` counts masked cells; `bits` has broken cells, too, because neither has
// a colour.
export function difference(a, b) {
  const { rows, cols } = a;
  const data = new Float64Array(rows * cols);
  const broken = [];
  let brokenCount = 0;
  for (let at = 0; at < data.length; at++) {
    const value = b.data[at] - a.data[at];
    if (Number.isFinite(value)) {
      data[at] = value;
    } else if (a.data[at] === -Infinity && b.data[at] === -Infinity) {
      data[at] = -Infinity;
    } else {
      data[at] = NaN;
      if (brokenCount++ < MOST_BROKEN) broken.push(at);
    }
  }
  const all = measured({ rows, cols, data });
  if (!brokenCount) return { ...all, broken, brokenCount };
  const bits = all.bits ?? new Uint8Array(data.length);
  for (let at = 0; at < data.length; at++) if (Number.isNaN(data[at])) bits[at] = 1;
  return { ...all, bits, broken, brokenCount };
}

function placeOf(ours, theirs, { batch, head, at }) {
  const { cols, data } = ours[batch][head];
  return { batch, head, row: Math.floor(at / cols), col: at % cols, ours: data[at], theirs: theirs[batch][head].data[at] };
}

// Compares results as [batch][head]. Returns {error, relative, batch, head, row, col, ours, theirs}: the largest |theirs − ours|, this
// divided by |ours|, its first place and the two numbers there. If no cell has a finite difference, error and these are null.
// A broken cell is worse than any error, so the caller looks at brokenCount first. brokenCount, firstBroken: how many cells are broken, and
// the first as {batch, head, row, col, ours, theirs} or null. count: the cells that are not masked. over: the cells of these that are
// broken or whose numbers differ by more than the tolerances. type: a key of RTOL.
export function largestError(ours, theirs, type = 'F32') {
  let error = -1;
  let [count, over, brokenCount] = [0, 0, 0];
  const worst = { batch: 0, head: 0, at: 0 };
  let firstBroken = null;
  for (let batch = 0; batch < ours.length; batch++) {
    for (let head = 0; head < ours[batch].length; head++) {
      const a = ours[batch][head].data;
      const b = theirs[batch][head].data;
      for (let at = 0; at < a.length; at++) {
        const size = Math.abs(b[at] - a[at]);
        if (size < Infinity) {
          count++;
          if (size > ATOL + RTOL[type] * Math.abs(a[at])) over++;
          if (size > error) {
            error = size;
            Object.assign(worst, { batch, head, at });
          }
        } else if (a[at] !== -Infinity || b[at] !== -Infinity) {
          count++;
          over++;
          if (!brokenCount++) firstBroken = placeOf(ours, theirs, { batch, head, at });
        }
      }
    }
  }
  const rest = { count, over, brokenCount, firstBroken };
  if (error < 0) return { error: null, relative: null, batch: null, head: null, row: null, col: null, ours: null, theirs: null, ...rest };
  const place = placeOf(ours, theirs, worst);
  return { error, relative: error ? error / Math.abs(place.ours) : 0, ...place, ...rest };
}
