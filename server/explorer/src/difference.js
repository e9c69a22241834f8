// difference.js compares a result of the service with the same result of a user's own program. It needs no page.
//
// A cell is masked if it is −∞ in both. A cell is broken if the two numbers have no finite difference: the program gave NaN or an infinity,
// or only one of the two is −∞.
import { withMember } from './jsontext.js';
import { shapeText } from './tensortext.js';

// The results that a file may have, in the order in which an array without a name is compared with them.
export const RESULTS = ['output', 'weights', 'scores', 'scaled_scores', 'masked_scores', 'Q', 'K', 'V'];

// The tolerance of torch.testing.assert_close for a type, where the service has not said one. A number b is within it if |b − a| ≤ absolute
// + relative · |b|.
export const toleranceOf = (type) => ({ absolute: 1e-5, relative: { F16: 1e-3, BF16: 1.6e-2 }[type] ?? 1.3e-6 });

// The orders in which an array may hold the numbers of all heads. The second one also fits if the last two axes are one.
export const ORDERS = { heads: 'heads × rows × columns', rows: 'rows × heads × columns' };

const withoutOnes = (shape) => shape.join().replace(/^(1(,|$))+/, '');

// Returns the orders, keys of ORDERS, in which an array of this shape is a result with these sizes. Leading axes of size 1 do not matter.
// The axis of heads may be absent if there is one head.
export function ordersOf(shape, { batch, heads, rows, cols }) {
  const fits = (...forms) => forms.some((form) => withoutOnes(form) === withoutOnes(shape));
  const one = heads === 1;
  return [
    ...(fits([batch, heads, rows, cols], ...(one ? [[batch, rows, cols]] : [])) ? ['heads'] : []),
    ...(!one && fits([batch, rows, heads, cols], [batch, rows, heads * cols]) ? ['rows'] : []),
  ];
}

// Says that an array of this shape is no result with these sizes.
export function refusal(shape, { batch, heads, rows, cols }, name) {
  const shown = [...(batch > 1 ? [batch] : []), ...(heads > 1 ? [heads] : []), rows, cols];
  const result = /^[A-Z]/.test(name) ? name : `the ${name.replaceAll('_', ' ')}`;
  return `The file has ${shapeText(shape)}, and ${result} ${name.endsWith('s') ? 'have' : 'has'} ${shapeText(shown)}.`;
}

// Swaps the second and the third axis of (batch, m, n, block).
export function swapped(data, batch, m, n, block) {
  const made = new data.constructor(data.length);
  for (let item = 0; item < batch; item++) {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        const from = ((item * m + i) * n + j) * block;
        made.set(data.subarray(from, from + block), ((item * n + j) * m + i) * block);
      }
    }
  }
  return made;
}

// Returns the matrices of an array in the order of heads, as [batch][head]. They share its memory.
export function partsOf(data, { batch, heads, rows, cols }) {
  const size = rows * cols;
  const part = (at) => ({ rows, cols, data: data.subarray(at * size, (at + 1) * size) });
  return Array.from({ length: batch }, (_, item) => Array.from({ length: heads }, (_, head) => part(item * heads + head)));
}

const isWithin = (a, b, { absolute, relative }) => a === b || (Number.isFinite(b) && Math.abs(b - a) <= absolute + relative * Math.abs(b));

// Returns b − a as a matrix. A masked cell is −∞, and a broken one is NaN.
export function difference({ rows, cols, data: a }, { data: b }) {
  const data = Float64Array.from(a, (x, at) => (Number.isFinite(b[at] - x) ? b[at] - x : x === b[at] ? Math.min(x, 0) : NaN));
  const masked = data.reduce((sum, x) => sum + (x === -Infinity), 0);
  return { rows, cols, data, masked };
}

// Returns the numbers that choose the colours of a difference: ∞ for a broken cell, and 0 for one within the tolerance, if there is one.
export const shadesOf = ({ data }, a, b, tolerance) =>
  data.map((x, at) => (Number.isNaN(x) ? Infinity : tolerance && x > -Infinity && isWithin(a.data[at], b.data[at], tolerance) ? 0 : x));

