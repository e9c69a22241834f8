// facts.js says what a cell of a step stands for, and its numbers in words. It needs no page.
import { formatNumber } from './numbers.js';

// The numbers of a cell beside its weight: their names, and their steps.
const NUMBERS = [
  ['score', 'scores'],
  ['scaled', 'scaled_scores'],
  ['masked', 'masked_scores'],
  ['uncorrected', 'uncorrected'],
  ['corrections', 'corrections'],
];

// Returns the numbers of a cell, as {title, entries}; each entry is [name, value, strong]. matrix: the numbers that are shown. weights: the
// weights of the head, or their mean over heads.
export function factsOf(step, { row, col }, { answer, batch, head, matrix, weights }) {
  if (step.cols !== 'key') {
    const own = formatNumber(matrix.data[row * matrix.cols + col]);
    const more = step.name === 'states' ? answer.own.factsOf({ batch, head, row, col }) : [];
    const place = step.rows === 'dimension' ? `row ${row}` : answer.label(step.rows)(row);
    return { title: `${place}, column ${col}`, entries: [[step.title, own, true], ...more] };
  }
  const value = (name) => {
    const found = answer.matrix(name, batch, head);
    return found ? formatNumber(found.data[row * found.cols + col]) : '–';
  };
  const weight = weights.data[row * weights.cols + col];
  const masked = answer.mask(batch, head)?.[row * answer.keys + col] === 1;
  const rest = weights.data.subarray(row * weights.cols, (row + 1) * weights.cols);
  const rank = 1 + rest.reduce((count, other) => count + (other > weight), 0);
  const entries = [
    ['query', answer.query(row)],
    ['key', answer.key(col)],
    ['weight', masked ? 'masked' : formatNumber(weight), true],
    ...NUMBERS.filter(([, name]) => answer.matrices[name]).map(([title, name]) => [title, value(name)]),
    ...(masked ? [] : [['rank in row', `${rank} of ${rest.length}`]]),
  ];
  return { title: `${answer.query(row)} → ${answer.key(col)}`, entries };
}
