// way.js says how a number is made, which numbers it is made of, and where it goes next, and what a cell stands for. It needs no page.
//
// A place is {id, row, col}: a row (col is undefined), a column (row is undefined) or a cell of a matrix. id: the name of a step, or q, k
// or v for the matrices beside the scores and the weights; those of a projection are Q, K and V. Rows and columns are those of the step,
// also if the page draws the matrix transposed.
import { arithmetic } from './arithmetic.js';
import { rowOf } from './matrices.js';
import { formatNumber } from './numbers.js';
import { partOf } from './projections.js';
import { sourceOf } from './request.js';

const FEW = 8; // terms; of a longer sum, the largest ones are written
const LARGEST = 3;
const NEAR = 1e-4; // relative error; a larger one means that the number is not this sum
const TINY = 1e-37; // smaller numbers of the server may be 0
const BETWEEN = ['scores', 'scaled_scores', 'masked_scores', 'uncorrected', 'corrections', 'weights'];

export const stepOf = (id) => (id.length === 1 ? id.toUpperCase() : id);
const at = (id, row, col) => ({ id, row, col });
const cellOf = (matrix, row, col) => matrix.data[row * matrix.cols + col];
const write = (x) => formatNumber(x, 4);
const inBrackets = (x) => (x < 0 ? `(${write(x)})` : write(x));

// Returns the parts of a sum of products, [[text, kind]]: `row` and `col` are the two factors.
function sumParts(terms) {
  const size = ([a, b]) => Math.abs(a * b);
  const shown = terms.length <= FEW ? terms : [...terms].sort((one, other) => size(other) - size(one)).slice(0, LARGEST);
  const parts = shown.flatMap(([a, b], at) => [[at ? ' + ' : ''], [inBrackets(a), 'row'], [' × '], [inBrackets(b), 'col']]);
  return shown.length < terms.length ? [...parts, [` + … (${LARGEST} largest of ${terms.length})`]] : parts;
}

// Returns a sum of products with its parts, if it is the number `value`, or that without `added`.
function productOf(left, right, row, col, value, added = 0) {
  if (!left || !right || left.cols !== right.rows || row < 0 || row >= left.rows || col >= right.cols) return null;
  const terms = Array.from({ length: left.cols }, (_, at) => [cellOf(left, row, at), cellOf(right, at, col)]);
  const sum = terms.reduce((total, [a, b]) => total + a * b, 0);
  const size = terms.reduce((total, [a, b]) => total + Math.abs(a * b), Math.abs(added));
  if (Math.abs(sum + added - value) > NEAR * size + 1e-12) return null;
  const more = added === 0 ? [] : [[` + bias ${inBrackets(added)}`]];
  return [...sumParts(terms), ...more, [' = '], [write(value), 'is']];
}

// Returns what leads from the masked scores to the weight: [[step, what, value]].
function linksOfWeight({ softmax, squashed, masked, weight, forbidden }, same, { normalization }) {
  if (softmax?.total === 0 && weight === 0) return [['weights', 'all keys of the row are masked: weight', 0]];
  if (softmax && same(softmax.power / softmax.total, weight)) {
    const { shift, power, powers, total, sinkPower } = softmax;
    const shifted = `(${write(masked)} ${shift < 0 ? '+' : '−'} ${write(Math.abs(shift))})`;
    const terms = powers?.map(write).concat(sinkPower === null ? [] : `${write(sinkPower)} of the sink`);
    const unknown = sinkPower === undefined;
    const sink = sinkPower === null ? '' : unknown ? ' with that of the sink' : ` with the sink’s ${write(sinkPower)}`;
    const sum = terms && !unknown ? `(${terms.join(' + ')} = ${write(total)})` : `${write(total)}, the row’s sum${sink}`;
    return [
      ['weights', `e^${shift === 0 ? write(masked) : shifted} =`, power],
      ['weights', `÷ ${sum} =`, weight],
    ];
  }
  if (squashed !== null && same(1 / (1 + Math.exp(-squashed)), weight)) return [['weights', `sigmoid of ${write(squashed)} =`, weight]];
  const plain = normalization === 'none' && same(weight, forbidden ? 0 : masked);
  return [['weights', plain ? 'no softmax: weight' : 'weight', weight]];
}

