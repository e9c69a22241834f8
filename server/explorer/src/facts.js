// facts.js says what a cell of a step stands for, and its numbers in words. It needs no page.
import { rowOf } from './matrices.js';
import { formatNumber } from './numbers.js';

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
    const write = ([name, from, i, j], at) => [name, formatNumber(rowOf(from, i)[j]), at === 0];
    return { title: `${answer.key(row)}, column ${col}`, entries: numbers.map(write) };
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
