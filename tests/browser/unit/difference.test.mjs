// difference.test.mjs tests how the explorer compares a result with that of a user's own program, and in which requests it looks for the
// cause of a wrong one.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { css, makeScale, position, raster } from '../../../server/explorer/src/colour.js';
import {
  difference,
  ordersOf,
  partsOf,
  refusal,
  shadesOf,
  spanOf,
  survey,
  suspects,
  swapped,
  toleranceOf,
} from '../../../server/explorer/src/difference.js';
import { drawing } from '../draw.mjs';

const matrix = (rows, cols, values) => ({ rows, cols, data: Float64Array.from(values) });
const row = (...values) => matrix(1, values.length, values);
const one = (...values) => [[row(...values)]];
const FLOAT = toleranceOf('F32');
const sizes = ([batch, heads, rows, cols]) => ({ batch, heads, rows, cols });

test('the orders of an array: with and without the axes of size 1, and with the heads after the rows', () => {
  const fits = (wanted, orders, ...shapes) => {
    for (const shape of shapes) assert.deepEqual(ordersOf(shape, sizes(wanted)), orders, `${shape} is ${wanted}`);
  };
  fits([1, 1, 4, 6], ['heads'], [4, 6], [1, 4, 6], [1, 1, 4, 6], [1, 1, 1, 4, 6]);
  fits([1, 2, 4, 6], ['heads'], [2, 4, 6], [1, 2, 4, 6]);
  fits([3, 1, 4, 6], ['heads'], [3, 4, 6], [3, 1, 4, 6], [1, 3, 4, 6]);
  fits([3, 2, 4, 6], ['heads'], [3, 2, 4, 6], [1, 3, 2, 4, 6]);
  fits([1, 1, 1, 6], ['heads'], [6], [1, 6]);
  fits([1, 1, 1, 1], ['heads'], [], [1], [1, 1]);
  fits([1, 2, 4, 6], ['rows'], [4, 2, 6], [4, 12], [1, 4, 2, 6], [1, 4, 12]);
  fits([3, 2, 4, 6], ['rows'], [3, 4, 2, 6], [3, 4, 12]);
  fits([1, 4, 4, 6], ['heads', 'rows'], [4, 4, 6]);
  fits([1, 2, 4, 6], [], [4, 6], [2, 6, 4], [6, 4, 2], [48], [0, 6]);
});

test('an array that does not fit is refused with both shapes', () => {
  const says = (shape, wanted, text, name = 'output') => assert.equal(refusal(shape, sizes(wanted), name), text);
  says([4, 8], [1, 1, 4, 6], 'The file has 4 × 8, and the output has 4 × 6.');
  says([4, 6], [1, 2, 4, 6], 'The file has 4 × 6, and the weights have 2 × 4 × 6.', 'weights');
  says([1, 4], [1, 2, 4, 6], 'The file has 1 × 4, and the scaled scores have 2 × 4 × 6.', 'scaled_scores');
  says([2, 1, 4, 6], [1, 2, 4, 6], 'The file has 2 × 1 × 4 × 6, and Q has 2 × 4 × 6.', 'Q');
  says([6, 4, 6], [3, 2, 4, 6], 'The file has 6 × 4 × 6, and the output has 3 × 2 × 4 × 6.');
  says([], [1, 1, 1, 2], 'The file has one number, and the output has 1 × 2.');
});

