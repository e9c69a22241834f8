// pairs.js - the pairs of a query and a key that get a line, and the strength of each line. It is arithmetic and knows no page.
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

// Adds to `kept` where the kept weights of a row stand; `key` limits them to that one.
function keep(kept, head, query, { cols, key, ...rule }) {
  const { weights, masked } = head;
  const { least, ties } = rowCut(head, query, cols, rule);
  const begin = query * cols;
  let left = ties;
  for (let i = begin; i < begin + cols; i++) {
    const size = Math.abs(weights[i]);
    if (size < least || !(size > 0) || (masked && masked[i]) || (size === least && left-- <= 0)) {
      continue;
    }
    if (key === null || i === begin + key) {
      kept.push(i);
    }
  }
}

// The lines to draw, weakest first, of the queries from `first` to before `last`: {lines, count}. A line is {head, query, key,
// weight, strength}, strength being its part of the largest weight there is; count tells how many the rule keeps, of
// which the `limit` strongest are listed. rule: cols, threshold, mode ('weight' or 'mass'), and key (null for all).
export function choosePairs(heads, first, last, rule, limit) {
  const max = Math.max(...heads.map((head) => head.max));
  const bucket = (weight) => Math.min(BUCKETS - 1, Math.floor((Math.abs(weight) / max) * BUCKETS));
  const filled = new Uint32Array(BUCKETS);
  const kept = heads.map((head) => {
    const places = [];
    for (let query = first; query < last; query++) {
      keep(places, head, query, rule);
    }
    places.forEach((i) => filled[bucket(head.weights[i])]++);
    return places;
  });
  // From which bucket on they are listed, and how many of that bucket.
  let lowest = BUCKETS - 1;
  let room = limit - filled[lowest];
  while (lowest > 0 && room > 0) {
    lowest--;
    room -= filled[lowest];
  }
  let fromLowest = filled[lowest] + Math.min(0, room);
  const lines = [];
  heads.forEach(({ weights }, head) => {
    for (const i of kept[head]) {
      const place = bucket(weights[i]);
      if (place > lowest || (place === lowest && fromLowest-- > 0)) {
        const query = Math.floor(i / rule.cols);
        lines.push({ head, query, key: i - query * rule.cols, weight: weights[i], strength: Math.abs(weights[i]) / max });
      }
    }
  });
  lines.sort((a, b) => a.strength - b.strength);
  return { lines, count: kept.reduce((sum, places) => sum + places.length, 0) };
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