// Returns the links from the score to the weight: [[step, what, value]]. found: the arithmetic of the cell. A link says how its number is
// made only if the number is made so.
function linksOf(found, { matrices, summary }) {
  if (found.links) return found.links;
  const { d, near, score, scaled, masked, mean, factor, softcap, added, forbidden, digits } = found;
  const same = (a, b) => Math.abs(a - b) <= near * Math.max(Math.abs(a), Math.abs(b)) + TINY;
  const times = score * (factor ?? 1 / Math.sqrt(d ?? NaN));
  const cap = softcap === null ? '' : `, capped at ${write(softcap)}`;
  const how = same(softcap === null ? times : softcap * Math.tanh(times / softcap), scaled);
  const links = [
    ['scores', found.q ? '=' : 'score', score],
    ['scaled_scores', how ? `× ${factor === null ? `1/√${d}` : write(factor)}${cap} =` : 'scaled', scaled],
  ];
  if (forbidden) links.push(['masked_scores', '+ mask =', masked]);
  else if (added !== 0) links.push(['masked_scores', `+ bias ${write(added)} =`, masked]);
  links.push(...linksOfWeight(found, same, summary.options));
  if (mean !== null) links.push(['weights', 'mean over heads:', mean]);
  if (digits !== null) links.push(['weights', `the server rounds its numbers to ${digits} digits`, null]);
  if (found.extra) links.push(['weights', 'bias_K or zero_key adds this key, and its rows of K and V are not known', null]);
  return links.filter(([step]) => matrices[step]);
}

function biasOf({ answer, body, batch, head, col, name }) {
  const vector = Array.isArray(body?.heads) ? body.heads.map((one) => one[`b_${name}`]) : body?.[`b_${name}`];
  const place = answer.place(name, batch, head);
  return partOf(vector, answer.matrices[name][place.batch], place.head)?.[col] ?? 0;
}

// Returns the arithmetic of the query and the key of a cell.
export const found = (answer, place) => (answer.own ? answer.own.arithmetic(place) : arithmetic(answer, place));

// The functions below return the way of a number, {title, parts, from, to}. one: {answer, body, batch, head, id, row, col, name, value,
// get(name), mixed}. name: the step of id. get(name): a matrix, or null. mixed: the step that has the values mixed by the weights, or null if
// the page does not have it.

function wayOfProjected(one) {
  const { answer, id, row, col, name, value, get, mixed } = one;
  const { projected } = answer.summary;
  const word = name === 'Q' ? answer.query(row) : answer.key(row);
  const title = `${name} of ${word}, column ${col}: `;
  const copy = !projected || id === name.toLowerCase();
  const next = { Q: at('scores', row), K: at('scores', undefined, row), V: at(mixed, undefined, col) }[name];
  const to = [copy ? next : at(name.toLowerCase(), row, col)];
  const same = projected && copy ? [at(name, row, col)] : [];
  const source = sourceOf(name, answer.summary);
  const from = name === 'Q' ? row : row - answer.past;
  // Rows of the past, and those of keys that the request adds, are no product.
  if (!projected || from < 0 || from >= (get(source)?.rows ?? Infinity)) return { title, parts: null, from: same, to };
  const parts = productOf(get(source), get(`W_${name}`), from, col, value, biasOf(one));
  return { title, parts, from: [at(source, from), at(`W_${name}`, undefined, col), ...same], to };
}

function wayOfInput({ answer, row, col, name }) {
  const names = ['Q', 'K', 'V'].filter((made) => sourceOf(made, answer.summary) === name);
  const column = (name === 'X' && answer.columns?.[col]) || `column ${col}`;
  const title = `${name} of ${name === 'X' ? answer.word(row) : answer.key(row)}, ${column}: `;
  return { title, parts: null, from: [], to: names.map((id) => at(id, id === 'Q' ? row : row + answer.past)) };
}

function wayOfWeights({ answer, row, col, name }) {
  const result = name === 'W_O' ? 'output' : name.at(-1);
  const left = name === 'W_O' ? 'joined' : sourceOf(result, answer.summary);
  return { title: `${name}, row ${row}, column ${col}: `, parts: null, from: [at(left, undefined, row)], to: [at(result, undefined, col)] };
}