test('the parts of an array are its memory, by batch item and head; two axes can be swapped', () => {
  const data = Float64Array.from({ length: 24 }, (_, i) => i);
  const parts = partsOf(data, { batch: 2, heads: 3, rows: 2, cols: 2 });
  assert.deepEqual([parts.length, parts[0].length, parts[1].length], [2, 3, 3]);
  assert.deepEqual(parts[1][2], { rows: 2, cols: 2, data: Float64Array.of(20, 21, 22, 23) });
  assert.equal(parts[1][0].data.buffer, data.buffer);
  // (2, 3, 2, 2) becomes (2, 2, 3, 2).
  const other = swapped(data, 2, 3, 2, 2);
  assert.deepEqual([...other.slice(0, 12)], [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
  assert.deepEqual(swapped(other, 2, 2, 3, 2), data);
});

test('a difference is theirs less ours; a masked cell is −∞ and a broken one NaN', () => {
  const found = difference(matrix(2, 2, [1, 2, 3, -Infinity]), matrix(2, 2, [1.5, 2, 1, -Infinity]));
  assert.deepEqual([[...found.data], found.masked], [[0.5, 0, -2, -Infinity], 1]);
  const ours = row(1, 2, 3, 4, -Infinity, -Infinity, Infinity, 1e308);
  const theirs = row(NaN, Infinity, -Infinity, 5, 6, NaN, Infinity, -1e308);
  assert.deepEqual([...difference(ours, theirs).data], [NaN, NaN, NaN, 1, NaN, NaN, 0, NaN]);
});

test('errors beyond the tolerance have colours, broken ones the strongest, and the rest is grey', () => {
  const [ours, theirs] = [row(1, 1, 1, 1, -Infinity, 1), row(1 + 1e-6, 1.002, 0.9, NaN, -Infinity, 3)];
  const found = difference(ours, theirs);
  const shades = shadesOf(found, ours, theirs, FLOAT);
  assert.deepEqual(
    [...shades].map((x) => Number(x.toFixed(3))),
    [0, 0.002, -0.1, Infinity, -Infinity, 2],
  );
  const scale = makeScale({ lo: -2, hi: 2, least: 1e-3, signed: true });
  const at = [...shades].map((x) => position(scale, x));
  assert.deepEqual([at[0], at[3], at[5]], [0.5, 1, 1]);
  assert.ok(at[1] > 0.63 && at[1] < 0.64 && at[2] < 0.3 && at[2] > 0, `${at}`);
  const { pixels } = raster({ ...found, data: shades }, scale, { row0: 0, row1: 1, col0: 0, col1: 6 }, 6);
  const colour = (place) => `rgb(${pixels.slice(4 * place, 4 * place + 3).join(' ')})`;
  assert.deepEqual([colour(0), colour(3), pixels[4 * 4 + 3]], [css('errors-light', 0.5), css('errors-light', 1), 0]);
  // Without a tolerance, small errors have colours, too.
  const all = position(makeScale({ lo: -2, hi: 2, least: 1e-7, signed: true }), shadesOf(found, ours, theirs)[0]);
  assert.ok(all > 0.6 && all < 0.8, `${all}`);
});

test('the largest error has its place and both numbers; each head has its count, and rows and columns are marked', () => {
  const ours = [
    [matrix(2, 2, [1, 2, 3, 4]), matrix(2, 2, [1, 2, 3, 4])],
    [matrix(2, 2, [1, 2, 3, 4]), matrix(2, 2, [1, 2, 3, -4])],
  ];
  const theirs = [
    [matrix(2, 2, [1, 2, 3, 4]), matrix(2, 2, [1, 2, 3.25, 4])],
    [matrix(2, 2, [1, 2, 2.5, 4]), matrix(2, 2, [1, 2, 2, 4 - 9])],
  ];
  assert.deepEqual(survey(ours, theirs, FLOAT), {
    ...{ error: 1, batch: 1, head: 1, row: 1, col: 0, ours: 3, theirs: 2 },
    ...{ count: 16, over: 4, brokenCount: 0, firstBroken: null, least: 0.25, tiny: 0.25, lo: -5, hi: 4 },
    ...{ rows: Uint8Array.of(0, 1), cols: Uint8Array.of(1, 1) },
    heads: [
      [0, 1],
      [1, 2],
    ],
  });
  const wide = survey([[matrix(2, 3, [1, 1, 1, 1, 1, 1])]], [[matrix(2, 3, [1, 1, 1, 1, 1, 2])]], FLOAT);
  assert.deepEqual([wide.row, wide.col], [1, 2]);
  const same = survey(one(0, 2), one(-0, 2), FLOAT);
  assert.deepEqual([same.error, same.over, same.count, same.row], [0, 0, 2, 0]);
});

test('the tolerances are those of torch.testing.assert_close, relative to the expected number', () => {
  const over = (ours, theirs, type) => survey(one(ours), one(theirs), toleranceOf(type)).over;
  assert.deepEqual([over(0, 0.9e-5), over(0, 1.1e-5), over(0, -1.1e-5)], [0, 1, 1]);
  const ofHalf = (type) => [1.0009, 1.0011, 1.015, 1.017].map((theirs) => over(1, theirs, type));
  assert.deepEqual([ofHalf('F16'), ofHalf('BF16')], [[0, 1, 1, 1], [0, 0, 0, 1]]); // prettier-ignore
  assert.deepEqual([over(100, 100 + 1.3e-4), over(-100, -100 - 1.3e-4), over(-100, -100 + 1.5e-4)], [0, 0, 1]);
  const half = { absolute: 0, relative: 0.5 };
  assert.deepEqual([survey(one(1), one(2), half).over, survey(one(2), one(1), half).over], [0, 1]);
});

test('what is found of drawn results is what trying each number finds', () => {
  const { whole, pick } = drawing(14);
  for (let round = 0; round < 300; round++) {
    const [batch, heads, rows, cols] = [whole(1, 2), whole(1, 3), whole(1, 3), whole(1, 3)];
    const draw = () => pick([0, 0, 1, 1, 1, 2, -3, 0.5, -Infinity, ...(round % 3 ? [] : [NaN, Infinity])]);
    const make = (of) => Array.from({ length: batch }, (_, b) => Array.from({ length: heads }, (__, h) => matrix(rows, cols, Array.from({ length: rows * cols }, (___, at) => of(b, h, at))))); // prettier-ignore
    const ours = make(draw);
    const theirs = make((b, h, at) => (pick([0, 1]) ? draw() : ours[b][h].data[at]));
    const tolerance = pick([FLOAT, { absolute: 0.5, relative: 0 }, { absolute: 0, relative: 1 }, { absolute: 0, relative: 0 }]);
    const cells = ours.flatMap((item, b) => item.flatMap((one, h) => [...one.data].map((x, at) => {
      const y = theirs[b][h].data[at];
      const place = { batch: b, head: h, row: Math.floor(at / cols), col: at % cols, ours: x, theirs: y };
      const masked = x === -Infinity && y === -Infinity;
      const size = x === y ? 0 : Math.abs(y - x);
      const broken = !masked && !Number.isFinite(size);
      const over = !masked && (broken || size > tolerance.absolute + tolerance.relative * Math.abs(y));
      return { place, masked, size, broken, over };
    }))); // prettier-ignore
    const seen = cells.filter(({ masked }) => !masked);
    const errors = seen.filter(({ broken }) => !broken);
    const error = errors.length ? Math.max(...errors.map(({ size }) => size)) : null;
    const over = seen.filter((cell) => cell.over);
    const broken = seen.filter((cell) => cell.broken);
    const finite = cells.flatMap(({ place }) => [place.ours, place.theirs]).filter(Number.isFinite);
    const least = (list) => Math.min(Infinity, ...list.map(({ size }) => size).filter((size) => size > 0));
    const hit = (name, count) => Uint8Array.from({ length: count }, (_, at) => Number(over.some(({ place }) => place[name] === at)));
    assert.deepEqual(survey(ours, theirs, tolerance), {
      ...{ error, ...(errors.length && errors.find(({ size }) => size === error).place) },
      ...{ count: seen.length, over: over.length, brokenCount: broken.length, firstBroken: broken[0]?.place ?? null },
      ...{ least: least(over), tiny: least(seen), lo: Math.min(Infinity, ...finite), hi: Math.max(-Infinity, ...finite) },
      ...{ rows: hit('row', rows), cols: hit('col', cols) },
      heads: ours.map((item, b) => item.map((_, h) => over.filter(({ place }) => place.batch === b && place.head === h).length)),
    });
    ours.forEach((item, b) => item.forEach((one, h) => {
      const found = difference(one, theirs[b][h]);
      const shades = shadesOf(found, one, theirs[b][h], tolerance);
      const own = cells.filter(({ place }) => place.batch === b && place.head === h);
      assert.equal(found.masked, own.filter(({ masked }) => masked).length);
      own.forEach(({ place, masked, broken: isBroken, over: isOver }, at) => {
        const less = place.ours === place.theirs ? 0 : place.theirs - place.ours;
        assert.deepEqual([found.data[at], shades[at]], masked ? [-Infinity, -Infinity] : isBroken ? [NaN, Infinity] : [less, isOver ? less : 0]);
      });
    })); // prettier-ignore
  }
});

test('the axes of drawn arrays are swapped in place', () => {
  const { whole, numbers } = drawing(15);
  for (let round = 0; round < 50; round++) {
    const [batch, m, n, block] = [whole(1, 3), whole(1, 4), whole(1, 4), whole(1, 3)];
    const data = numbers(batch * m * n * block);
    const other = swapped(data, batch, m, n, block);
    data.forEach((x, at) => {
      const [c, rest] = [at % block, Math.floor(at / block)];
      const [j, i, item] = [rest % n, Math.floor(rest / n) % m, Math.floor(rest / n / m)];
      assert.equal(other[((item * n + j) * m + i) * block + c], x);
    });
  }
});

test('broken cells are counted apart, and they are over any tolerance', () => {
  const ours = [[row(1, 2, -Infinity, 5), row(-Infinity, 1, 3, Infinity)]];
  const theirs = [[row(1, 2.5, -Infinity, -Infinity), row(7, NaN, 3, Infinity)]];
  const found = survey(ours, theirs, FLOAT);
  assert.deepEqual([found.error, found.head, found.col, found.count, found.over, found.brokenCount], [0.5, 0, 1, 7, 4, 3]);
  assert.deepEqual(found.firstBroken, { batch: 0, head: 0, row: 0, col: 3, ours: 5, theirs: -Infinity });
  const none = survey(one(1, -Infinity), one(Infinity, -Infinity), FLOAT);
  assert.deepEqual([none.error, none.row, none.count, none.over, none.firstBroken.col], [null, undefined, 1, 1, 0]);
});

test('places are said in words', () => {
  const span = (count, ...at) =>
    spanOf(
      'row',
      Uint8Array.from({ length: count }, (_, i) => Number(at.includes(i))),
    );
  const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
  assert.equal(span(512, 17), 'row 17');
  assert.equal(span(512, ...range(0, 511)), 'rows 0 to 510');
  assert.equal(span(512, ...range(0, 512)), 'all 512 rows');
  assert.equal(span(9, 3, 5, 8), 'rows 3, 5 and 8');
  assert.equal(span(9, 1, 3, 5, 7, 8), '5 of 9 rows, the first is 1');
  assert.equal(
    spanOf('row', Uint8Array.of(0, 1), (at) => ` (word ${at})`),
    'row 1 (word 1)',
  );
});

test('the words of drawn places name just these places', () => {
  const { whole, random } = drawing(18);
  for (let round = 0; round < 300; round++) {
    const flags = Uint8Array.from({ length: whole(1, 9) }, () => Number(random() < 0.5));
    const list = [...flags.keys()].filter((at) => flags[at]);
    if (!list.length) continue;
    const said = spanOf('row', flags);
    const [all, range, some] = [/^all (\d+) rows$/, /^rows (\d+) to (\d+)$/, /^(\d+) of (\d+) rows, the first is (\d+)$/].map((form) => form.exec(said)?.slice(1).map(Number)); // prettier-ignore
    const isRange = list.at(-1) - list[0] === list.length - 1;
    if (list.length > 1 && list.length < flags.length) assert.equal(Boolean(range), isRange, said);
    if (all) assert.deepEqual([all[0], flags.length], [list.length, list.length]);
    else if (range)
      assert.deepEqual(
        Array.from({ length: range[1] - range[0] + 1 }, (_, at) => range[0] + at),
        list,
      );
    else if (some) assert.deepEqual(some, [list.length, flags.length, list[0]]);
    else assert.deepEqual(said.match(/\d+/g).map(Number), list);
  }
});

test('the causes of a wrong result are requests that differ in one thing', () => {
  const says = (text, rows = 4, keys = 4) => {
    const { mask, ...options } = JSON.parse(text);
    return suspects(text, { options, shapes: { mask } }, rows, keys).map((one) => [one.says, JSON.parse(one.text), one.more.length]);
  };
  assert.deepEqual(says('{"causal": true}', 3, 4), [
    ['each query also attends to the key after its own', { window: [-1, 1] }, 0],
    ['no query attends to its own key', { causal: true }, 1],
    ['there is no causal mask', {}, 0],
    ['causal is "bottom_right"', { causal: 'bottom_right' }, 0],
    ['the scale is 1', { causal: true, scale: 1 }, 0],
  ]);
  assert.deepEqual(says('{"mask": [[1]], "scale": 1}'), [
    ['causal is true', { mask: [[1]], scale: 1, causal: true }, 0],
    ['there is no mask', { scale: 1 }, 0],
  ]);
  assert.deepEqual(says('{"update": "linear"}'), []);
  const [, { more }] = suspects('{"causal": true}', { options: { causal: true }, shapes: {} }, 2, 3);
  assert.deepEqual(more, [{ name: 'mask', type: 'BOOL', shape: [2, 3], data: Uint8Array.of(0, 0, 0, 1, 0, 0) }]);
});
