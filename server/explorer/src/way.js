// way.js says how a number is made, which numbers it is made of, and where it goes next. It needs no page.
//
// A place is {id, row, col}: a row (col is undefined), a column (row is undefined) or a cell of a matrix. id: the name of a step, or q, k
// or v for the matrices beside the scores and the weights; those of a projection are Q, K and V. Rows and columns are those of the step,
// also if the page draws the matrix transposed.
import { arithmetic } from './arithmetic.js';
import { formatNumber } from './numbers.js';

const FEW = 8; // terms; of a longer sum, the largest ones are written
const LARGEST = 3;
const NEAR = 1e-4; // relative error; a larger one means that the number is not this sum
const BETWEEN = ['scores', 'scaled_scores', 'masked_scores', 'uncorrected', 'corrections', 'weights'];

export const stepOf = (id) => (id.length === 1 ? id.toUpperCase() : id);
const cellOf = (matrix, row, col) => matrix.data[row * matrix.cols + col];
const write = (x) => formatNumber(x, 4);
const inBrackets = (x) => (x < 0 ? `(${write(x)})` : write(x));

// Returns the parts of a sum of products, [[text, kind]]: `row` and `col` are the two factors.
function sumParts(terms) {
  const size = ([a, b]) => Math.abs(a * b);
  const shown = terms.length <= FEW ? terms : [...terms].sort((one, other) => size(other) - size(one)).slice(0, LARGEST);
  const parts = shown.flatMap(([a, b], at) => [[at ? ' + ' : ''], [inBrackets(a), 'row'], [' × '], [inBrackets(b), 'col']]);
  return shown.length < terms.length ? [...parts, [` + … (${terms.length} products)`]] : parts;
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

// Returns the links from the score to the weight: [[step, what, value]]. found: the arithmetic of the cell. row: the powers of the row, if
// they are few.
function linksOf(found, answer) {
  if (found.links) return found.links;
  const { d, score, scaled, masked, weight, mean, factor, softcap, added, forbidden, shift, power, total, sinkPower, powers } = found;
  const times = factor === null ? `× 1/√${d ?? 'd'}` : `× ${write(factor)}`;
  const links = [['scores', found.q ? '=' : 'score', score]];
  links.push(['scaled_scores', softcap === null ? `${times} =` : `${times}, capped at ${formatNumber(softcap, 3)} =`, scaled]);
  if (forbidden) links.push(['masked_scores', '+ mask =', masked]);
  else if (added !== 0) links.push(['masked_scores', `+ bias ${formatNumber(added, 3)} =`, masked]);
  if (power !== null) {
    const shifted = `(${write(masked)} ${shift < 0 ? '+' : '−'} ${write(Math.abs(shift))})`;
    const sink = sinkPower === null ? '' : ` with the sink’s ${formatNumber(sinkPower, 3)}`;
    links.push(['weights', `e^${shift === 0 ? write(masked) : shifted} =`, power]);
    const sum =
      powers && sinkPower === null ? `(${powers.map(write).join(' + ')} = ${write(total)})` : `${write(total)}, the row’s sum${sink}`;
    if (total === 0) links.push(['weights', 'all keys of the row are masked: weight', weight]);
    else links.push(['weights', `÷ ${sum} =`, weight]);
  } else {
    links.push(['weights', found.squashed === null ? 'no softmax: weight' : `sigmoid of ${write(found.squashed)} =`, weight]);
  }
  if (mean !== null) links.push(['weights', 'mean over heads:', mean]);
  if (found.digits !== null) links.push(['weights', `the server rounds its numbers to ${found.digits} digits`, null]);
  if (found.extra) links.push(['weights', 'bias_K or zero_key adds this key, and the answer has no row for it', null]);
  return links.filter(([step]) => answer.matrices[step]);
}

// Returns the number that a bias of a request adds to a column of Q, K, V or the output of a head.
// cols: how many columns the matrix of the head has. heads: how many heads the answer has, because several may share a key head.
function biasOf(body, name, { head, col, cols, heads }) {
  const own = Array.isArray(body?.heads) ? body.heads[head]?.[`b_${name}`] : body?.[`b_${name}`];
  if (!Array.isArray(own)) return 0;
  const rows = Array.isArray(own[0]);
  const groups = Array.isArray(body.heads) ? 1 : rows ? own.length : own.length / cols;
  const at = Math.floor((head * groups) / heads);
  const value = rows ? own[at]?.[col] : own[at * cols + col];
  return typeof value === 'number' ? value : 0;
}

// Returns the arithmetic of the query and the key of a cell.
export const found = (answer, place) => (answer.own ? answer.own.arithmetic(place) : arithmetic(answer, place));

// The functions below return the way of a number, {title, parts, from, to}. one: {answer, body, batch, head, id, row, col, name, value, get(name),
// mixed}. name: the step of id. get(name): a matrix, or null. mixed: the step that has the values mixed by the weights.

function wayOfProjected(one) {
  const { answer, body, head, id, row, col, name, value, get, mixed } = one;
  const { projected } = answer.summary;
  const isQuery = name === 'Q';
  const word = isQuery ? answer.query(row) : answer.key(row);
  const given = !isQuery && get('context') ? 'context' : 'X';
  const from = isQuery ? row : row - answer.past;
  const next = { Q: { id: 'scores', row }, K: { id: 'scores', col: row }, V: { id: mixed, col } }[name];
  const title = `${name} of ${word}, column ${col}: `;
  if (!projected) return { title, parts: null, from: [], to: [next] };
  const copy = id === name.toLowerCase();
  const parts = productOf(
    get(given),
    get(`W_${name}`),
    from,
    col,
    value,
    biasOf(body, name, { head, col, cols: get(name).cols, heads: answer.heads }),
  );
  const sources = [{ id: given, row: from }, { id: `W_${name}`, col }, ...(copy ? [{ id: name, row, col }] : [])];
  return { title, parts, from: sources, to: [copy ? next : { id: name.toLowerCase(), row, col }] };
}

function wayOfInput({ answer, row, col, name, get }) {
  const names = name === 'context' ? ['K', 'V'] : get('context') ? ['Q'] : ['Q', 'K', 'V'];
  const title = `${name} of ${name === 'X' ? answer.word(row) : answer.key(row)}, column ${col}: `;
  return { title, parts: null, from: [], to: names.map((id) => ({ id, row: id === 'Q' ? row : row + answer.past })) };
}

function wayOfWeights({ row, col, name, get }) {
  const [left, result] = name === 'W_O' ? ['joined', 'output'] : [get('context') && name !== 'W_Q' ? 'context' : 'X', name.at(-1)];
  return { title: `${name}, row ${row}, column ${col}: `, parts: null, from: [{ id: left, col: row }], to: [{ id: result, col }] };
}

function wayOfPair({ answer, batch, head, row, col, name, value, get, mixed }) {
  const chain = BETWEEN.filter(get);
  const [before, after] = [-1, 1].map((step) => chain[chain.indexOf(name) + step]);
  const made = found(answer, { batch, head, row, col });
  const links = linksOf(made, answer);
  const shown = links.filter(([step]) => chain.indexOf(step) <= chain.indexOf(name));
  const parts = made.products ? sumParts(Array.from(made.q, (q, at) => [q, made.k[at]])) : [];
  shown.forEach(([, what, number], at) => {
    parts.push([at ? ` → ${what} ` : ` ${what} `]);
    if (number !== null) parts.push([write(number), at === shown.length - 1 ? 'is' : 'then']);
  });
  if (name === 'corrections') {
    const [weight, uncorrected] = ['weights', 'uncorrected'].map((step) => cellOf(get(step), row, col));
    parts.splice(0, Infinity, [`weight ${write(weight)} − uncorrected ${inBrackets(uncorrected)} = `], [write(value), 'is']);
  } else if (!shown.length) parts.splice(0, Infinity, [write(value), 'is']);
  const spread = name === 'weights' && typeof made.power === 'number'; // softmax takes the whole row
  const from = [
    { id: 'q', row },
    { id: 'k', row: col },
  ];
  if (before) from.push(spread ? { id: before, row } : { id: before, row, col });
  const title = `${answer.query(row)} → ${answer.key(col)}: `;
  return {
    title,
    parts,
    from,
    to: after
      ? [{ id: after, row, col }]
      : [
          { id: 'v', row: col },
          { id: mixed, row },
        ],
  };
}

// Returns how many columns the heads before a head have in what stands side by side.
const columnsBefore = ({ answer, batch, head }) =>
  Array.from({ length: head }, (_, at) => answer.matrix('V', batch, at)?.cols ?? 0).reduce((sum, count) => sum + count, 0);

function wayOfMixed(one) {
  const { answer, row, col, value, get } = one;
  const side = get('joined') ? 'joined' : 'output';
  return {
    title: `output of ${answer.query(row)}, column ${col}: `,
    parts: productOf(get('weights'), get('V'), row, col, value),
    from: [
      { id: 'weights', row },
      { id: 'v', col },
    ],
    to: one.mixed === 'mixed' ? [{ id: side, row, col: columnsBefore(one) + col }] : [],
  };
}

// A matrix of all heads side by side has numbers of other heads, too. Only those of the head that is shown come from matrices of the flow.
function wayOfSide(one) {
  const { answer, batch, row, col, name } = one;
  const heads = Array.from({ length: answer.heads }, (_, head) => head);
  const owner = heads.findLast((head) => columnsBefore({ ...one, head }) <= col);
  const own = col - columnsBefore({ ...one, head: owner });
  const way = wayOfMixed({ ...one, col: own, get: (matrix) => answer.matrix(matrix, batch, owner) });
  return {
    title: `${name === 'joined' ? 'all heads' : 'output'} of ${answer.query(row)}, column ${col}, from head ${owner}: `,
    parts: way.parts,
    from: owner === one.head ? [{ id: 'mixed', row, col: own }] : [],
    to: name === 'joined' ? [{ id: 'output', row }] : [],
  };
}

function wayOfOutput(one) {
  const { answer, body, row, col, value, get, mixed } = one;
  if (mixed === 'output') return wayOfMixed(one);
  if (!get('joined')) return wayOfSide(one);
  return {
    title: `output of ${answer.query(row)}, column ${col}: `,
    parts: productOf(
      get('joined'),
      get('W_O'),
      row,
      col,
      value,
      biasOf({ b_O: body?.b_O }, 'O', { head: 0, col, cols: get('output').cols, heads: 1 }),
    ),
    from: [
      { id: 'joined', row },
      { id: 'W_O', col },
    ],
    to: [],
  };
}

function kindOf(name) {
  if ('QKV'.includes(name)) return wayOfProjected;
  if (BETWEEN.includes(name)) return wayOfPair;
  if (name.startsWith('W_')) return wayOfWeights;
  return { X: wayOfInput, context: wayOfInput, mixed: wayOfMixed, joined: wayOfSide, output: wayOfOutput }[name];
}

// Returns how the number at {id, row, col} is made, as {title, parts, from, to}: a name, the parts [[text, kind]] of a formula, and places.
// place: {batch, head}. body: the request, if the page has parsed it.
export function wayOf(answer, { batch, head }, { id, row, col }, body) {
  const name = stepOf(id);
  const get = (one) => answer.matrix(one, batch, head);
  const own = get(name);
  const value = own ? cellOf(own, row, col) : NaN;
  const mixed = get('mixed') ? 'mixed' : 'output';
  const way = kindOf(name)?.({ answer, body, batch, head, id, row, col, name, value, get, mixed });
  const plain = { title: `${name}, row ${row}, column ${col}: `, from: [], to: [] };
  return { ...plain, ...way, parts: way?.parts ?? [[write(value), 'is']] };
}