// Compares results as [batch][head]. Returns what was found:
// error, batch, head, row, col, ours, theirs: the largest |theirs − ours|, its first place and the two numbers there, or null if no cell has
// a finite difference. brokenCount, firstBroken: how many cells are broken, and the first, as {batch, head, row, col, ours, theirs} or null.
// count: the cells that are not masked. over: those of them that are broken or beyond the tolerance. heads: the same count for each head, as
// [batch][head]. rows, cols: a byte for each row and column, 1 if such a cell is in it. least, tiny: the smallest error beyond the tolerance,
// and the smallest that is not 0. lo, hi: the smallest and the largest finite number of both.
export function survey(ours, theirs, tolerance) {
  const most = Math.max(...ours[0].map(({ cols }) => cols));
  const found = {
    ...{ error: null, count: 0, over: 0, brokenCount: 0, firstBroken: null },
    ...{ least: Infinity, tiny: Infinity, lo: Infinity, hi: -Infinity },
    ...{ rows: new Uint8Array(ours[0][0].rows), cols: new Uint8Array(most) },
  };
  const placeOf = (batch, head, at) => {
    const { cols, data } = ours[batch][head];
    return { batch, head, row: Math.floor(at / cols), col: at % cols, ours: data[at], theirs: theirs[batch][head].data[at] };
  };
  const ofHead = (batch, head) => {
    const { data: a, cols } = ours[batch][head];
    const b = theirs[batch][head].data;
    let over = 0;
    let [largest, place] = [found.error ?? -1, -1];
    for (let at = 0; at < a.length; at++) {
      const [x, y] = [a[at], b[at]];
      for (const value of [x, y]) {
        if (value < found.lo && value > -Infinity) found.lo = value;
        if (value > found.hi && value < Infinity) found.hi = value;
      }
      if (x === -Infinity && y === -Infinity) continue;
      found.count++;
      const size = x === y ? 0 : Math.abs(y - x);
      if (size > largest && size < Infinity) [largest, place] = [size, at];
      if (size > 0 && size < found.tiny) found.tiny = size;
      if (isWithin(x, y, tolerance)) continue;
      over++;
      found.rows[Math.floor(at / cols)] = found.cols[at % cols] = 1;
      if (size < found.least) found.least = size;
      if (!(size < Infinity) && !found.brokenCount++) found.firstBroken = placeOf(batch, head, at);
    }
    if (place >= 0) Object.assign(found, { error: largest, ...placeOf(batch, head, place) });
    found.over += over;
    return over;
  };
  found.heads = ours.map((item, batch) => item.map((_, head) => ofHead(batch, head)));
  return found;
}

// Says which of a list of bytes are not 0: 'row 17', 'rows 0 to 510', 'rows 3, 5 and 9', 'all 512 rows', '300 of 512 rows, the first is 7'.
export function spanOf(name, flags, label = () => '') {
  const list = [...flags.keys()].filter((at) => flags[at]);
  const [first, last] = [list[0], list.at(-1)];
  if (list.length === 1) return `${name} ${first}${label(first)}`;
  if (list.length === flags.length) return `all ${list.length} ${name}s`;
  if (last - first === list.length - 1) return `${name}s ${first} to ${last}`;
  if (list.length < 5) return `${name}s ${list.slice(0, -1).join(', ')} and ${last}`;
  return `${list.length} of ${flags.length} ${name}s, the first is ${first}`;
}

// Returns the requests that may explain a wrong result of a kernel, as [{says, text, more}]. text: the right request. options, shapes: those of
// its summary. more: tensors that belong to the request. says: what is different, as the end of a sentence that begins with "if".
export function suspects(text, { options, shapes }, rows, keys) {
  if (options.update) return [];
  const list = [];
  const add = (says, key, value, from = text) => list.push({ says, text: withMember(from, key, value), more: [] });
  const free = withMember(text, 'causal', undefined);
  if (options.causal) {
    if (!options.window) add('each query also attends to the key after its own', 'window', '[-1, 1]', free);
    const earlier = Uint8Array.from({ length: rows * keys }, (_, at) => Number(at % keys < Math.floor(at / keys)));
    const mask = { name: 'mask', type: 'BOOL', shape: [rows, keys], data: earlier };
    if (!shapes.mask) list.push({ says: 'no query attends to its own key', text, more: [mask] });
    add('there is no causal mask', 'causal', undefined);
    const other = options.causal === true ? '"bottom_right"' : 'true';
    if (rows !== keys) add(`causal is ${other}`, 'causal', other);
  } else add('causal is true', 'causal', 'true');
  if (shapes.mask) add('there is no mask', 'mask', undefined);
  if (options.scale !== 1) add('the scale is 1', 'scale', '1');
  return list;
}