function wayOfPair({ answer, batch, head, row, col, name, value, get, mixed }) {
  const chain = BETWEEN.filter(get);
  const [before, after] = [-1, 1].map((step) => chain[chain.indexOf(name) + step]);
  const made = found(answer, { batch, head, row, col });
  const links = linksOf(made, answer).filter(([step]) => chain.indexOf(step) <= chain.indexOf(name));
  const parts = made.products && links[0]?.[1] === '=' ? sumParts(Array.from(made.q, (q, place) => [q, made.k[place]])) : [];
  links.forEach(([, what, number], place) => {
    parts.push([place ? ` → ${what} ` : ` ${what} `]);
    if (number !== null) parts.push([write(number), place === links.findLastIndex((link) => link[2] !== null) ? 'is' : 'then']);
  });
  if (name === 'corrections') {
    const [weight, uncorrected] = ['weights', 'uncorrected'].map((step) => cellOf(get(step), row, col));
    parts.splice(0, Infinity, [`weight ${write(weight)} − uncorrected ${inBrackets(uncorrected)} = `], [write(value), 'is']);
  }
  const from = [at('q', row), at('k', col)];
  if (before) from.push(name === 'weights' && made.softmax ? at(before, row) : at(before, row, col)); // softmax takes the whole row
  const mixing = [at('v', col), at(mixed ?? 'output', row)];
  const title = `${answer.query(row)} → ${answer.key(col)}: `;
  return { title, parts: parts.length ? parts : null, from, to: after ? [at(after, row, col)] : mixing };
}

function wayOfProduct({ answer, batch, head, row, col, value, get }) {
  const [{ asked }, { Q, K }] = [answer, answer.factors(batch, head)];
  const score = [[` → its row sums to the score `], [write(cellOf(get('scores'), asked, row)), 'then']]; // prettier-ignore
  return {
    title: `${answer.query(asked)} → ${answer.key(row)}, column ${col}: `,
    parts: [...sumParts([[cellOf(Q, asked, col), cellOf(K, row, col)]]), [' = '], [write(value), 'is'], ...score],
    from: [at('q', asked, col), at('k', row, col)],
    to: [at('scores', asked, row)],
  };
}

// Returns how many columns the heads before a head have in what stands side by side.
const columnsBefore = ({ answer, batch, head }) =>
  Array.from({ length: head }, (_, at) => answer.matrix('V', batch, at)?.cols ?? 0).reduce((sum, count) => sum + count, 0);

function wayOfMixed(one) {
  const { answer, row, col, value, get } = one;
  const side = get('joined') ? 'joined' : 'output';
  const parts = productOf(get('weights'), get('V'), row, col, value);
  return {
    title: `output of ${answer.query(row)}, column ${col}: `,
    parts,
    // Without a sum, the weights are a mean over heads, or the page does not have V.
    from: parts ? [at('weights', row), at('v', undefined, col)] : [],
    to: one.mixed === 'mixed' ? [at(side, row, columnsBefore(one) + col)] : [],
  };
}

// A matrix of all heads side by side has numbers of other heads, too. Only those of the head that is shown come from matrices of the flow.
// `source` is the other head.
function wayOfSide(one) {
  const { answer, batch, row, col, name } = one;
  const heads = Array.from({ length: answer.heads }, (_, head) => head);
  const owner = heads.findLast((head) => columnsBefore({ ...one, head }) <= col);
  const own = col - columnsBefore({ ...one, head: owner });
  const way = wayOfMixed({ ...one, col: own, get: (matrix) => answer.matrix(matrix, batch, owner) });
  return {
    title: `${name === 'joined' ? 'all heads' : 'output'} of ${answer.query(row)}, column ${col}, from head ${owner}: `,
    parts: way.parts,
    source: owner,
    from: owner === one.head ? [at('mixed', row, own)] : [],
    to: name === 'joined' ? [at('output', row)] : [],
  };
}

function wayOfOutput(one) {
  const { answer, body, row, col, value, get, mixed } = one;
  if (mixed === 'output') return wayOfMixed(one);
  if (!answer.summary.shapes.W_O) return wayOfSide(one);
  return {
    title: `output of ${answer.query(row)}, column ${col}: `,
    parts: productOf(get('joined'), get('W_O'), row, col, value, body?.b_O?.[col] ?? 0),
    from: get('joined') ? [at('joined', row), at('W_O', undefined, col)] : [],
    to: [],
  };
}

