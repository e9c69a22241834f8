// projections.test.mjs compares the weight matrices that the page shows, and the rows that a request adds to Q, K and V, with drawn numbers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { complete, drawnWeights, givenWeights, partOf, transposed, weightOf } from '../../../server/explorer/src/projections.js';
import { drawing, nestedOf } from '../draw.mjs';

const rowsOf = ({ rows, cols, data }) => nestedOf([...data], [rows, cols]);

test('a transpose has the cell of each column and row', () => {
  const { whole, matrix } = drawing(6);
  for (let round = 0; round < 50; round++) {
    const one = matrix(whole(1, 4), whole(1, 4));
    const { rows, cols, data } = transposed(one);
    assert.deepEqual([rows, cols], [one.cols, one.rows]);
    one.data.forEach((x, at) => assert.equal(data[(at % one.cols) * cols + Math.floor(at / one.cols)], x));
  }
});

test('the weight matrices of drawn requests are those of their heads, in both layouts', () => {
  const { whole, pick, numbers } = drawing(7);
  for (let round = 0; round < 300; round++) {
    const [name, layout, form] = [pick(['W_Q', 'W_K', 'W_V']), pick([undefined, 'in_out', 'out_in']), pick(['packed', 'apart', 'own'])];
    const [heads, kv, d, each] = [whole(2, 4), pick([undefined, 1, 2]), whole(1, 3), whole(1, 3)];
    const count = name === 'W_Q' ? heads : (kv ?? heads);
    // cell(head, row, col): the number of a head that is multiplied by X from the left.
    const values = numbers(count * d * each);
    const cell = (head, row, col) => values[(head * d + row) * each + col];
    const table = (rows, cols, at) => Array.from({ length: rows }, (_, i) => Array.from({ length: cols }, (_, j) => at(i, j)));
    const turn = (rows, cols, at) => (layout === 'out_in' ? table(cols, rows, (i, j) => at(j, i)) : table(rows, cols, at));
    const perHead = Array.from({ length: count }, (_, head) => turn(d, each, (i, j) => cell(head, i, j)));
    const packed = turn(d, count * each, (i, j) => cell(Math.floor(j / each), i, j % each));
    const own = form === 'own';
    const body = {
      ...{ weight_layout: layout, heads: own ? perHead.map((one) => ({ [name]: one })) : heads },
      ...(kv && !own && { kv_heads: kv }),
      ...(!own && { [name]: form === 'packed' ? packed : perHead }),
    };
    const [found] = givenWeights(body, heads)[name];
    assert.equal(found.length, count, `${form} ${layout}`);
    found.forEach((one, head) =>
      assert.deepEqual(
        rowsOf(one),
        table(d, each, (i, j) => cell(head, i, j)),
        `${form} ${layout}`,
      ),
    );
  }
  const W_O = [[1, 2], [3, 4]]; // prettier-ignore
  assert.deepEqual(rowsOf(givenWeights({ W_O, heads: 2 }, 2).W_O[0][0]), W_O);
  assert.deepEqual(rowsOf(givenWeights({ W_O, heads: 2, weight_layout: 'out_in' }, 2).W_O[0][0]), [[1, 3], [2, 4]]); // prettier-ignore
  assert.equal(weightOf('W_O', [W_O, W_O], {}, 2), null);
  for (const none of [undefined, { random: 'randn', shape: [2, 2] }, [1, 2]]) assert.equal(weightOf('W_Q', none, { heads: 2 }, 2), null);
  assert.deepEqual(givenWeights({ heads: [{ W_Q: W_O }, {}], W_K: W_O }, 2), {});
  // Columns that the heads cannot divide, and the columns of one head, are one matrix.
  for (const heads of [3, 1]) assert.deepEqual(rowsOf(weightOf('W_Q', W_O, { heads }, heads)[0][0]), W_O);
});

test('the part of a vector is that of its head', () => {
  const heads = [2, 3, 1].map((cols) => ({ cols }));
  const vector = [1, 2, 3, 4, 5, 6];
  assert.deepEqual([0, 1, 2].map((head) => partOf(vector, heads, head)), [[1, 2], [3, 4, 5], [6]]); // prettier-ignore
  assert.deepEqual([0, 1, 2].map((head) => partOf([[1], [2]], heads, head)), [[1], [2], null]); // prettier-ignore
  assert.equal(partOf({ random: 'rand' }, heads, 0), null);
});

test('a bias joins each row of Q, and bias_K and zero_key add rows to K and V', () => {
  const { whole, pick, matrix, numbers } = drawing(8);
  for (let round = 0; round < 100; round++) {
    const [batch, heads, rows, each, width] = [whole(1, 2), whole(1, 3), whole(1, 3), whole(1, 3), whole(1, 3)];
    const make = (cols) => Array.from({ length: batch }, () => Array.from({ length: heads }, () => matrix(rows, cols)));
    const before = { Q: make(each), K: make(each), V: make(width) };
    const [b_Q, bias_K, bias_V] = [each, each, width].map((cols) => [...numbers(heads * cols)]);
    const biased = pick([false, true]);
    const zero_key = pick([false, true]);
    const found = { ...before };
    complete(found, { ...(biased && { bias_K, bias_V }), zero_key, b_Q }, { projected: true });
    const added = Number(biased) + Number(zero_key);
    for (const [name, cols, bias] of [
      ['K', each, bias_K],
      ['V', width, bias_V],
    ])
      // prettier-ignore
      found[name].forEach((item, at) =>
        item.forEach((one, head) => {
          const own = rowsOf(before[name][at][head]);
          const more = [...(biased ? [bias.slice(head * cols, (head + 1) * cols)] : []), ...(zero_key ? [Array(cols).fill(0)] : [])];
          assert.deepEqual(rowsOf(one), [...own, ...more]);
          assert.equal(one.rows, rows + added);
        }),
      );
    assert.equal(found.Q, before.Q, 'the server has the bias of a projected Q');
    const plain = { ...before };
    complete(plain, { b_Q, bias_K, bias_V, zero_key }, { projected: false });
    assert.deepEqual([plain.K, plain.V], [before.K, before.V]);
    plain.Q.forEach((item, at) =>
      item.forEach((one, head) =>
        one.data.forEach((x, cell) => assert.equal(x, before.Q[at][head].data[cell] + b_Q[head * each + (cell % each)])),
      ),
    );
  }
  const drawn = { Q: [[]], K: [[]] };
  complete(drawn, { b_Q: { random: 'rand' } }, { projected: false });
  complete(drawn, { bias_K: { random: 'rand' }, bias_V: [1] }, { projected: true });
  assert.deepEqual(drawn, { Q: null, K: [[]] });
});

test('drawn weight matrices of at most 200,000 numbers are asked for', () => {
  const draw = (...shape) => ({ random: 'randn', shape });
  const body = { W_Q: draw(400, 500), W_K: draw(400, 501), W_V: { random: 'rand', shape: 200_000 }, W_O: [[1]] };
  assert.deepEqual(drawnWeights(body), ['W_Q', 'W_V']);
});
