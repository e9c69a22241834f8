// pairs.js - which pairs of a query and a key get a line, and how strong each is. Arithmetic alone: it knows no page.
//
// A head is {weights, masked, max, cuts}: its weights row-major (rows × cols), 1 in `masked` where a pair is forbidden, the
// largest magnitude, and what was found out about its rows under the present threshold. Weights may be negative
// (normalization "none"): what counts is their magnitude.

const BUCKETS = 1024;

// weights, masked → a head. A forbidden pair never counts, whatever weight stands there.
export function makeHead(weights, masked = null) {
  let max = 0;
  for (let i = 0; i < weights.length; i++) {
    const size = Math.abs(weights[i]);
    if (size > max && !(masked && masked[i])) {
      max = size;
    }
  }
  return { weights, masked, max, cuts: new Map() };
}

// The fewest keys, one at least, that hold the part `mass` of a row: {least, ties}, the smallest magnitude among them and how
// many of just this magnitude. `sizes` are the magnitudes of the row; it is sorted in place.
export function massCut(sizes, mass) {
  sizes.sort();
  let total = 0;
  for (const size of sizes) {
    total += size;
  }
  let held = 0;
  let ties = 0;
  let at = sizes.length;
  while (at > 0 && sizes[at - 1] > 0 && (held < mass * total || at === sizes.length)) {
    at--;
    held += sizes[at];
    ties = at + 1 < sizes.length && sizes[at] === sizes[at + 1] ? ties + 1 : 1;
  }
  return at < sizes.length ? { least: sizes[at], ties } : { least: Infinity, ties: 0 };
}

function rowCut(head, row, cols, { threshold, mode }) {
  if (mode !== 'mass') {
    return { least: threshold, ties: Infinity };
  }
  let cut = head.cuts.get(row);
  if (!cut) {
    const sizes = new Float64Array(cols);
    for (let key = 0, i = row * cols; key < cols; key++, i++) {
      sizes[key] = head.masked?.[i] ? 0 : Math.abs(head.weights[i]);
    }
    cut = massCut(sizes, threshold);
    head.cuts.set(row, cut);
  }
  return cut;
}

// Calls visit(head's place, query, key, weight) for each pair that is kept; `key` limits them to that one.
function visitRow(heads, query, { cols, key, ...rule }, visit) {
  heads.forEach((head, place) => {
    const { least, ties } = rowCut(head, query, cols, rule);
    let left = ties;
    for (let k = 0, i = query * cols; k < cols; k++, i++) {
      const weight = head.weights[i];
      const size = Math.abs(weight);
      if (size < least || !(size > 0) || head.masked?.[i] || (size === least && left-- <= 0)) {
        continue;
      }
      if (key === null || k === key) {
        visit(place, query, k, weight);
      }
    }
  });
}

// The lines to draw, weakest first, of the queries from `first` to before `last`: {lines, count}. A line is {head, query, key,
// weight, strength}, strength being its part of the largest weight there is; count tells how many the rule keeps, of
// which the `limit` strongest are listed. rule: cols, threshold, mode ('weight' or 'mass'), and key (null for all).
export function choosePairs(heads, first, last, rule, limit) {
  const max = Math.max(...heads.map((head) => head.max));
  const bucket = (weight) => Math.min(BUCKETS - 1, Math.floor((Math.abs(weight) / max) * BUCKETS));
  const filled = new Uint32Array(BUCKETS);
  let count = 0;
  for (let query = first; query < last; query++) {
    visitRow(heads, query, rule, (head, q, key, weight) => {
      filled[bucket(weight)]++;
      count++;
    });
  }
  // From which bucket on they are listed, and how many of that bucket.
  let lowest = BUCKETS - 1;
  let room = limit - filled[lowest];
  while (lowest > 0 && room > 0) {
    lowest--;
    room -= filled[lowest];
  }
  let fromLowest = filled[lowest] + Math.min(0, room);
  const lines = [];
  for (let query = first; query < last; query++) {
    visitRow(heads, query, rule, (head, q, key, weight) => {
      const place = bucket(weight);
      if (place > lowest || (place === lowest && fromLowest-- > 0)) {
        lines.push({ head, query: q, key, weight, strength: Math.abs(weight) / max });
      }
    });
  }
  lines.sort((a, b) => a.strength - b.strength);
  return { lines, count };
}

// A weight beside a word: three decimals, or the power of ten of what is smaller.
export function weightText(weight) {
  const size = Math.abs(weight);
  if (size === 0) {
    return '0';
  }
  if (size < 0.0005) {
    return weight.toExponential(0).replaceAll('-', '−');
  }
  return (size < 100 ? weight.toFixed(3) : weight.toPrecision(4)).replace('-', '−');
}