function kindOf(name) {
  if ('QKV'.includes(name)) return wayOfProjected;
  if (BETWEEN.includes(name)) return wayOfPair;
  if (name.startsWith('W_')) return wayOfWeights;
  const inputs = { products: wayOfProduct, X: wayOfInput, context: wayOfInput, value_context: wayOfInput };
  return { ...inputs, mixed: wayOfMixed, joined: wayOfSide, output: wayOfOutput }[name];
}

// Returns the step that has the values mixed by the weights of a head, or null if the page does not have it.
export const mixedOf = (has, { shapes }) => (has('mixed') ? 'mixed' : shapes.W_O ? null : 'output');

// Returns how the number at {id, row, col} is made, as {title, parts, from, to, source}: a name, the parts [[text, kind]] of a formula, places,
// and the head that it comes from if it may be another one. place: {batch, head, mean}. mean: the mean of the weights over heads, if it is
// shown. body: the request, if the page has parsed it.
export function wayOf(answer, { batch, head, mean }, { id, row, col }, body) {
  const name = stepOf(id);
  const get = (one) => answer.matrix(one, batch, head);
  const averaged = name === 'weights' && mean;
  const own = averaged || get(name);
  const value = own ? cellOf(own, row, col) : NaN;
  const way = kindOf(name)?.({ answer, body, batch, head, id, row, col, name, value, get, mixed: mixedOf(get, answer.summary) });
  const plain = { title: `${name}, row ${row}, column ${col}: `, from: [], to: [] };
  const parts = averaged ? [[`mean of ${answer.heads} heads: `], [write(value), 'is']] : (way?.parts ?? [[write(value), 'is']]);
  return { ...plain, ...way, parts };
}

// The steps whose numbers stand beside the weight of a cell, with their names there.
const NUMBERS = {
  ...{ scores: 'score', scaled_scores: 'scaled', masked_scores: 'masked' },
  ...{ uncorrected: 'uncorrected', corrections: 'corrections' },
};

// Returns the numbers of a cell, as {title, entries}; each entry is [name, value, strong]. matrix: the numbers that are shown. weights: the
// weights of the head, or their mean over heads.
export function factsOf(step, { row, col }, { answer, batch, head, matrix, weights }) {
  if (step.name === 'products') {
    const [{ asked }, { Q, K }] = [answer, answer.factors(batch, head)];
    const factors = [[`query ${answer.query(asked)}`, Q, asked, col], [`key ${answer.key(row)}`, K, row, col]]; // prettier-ignore
    const numbers = [['product', matrix, row, col], ...factors, ['score', answer.matrix('scores', batch, head), asked, row]]; // prettier-ignore
    const entry = ([name, from, i, j], place) => [name, formatNumber(rowOf(from, i)[j]), place === 0];
    return { title: `${answer.key(row)}, column ${col}`, entries: numbers.map(entry) };
  }
  if (step.cols !== 'key') {
    const own = formatNumber(matrix.data[row * matrix.cols + col]);
    const more = step.name === 'states' ? answer.own.factsOf({ batch, head, row, col }) : [];
    const place = step.rows === 'dimension' ? `row ${row}` : answer.label(step.rows)(row);
    return { title: `${place}, column ${col}`, entries: [[step.title, own, true], ...more] };
  }
  const shown = Object.keys(NUMBERS).filter((name) => answer.matrices[name]);
  const value = ({ data, cols }) => formatNumber(data[row * cols + col]);
  const weight = weights.data[row * weights.cols + col];
  const masked = answer.mask(batch, head)?.[row * answer.keys + col] === 1;
  const rest = weights.data.subarray(row * weights.cols, (row + 1) * weights.cols);
  const rank = 1 + rest.reduce((count, other) => count + (other > weight), 0);
  const entries = [
    ['query', answer.query(row)],
    ['key', answer.key(col)],
    ['weight', masked ? 'masked' : formatNumber(weight), true],
    ...shown.map((name) => [NUMBERS[name], value(answer.matrix(name, batch, head))]),
    ...(masked ? [] : [['rank in row', `${rank} of ${rest.length}`]]),
  ];
  return { title: `${answer.query(row)} → ${answer.key(col)}`, entries };
}
