// pairs.js chooses the pairs of a query and a key that get a line, and computes the strength of each line. It needs no page.
//
// A head is {weights, masked, max, cuts}. weights: row-major (rows × cols). masked: 1 for each masked pair, or null. max: the largest
// magnitude of its weights. cuts: for each row, the result of massCut for the present threshold. With normalization "none", weights may be
// negative; the rules then use their magnitude.

// Makes a head. A masked pair does not count, whatever its weight is.
export function makeHead(weights, masked) {
  const max = weights.reduce((most, weight, i) => (masked?.[i] ? most : Math.max(most, Math.abs(weight))), 0);
  return { weights, masked, max, cuts: new Map() };
}

// Finds the fewest keys, but at least one, whose weights sum to the part `mass` of a row. Returns {least, ties}: the smallest magnitude
// among them, and how many of them have just this magnitude. sizes: the magnitudes of the row; the function sorts them in place.
export function massCut(sizes, mass) {
  sizes.sort();
  const total = sizes.reduce((sum, size) => sum + size, 0);
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

// Returns the smallest magnitude that a row keeps, and how many weights of just this magnitude it keeps.
function rowCut(head, row, cols, { threshold, mode }) {
  if (mode !== 'mass') return { least: threshold, ties: Infinity };
  if (!head.cuts.has(row)) {
    const sizes = Float64Array.from(head.weights.subarray(row * cols, (row + 1) * cols), Math.abs);
    head.cuts.set(row, massCut(sizes.map((size, key) => (head.masked?.[row * cols + key] ? 0 : size)), threshold)); // prettier-ignore
  }
  return head.cuts.get(row);
}

// Adds the indices of the kept weights of a row to `kept`. If `key` is not null, it adds only the weight of this key.
function keep(kept, head, query, { cols, key, ...rule }) {
  const { weights, masked } = head;
  const { least, ties } = rowCut(head, query, cols, rule);
  const begin = query * cols;
  let left = ties;
  for (let i = begin; i < begin + cols; i++) {
    const size = Math.abs(weights[i]);
    if (size < least || !(size > 0) || (masked && masked[i]) || (size === least && left-- <= 0)) continue;
    if (key === null || i === begin + key) kept.push(i);
  }
}

// Chooses the lines of the queries from `first` to before `last`. Returns {lines, count}. A line is {head, query, key, weight, strength};
// strength is its magnitude divided by the largest magnitude of all heads. count: how many lines the rule keeps. lines: the `limit`
// strongest of them, weakest first. rule: {cols, threshold, mode, key}. mode is 'weight' or 'mass'; key is null for all keys.
export function choosePairs(heads, first, last, rule, limit) {
  const max = Math.max(...heads.map((head) => head.max));
  const kept = heads.map((head) => {
    const places = [];
    for (let query = first; query < last; query++) keep(places, head, query, rule);
    return places;
  });
  // The smallest magnitude that gets a line, and how many weights of just this magnitude get one.
  const sizes = Float64Array.from(kept.flatMap((places, head) => places.map((i) => Math.abs(heads[head].weights[i])))).sort();
  const least = sizes.at(-limit) ?? 0;
  let ties = limit - sizes.filter((size) => size > least).length;
  const lines = [];
  heads.forEach(({ weights }, head) => {
    for (const i of kept[head]) {
      const size = Math.abs(weights[i]);
      if (size < least || (size === least && ties-- <= 0)) continue;
      const query = Math.floor(i / rule.cols);
      lines.push({ head, query, key: i - query * rule.cols, weight: weights[i], strength: size / max });
    }
  });
  lines.sort((a, b) => a.strength - b.strength);
  return { lines, count: sizes.length };
}

// Writes the weight beside a word: with three decimals, or as a power of ten if it is smaller.
export function weightText(weight) {
  const size = Math.abs(weight);
  if (size === 0) return '0';
  if (size < 0.0005) return weight.toExponential(0).replaceAll('-', '−');
  return (size < 100 ? weight.toFixed(3) : weight.toPrecision(4)).replace('-', '−');
}
