// flow.test.mjs points at cells of every matrix in the flow, and computes each written number again: from the matrices of the answer, and from
// the operands that the sentence itself writes. It also tests where the matrices stand, the marks, the keyboard, and how a matrix is enlarged.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { answered, flowCell, open, openDrawer, openStep, pane, setBody, writtenTitle } from './explorer.mjs';
import { findings, onPage, picture } from './harness.mjs';

// The examples, and the head of each that is shown.
const SHOWN = { '000': 0, '001': 2, '001-head': 0, '002': 1, '003': 0, '004': 0, '005': 0 };
const SIZES = [
  { width: 1366, height: 768 },
  { width: 1440, height: 900 },
  { width: 1920, height: 1080 },
];
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
const LARGEST = 3; // products that are written of a long sum
const TINY = 1.2e-38; // the server computes in float32, whose smaller numbers may be 0
const state = (page) => page.evaluate(() => window.explorer.state);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const number = (text) =>
  Number(
    text
      .replace(/^\((.*)\)$/, '$1')
      .replaceAll('−', '-')
      .replace('∞', 'Infinity'),
  );

// Returns how far a number that is written with 4 digits may be from the number itself.
function unit(x) {
  if (x === 0 || !Number.isFinite(x)) return 0;
  const size = Math.floor(Math.log10(Math.abs(x)));
  return 0.50001 * 10 ** (size - 3);
}
function near(written, value, most, where) {
  const fits = written === value || Math.abs(written - value) <= most;
  assert.ok(fits, `${where}: ${written} is written, not ${value} ± ${most}`);
}
const says = (written, value, where) => near(written, value, unit(value) + unit(written) * 1e-3, where);

// Returns all matrices of the answer for a head, as rows, and the ids of the nodes.
async function read(page, head) {
  const ids = await page.locator('#flow .node').evaluateAll((nodes) => nodes.map(({ dataset }) => dataset.node));
  const rows = await page.evaluate(
    ([ids, head]) =>
      ids.map((id) => {
        const { rows, cols, data } = window.explorer.matrix(id.length > 1 ? id : id.toUpperCase(), head);
        return Array.from({ length: rows }, (_, row) => Array.from(data.subarray(row * cols, (row + 1) * cols)));
      }),
    [ids, head],
  );
  return Object.fromEntries(ids.map((id, at) => [id, rows[at]]));
}

// Returns what is written and what is marked. Rows and columns of marks are those of the drawn matrices.
const seen = (page) =>
  page.evaluate(() => {
    const marks = [...document.querySelectorAll('#flow .node i')].map((mark) => {
      const node = mark.parentElement;
      const { rows, cols } = window.explorer.matrix(
        node.dataset.node.length > 1 ? node.dataset.node : node.dataset.node.toUpperCase(),
        window.explorer.state.head,
      );
      const [down, across] = node.dataset.node === 'k' ? [cols, rows] : [rows, cols];
      const place = (from, length, whole, count) => {
        const size = whole / count;
        const [first, last] = [Math.round(from / size), Math.round((from + length) / size)];
        return last - first === count && !(count === 1 && mark.className === 'mark-cell')
          ? '*'
          : last - first <= 1
            ? first
            : `${first} to ${last - 1}`;
      };
      const px = (name) => parseFloat(mark.style[name]);
      const [row, col] = [
        place(px('top'), px('height'), node.clientHeight, down),
        place(px('left'), px('width'), node.clientWidth, across),
      ];
      return `${mark.className} ${node.dataset.node} ${row} ${col}`;
    });
    const parts = [...document.querySelectorAll('.written-line span')].map(({ textContent, className }) => [textContent, className]);
    return { marks: marks.sort(), parts, row: document.querySelector('.written-row').textContent };
  });

// Returns the marks that a cell of the flow must have. id, row, col: those of the drawn matrix.
function marksOf(id, row, col, { all, before, past }) {
  const has = (name) => name in all;
  const projected = has('W_Q');
  const mixed = has('mixed') ? 'mixed' : 'output';
  const given = (name) => (name !== 'Q' && has('context') ? 'context' : 'X');
  const own = `mark-cell ${id} ${row} ${col}`;
  const chain = ['scores', 'scaled_scores', 'masked_scores', 'uncorrected', 'corrections', 'weights'].filter(has);
  const projection = (name, line, column) => [
    `mark-row ${given(name)} ${line - (name === 'Q' ? 0 : past)} *`,
    `mark-col W_${name} * ${column}`,
  ];
  if (id === 'X' || id === 'context') {
    const names = id === 'context' ? ['K', 'V'] : has('context') ? ['Q'] : ['Q', 'K', 'V'];
    return [own, ...names.map((name) => `mark-next ${name} ${name === 'Q' ? row : row + past} *`)];
  }
  if (id === 'W_O') return [own, `mark-col joined * ${row}`, `mark-next output * ${col}`];
  if (id.startsWith('W_')) return [own, `mark-col ${given(id.at(-1))} * ${row}`, `mark-next ${id.at(-1)} * ${col}`];
  if ('QKV'.includes(id)) {
    return [own, ...projection(id, row, col), id === 'K' ? `mark-next k ${col} ${row}` : `mark-next ${id.toLowerCase()} ${row} ${col}`];
  }
  if ('qkv'.includes(id)) {
    const [line, column] = id === 'k' ? [col, row] : [row, col];
    const name = id.toUpperCase();
    const next = { q: `mark-next scores ${row} *`, k: `mark-next scores * ${col}`, v: `mark-next ${mixed} * ${col}` }[id];
    return [
      own,
      ...(projected ? [...projection(name, line, column), `mark-before ${name} ${line} ${column}`] : []),
      ...(has(next.split(' ')[1]) ? [next] : []),
    ];
  }
  if (chain.includes(id)) {
    const at = chain.indexOf(id);
    const last = at === chain.length - 1;
    const factors = [`mark-row q ${row} *`, `mark-col k * ${col}`].filter(() => has('q'));
    const softmax = id === 'weights' && !has('states');
    return [
      own,
      ...factors,
      ...(at === 0 ? [] : [softmax ? `mark-row masked_scores ${row} *` : `mark-before ${chain[at - 1]} ${row} ${col}`]),
      ...(last
        ? [...(has('v') ? [`mark-next v ${col} *`] : []), `mark-next ${mixed} ${row} *`]
        : [`mark-next ${chain[at + 1]} ${row} ${col}`]),
    ];
  }
  if (id === mixed) {
    const side = has('joined') ? 'joined' : 'output';
    return [
      own,
      `mark-row weights ${row} *`,
      `mark-col v * ${col}`,
      ...(id === 'mixed' ? [`mark-next ${side} ${row} ${before + col}`] : []),
    ];
  }
  const inside = col >= before && col < before + (all.mixed?.[0].length ?? 0) ? [`mark-before mixed ${row} ${col - before}`] : [];
  if (id === 'joined') return [own, ...inside, `mark-next output ${row} *`];
  if (id === 'output') return has('joined') ? [own, `mark-row joined ${row} *`, `mark-col W_O * ${col}`] : [own, ...inside];
  return [own]; // gates and states
}

// Asserts that the sum of products in `parts` is that of the rows `left` and `right`. Returns the number of parts that it takes, up to the
// sign of equality.
function checkProducts(parts, left, right, where, added = 0) {
  const end = parts.findIndex(([text]) => text.trim() === '=' || text.startsWith(' = ') || /score|\+ bias/.test(text));
  const taken = parts.slice(0, end);
  const factors = (kind) => taken.filter(([, one]) => one === kind).map(([text]) => number(text));
  const [a, b] = [factors('row'), factors('col')];
  const terms = left.map((value, at) => ({ value, other: right[at], size: Math.abs(value * right[at]) }));
  const written = a.map((value, at) => [value, b[at]]);
  const long = /… \(3 largest of (\d+)\)/.exec(taken.map(([text]) => text).join(''));
  if (long) {
    assert.equal(Number(long[1]), left.length, where);
    assert.equal(written.length, LARGEST, where);
    const largest = terms.map(({ size }) => size).sort((x, y) => y - x);
    written.forEach(([x, y], at) =>
      near(Math.abs(x * y), largest[at], Math.abs(x) * unit(y) + Math.abs(y) * unit(x), `${where}, the largest products`),
    );
  } else {
    assert.equal(written.length, left.length, where);
    terms.forEach(({ value, other }, at) => {
      says(written[at][0], value, `${where}, factor ${at}`);
      says(written[at][1], other, `${where}, factor ${at}`);
    });
  }
  // Each sign between two factors is ×, and each one between two products is +.
  const shape = taken.map(([text, kind]) => (kind === 'row' ? 'r' : kind === 'col' ? 'c' : text.replace(/ \+ … .*/, '').trim())).join('');
  assert.match(shape, /^r×c(\+r×c)*$/, where);
  const own = sum(written.map(([x, y]) => x * y));
  const error = sum(written.map(([x, y]) => unit(x) * Math.abs(y) + unit(y) * Math.abs(x)));
  const exact = sum(terms.map(({ value, other }) => value * other)) + added;
  return { end, own: long ? null : own + added, error, exact, size: sum(terms.map(({ size }) => size)) };
}

// Asserts that what is written about a cell is true: id, row, col as in marksOf(). parts: [[text, kind]].
function checkWritten(id, row, col, { all, parts, d, heads, past = 0, bias = {} }, where) {
  const line = parts.map(([text]) => text).join('');
  const drawn = id === 'k' ? [col, row] : [row, col];
  const value = all[id][drawn[0]][drawn[1]];
  const last = parts.findLast(([, kind]) => kind === 'is');
  says(number(last[0]), value, `${where}: the result`);
  const column = (matrix, at) => matrix.map((values) => values[at]);
  const sums = (left, right, added) => {
    const { end, own, error, exact, size } = checkProducts(parts, left, right, where, added);
    const result = number(parts.slice(end).find(([, kind]) => kind === 'is' || kind === 'then')[0]);
    if (own !== null) near(result, own, error + unit(result) + 1e-5 * size, `${where}: the sum of what is written`);
    near(result, exact, unit(exact) + 1e-3 * size, `${where}: the sum`);
    return end;
  };
  const name = id.toUpperCase();
  const given = name !== 'Q' && all.context ? all.context : all.X;
  if ('QKV'.includes(name) && all[`W_${name}`]) {
    const from = drawn[0] - (name === 'Q' ? 0 : past);
    if (from < 0) return assert.equal(line, last[0], `${where}: a row of the past is given`);
    const added = bias[name]?.[drawn[1]] ?? 0;
    assert.equal(/\+ bias/.test(line), added !== 0, where);
    return sums(given[from], column(all[`W_${name}`], drawn[1]), added);
  }
  if (id === 'mixed' || (id === 'output' && !all.mixed)) return sums(all.weights[row], column(all.v, col));
  if (id === 'output' && all.joined) return sums(all.joined[row], column(all.W_O, col));
  if (id === 'joined' || (id === 'output' && all.mixed)) return sums(...heads(row, col));
  if (!['scores', 'scaled_scores', 'masked_scores', 'weights'].includes(id) || all.states) return 0;
  // A chain: products = score → × 1/√d = scaled → e^… = power → ÷ … = weight.
  sums(all.q[row], all.k[col]);
  const said = (pattern) => (pattern.exec(line) ?? []).slice(1).map(number);
  const [score] = said(/ = (\S+)/);
  says(score, all.scores[row][col], where);
  if (id === 'scores') return assert.doesNotMatch(line, /→/, where);
  const [times, scaled] = said(/→ × 1\/√(\d+) = (\S+)/);
  assert.equal(times, d, where);
  near(scaled, score / Math.sqrt(d), unit(score) + unit(scaled), where);
  if (id === 'scaled_scores') return assert.doesNotMatch(line, /e\^/, where);
  const forbidden = all.masked_scores[row][col] === -Infinity;
  assert.equal(/→ \+ mask = −∞/.test(line), forbidden, where);
  if (id === 'masked_scores') return assert.doesNotMatch(line, /e\^/, where);
  const shifted = said(/e\^\((\S+) [+−] (\S+)\) = (\S+)/);
  const [exponent, power] = shifted.length ? [shifted[0] - Math.max(...all.masked_scores[row]), shifted[2]] : said(/e\^(\S+) = (\S+)/);
  if (shifted.length) says(shifted[1], Math.abs(Math.max(...all.masked_scores[row])), where);
  const blur = shifted.length ? unit(shifted[0]) : unit(exponent);
  near(power, Math.exp(exponent), Math.exp(exponent) * (Math.exp(blur) - 1) + unit(power), `${where}: the power`);
  const [list] = /÷ \(([^=]*) = /.exec(line)?.slice(1) ?? [];
  const [total] = list ? said(/÷ \([^=]* = (\S+)\)/) : said(/÷ (\S+), the row’s sum/);
  const powers = all.masked_scores[row].map((one) => Math.exp(one - (shifted.length ? Math.max(...all.masked_scores[row]) : 0)));
  says(total, sum(powers), `${where}: the sum of the powers`);
  if (list) {
    const written = list.split(' + ').map(number);
    assert.equal(written.length, powers.length, where);
    near(total, sum(written), sum(written.map(unit)) + unit(total), `${where}: the sum of the written powers`);
  }
  const weight = number(last[0]);
  near(
    weight,
    power / total,
    (unit(power) + weight * unit(total)) / total + unit(weight) + TINY,
    `${where}: the weight of what is written`,
  );
}

for (const [example, head] of Object.entries(SHOWN)) {
  test(`notebook ${example}: what is written about any cell of the flow is true, and its row, its column and its next place are marked`, () =>
    onPage({ viewport: SIZES[1] }, async (page) => {
      await open(page, `/#example=${example}&head=${head}`);
      const all = await read(page, head);
      const widths = await page.evaluate(() => {
        const list = [];
        for (let head = 0; head < 16; head++) {
          const V = window.explorer.matrix('V', head);
          if (V) list.push(V.cols);
        }
        return list;
      });
      const count = all.mixed ? widths.length : 1;
      const before = sum(widths.slice(0, head));
      const own = { all, before, past: 0, d: all.q?.[0].length };
      // The factors of a number of what stands side by side.
      const others = await Promise.all(
        Array.from({ length: count }, (_, at) =>
          page.evaluate((at) => ['weights', 'V'].map((name) => window.explorer.matrix(name, at)), at),
        ),
      );
      const heads = (row, col) => {
        let at = 0;
        let from = 0;
        while (col - from >= widths[at]) from += widths[at++];
        const [A, V] = others[at];
        return [
          Array.from({ length: A.cols }, (_, key) => A.data[row * A.cols + key]),
          Array.from({ length: V.rows }, (_, key) => V.data[key * V.cols + col - from]),
        ];
      };
      let seed = 7;
      const drawn = (most) => (seed = (seed * 16807) % 2147483647) % most;
      for (const [id, rows] of Object.entries(all)) {
        const [down, across] = id === 'k' ? [rows[0].length, rows.length] : [rows.length, rows[0].length];
        const cells = [[0, 0], [down - 1, across - 1], ...Array.from({ length: 4 }, () => [drawn(down), drawn(across)])]; // prettier-ignore
        for (const [row, col] of cells) {
          const where = `${example}: ${id} ${row} ${col}`;
          const { x, y } = await flowCell(page, id, row, col);
          await page.mouse.move(x, y);
          const { marks, parts, row: sentence } = await seen(page);
          assert.deepEqual(marks, marksOf(id, row, col, own).sort(), where);
          checkWritten(id, row, col, { ...own, parts, heads }, where);
          assert.match(sentence, /^(W_.|[KkVv]|states)$/.test(id) ? /^$/ : / gives | may attend to no key/, where);
        }
      }
      assert.ok(Object.keys(all).length >= 8, Object.keys(all).join());
      await picture(page, `flow-${example}`);
    }));
}

test('words that are repeated, drawn projections, biases and keys of the past keep their places', () =>
  onPage({}, async (page) => {
    const drawn = (...shape) => ({ random: 'randn', shape });
    const random = { generator: 'torch', seed: 5 };
    const check = async (body, expected) => {
      await open(page, '/#example=own');
      await setBody(page, body);
      const all = await read(page, 0);
      for (const [id, row, col, past, marked] of expected) {
        const { x, y } = await flowCell(page, id, row, col);
        await page.mouse.move(x, y);
        const { marks, parts } = await seen(page);
        checkWritten(id, row, col, { all, parts, d: all.q[0].length, past, bias: { K: body.b_K } }, `${id} ${row} ${col}`);
        assert.deepEqual(marks, (marked ?? marksOf(id, row, col, { all, before: 0, past })).sort(), `${id} ${row} ${col}`);
      }
      return all;
    };
    const text = 'the cat sat on the mat and the dog';
    const all = await check({ random, text, embedding_dim: 4, W_Q: drawn(4, 3), W_K: drawn(4, 3), W_V: drawn(4, 2) }, [
      ['Q', 4, 1, 0],
      ['k', 2, 4, 0],
      ['V', 8, 1, 0],
    ]);
    assert.deepEqual([all.X[0], all.X[7]], [all.X[4], all.X[4]], '“the” is the same row three times');
    const X = [[1, 0, 2], [0, 1, 1], [2, 1, 0]]; // prettier-ignore
    const W = [[1, 2], [0, 1], [1, 0]]; // prettier-ignore
    const past = [[5, 6], [7, 8]]; // prettier-ignore
    await check({ X, W_Q: W, W_K: W, W_V: W, b_K: [0.5, -2], past_K: past, past_V: past }, [
      ['K', 3, 1, 2],
      ['X', 1, 1, 2],
      ['weights', 1, 3, 2],
      ['K', 0, 1, 2, ['mark-cell K 0 1', 'mark-next k 1 0']], // it is not made by W_K
    ]);
  }));

// ---------------------------------------------------------------- where the matrices stand

const boxes = (page) =>
  page.locator('#flow .node').evaluateAll((nodes) =>
    Object.fromEntries(
      nodes.map((node) => {
        const { left, top, right, bottom } = node.getBoundingClientRect();
        return [node.dataset.node, { left, top, right, bottom }];
      }),
    ),
  );

for (const viewport of SIZES) {
  test(`the stage has 70 % of the window, and the flow fits into it, at ${viewport.width} × ${viewport.height}`, () =>
    onPage({ viewport }, async (page) => {
      const { width, height } = viewport;
      for (const [i, example] of ['000', '001', '002', '003', '004', '005', 'it'].entries()) {
        await open(page, `/?${i}#example=${example}`);
        const stage = await page.locator('#result').boundingBox();
        const share = (Math.min(stage.width, width - stage.x) * (Math.min(stage.y + stage.height, height) - stage.y)) / (width * height);
        assert.ok(share >= 0.7, `${example}: the stage has ${share} of the window`);
        const scrolls = await page
          .locator('#picture')
          .evaluate(({ scrollHeight, clientHeight, scrollWidth, clientWidth }) => [scrollHeight - clientHeight, scrollWidth - clientWidth]);
        assert.deepEqual(scrolls, [0, 0], `${example}: nothing to scroll`);
        const picture = await page.locator('#picture').boundingBox();
        const written = await page.locator('#written').boundingBox();
        assert.ok(written.y + written.height <= height, `${example}: what is written is in sight`);
        const found = await boxes(page);
        for (const [id, { left, top, right, bottom }] of Object.entries(found)) {
          const inside = left >= 0 && right <= width && top >= picture.y && bottom <= picture.y + picture.height;
          assert.ok(inside, `${example}: ${id} from ${left}, ${top} to ${right}, ${bottom}`);
          for (const [other, box] of Object.entries(found)) {
            const apart = left >= box.right || right <= box.left || top >= box.bottom || bottom <= box.top;
            assert.ok(id === other || apart, `${example}: ${id} does not cover ${other}`);
          }
        }
        // The left factor stands beside the product, and the right one above it, each as long as the side that it meets.
        const products = [['X', 'W_Q', 'Q'], ['q', 'k', 'scores'], ['weights', 'v', found.mixed ? 'mixed' : 'output'], ['joined', 'W_O', 'output']]; // prettier-ignore
        for (const [left, above, result] of products.filter((all) => all.every((id) => found[id]))) {
          const [a, b, c] = [left, above, result].map((id) => found[id]);
          const same = (one, other) => Math.abs(one - other) < 0.5;
          assert.ok(same(a.top, c.top) && same(a.bottom, c.bottom) && a.right < c.left, `${example}: ${left} stands beside ${result}`);
          assert.ok(same(b.left, c.left) && same(b.right, c.right) && b.bottom < c.top, `${example}: ${above} stands above ${result}`);
        }
      }
    }));
}

test('small matrices have their numbers in their cells, and the flow is saved as it is seen', () =>
  onPage({}, async (page) => {
    await open(page);
    const all = await read(page, 0);
    const save = async (format) => {
      await page.click('#save .menu summary');
      const [download] = await Promise.all([page.waitForEvent('download'), page.click(`#save [data-download="${format}"]`)]);
      return readFileSync(await download.path());
    };
    const texts = await page.evaluate(
      (text) => [...new DOMParser().parseFromString(text, 'image/svg+xml').querySelectorAll('text')].map(({ textContent }) => textContent),
      String(await save('svg')),
    );
    const numbers = texts.map(number).filter((x) => !Number.isNaN(x)).sort((a, b) => a - b); // prettier-ignore
    const cells = Object.values(all).flat(2).sort((a, b) => a - b); // prettier-ignore
    assert.equal(numbers.length, cells.length);
    cells.forEach((value, at) =>
      assert.ok(Math.abs(numbers[at] - value) <= 0.006 * Math.abs(value) + 6e-5, `${numbers[at]} is not ${value}`),
    );
    for (const title of [
      'X, words',
      'W_Q',
      'Q = X W_Q',
      'Kᵀ',
      'S = Q Kᵀ',
      'scaled',
      'masked',
      '÷ √3',
      'softmax',
      'A, weights',
      'Y, output',
      'word 1',
    ]) {
      assert.ok(texts.includes(title), `${title} in ${texts}`);
    }
    const png = await save('png');
    assert.deepEqual([...png.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    assert.ok(png.readUInt32BE(16) > 1000);
  }));

test('on a phone every matrix can be reached, none is wider than the page, and a tap points before it enlarges', () =>
  onPage(PHONE, async (page) => {
    for (const [i, example] of ['000', '001', '002', '003', '004', '005'].entries()) {
      await open(page, `/?${i}#example=${example}`);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 390), example);
      for (const node of await page.locator('#flow .node').all()) {
        const name = await node.getAttribute('data-node');
        await node.evaluate((element) => element.scrollIntoView({ block: 'center', behavior: 'instant' }));
        const { x, y, width, height } = await node.boundingBox();
        assert.ok(x >= 0 && x + width <= 390, `${example}: ${name} from ${x} to ${x + width}`);
        await page.touchscreen.tap(x + width / 2, y + Math.min(height / 2, 60));
        assert.equal(await node.locator('.mark-cell').count(), 1, `${example}: ${name}`);
        assert.equal((await state(page)).step, 'flow', `${example}: ${name}`);
      }
    }
    const node = page.locator('#flow [data-node="scores"]');
    await node.evaluate((element) => element.scrollIntoView({ block: 'center', behavior: 'instant' }));
    const { x, y } = await node.boundingBox();
    await page.touchscreen.tap(x + 3, y + 3);
    await page.touchscreen.tap(x + 3, y + 3);
    assert.equal((await state(page)).step, 'scores');
    await picture(page, 'flow-phone', { fullPage: true });
  }));

test('with ?embed=flow the flow stands alone and fits into its frame', () =>
  onPage({ viewport: { width: 900, height: 500 } }, async (page) => {
    await open(page, '/?embed=flow#example=000');
    for (const part of ['.toolbar', '#words', '#written', '#examples', '#curve', '#tour']) {
      assert.equal(await page.locator(part).isVisible(), false, part);
    }
    for (const [id, { left, right, top, bottom }] of Object.entries(await boxes(page))) {
      assert.ok(left >= 0 && right <= 900 && top >= 0 && bottom <= 500, `${id}: ${left} to ${right}, ${top} to ${bottom}`);
    }
    const size = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]);
    assert.ok(size[0] <= 900 && size[1] <= 500, size.join(' × '));
    const { x, y } = await flowCell(page, 'weights', 0, 2);
    await page.mouse.move(x, y);
    assert.equal(await page.locator('#flow .mark-row').count(), 2); // that of q, and that of the masked scores
    assert.deepEqual(await findings(page), []);
    await picture(page, 'flow-embed');
  }));

// ---------------------------------------------------------------- the keyboard, and enlarging

// Returns the node that has the focus, and the cell that is marked in it.
const focused = (page) =>
  page.evaluate(() => {
    const node = document.activeElement;
    const mark = node.querySelector('.mark-cell');
    if (!node.dataset.node) return node.className || node.id || node.localName;
    return `${node.dataset.node}${mark ? ` ${mark.style.top} ${mark.style.left}` : ''}`;
  });

test('the keyboard reaches the flow, goes from cell to cell and from matrix to matrix, and each cell is said', () =>
  onPage({}, async (page) => {
    await open(page);
    const node = () => page.evaluate(() => document.activeElement.dataset?.node);
    for (let tabs = 0; !(await node()); tabs++) {
      assert.ok(tabs < 60, 'Tab reaches the flow');
      await page.keyboard.press('Tab');
    }
    assert.equal(await node(), 'weights', 'one stop of Tab, at the weights');
    const said = async (keys, title, sentence = / gives [\d.]+ to word \d/) => {
      for (const key of keys) await page.keyboard.press(key);
      assert.equal(await writtenTitle(page), title);
      const say = await page.textContent('#say');
      assert.equal(say, await page.textContent('#written'), 'what is written is said');
      assert.ok(say.startsWith(title) && sentence.test(say) && !/\d ms/.test(say), say);
    };
    await said(['ArrowRight'], 'word 1 → word 4: ');
    await said(['ArrowDown', 'ArrowLeft'], 'word 2 → word 3: ');
    assert.match(await page.textContent('#say'), /word 2 gives 0\.455 to word 1, 0\.455 to word 3/);
    const order = [];
    for (let i = 0; i < 15; i++) {
      await page.keyboard.press('.');
      order.push(await node());
    }
    assert.deepEqual([...order].sort(), (await page.locator('.node').evaluateAll((all) => all.map(({ dataset }) => dataset.node))).sort());
    assert.equal(order.at(-1), 'weights', 'it goes round');
    await page.keyboard.press(',');
    assert.equal(await node(), order.at(-2));
    // ArrowRight goes to the next key, because K is drawn transposed.
    await page.locator('[data-node="k"]').focus();
    await said(['ArrowRight', 'ArrowRight', 'ArrowDown'], 'K of word 2, column 1: ', /= 2/);
    await page.locator('[data-node="X"]').focus();
    await said(['ArrowRight', 'ArrowDown'], 'X of word 2, column 0: ');
    // The rest of the page is one Tab away.
    await page.keyboard.press('Tab');
    assert.equal(await node(), undefined);
  }));

test('a matrix is enlarged and goes back by click, Enter and Escape, and the focus goes along', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    const step = async () => [(await state(page)).step, await page.locator('#single').isVisible(), await page.locator('#flow').isVisible()];
    const { x, y } = await flowCell(page, 'scaled_scores', 2, 1);
    await page.mouse.click(x, y);
    assert.deepEqual(await step(), ['scaled_scores', true, false]);
    assert.equal(await pane(page, 'scaled_scores').locator('.mark-cell').count(), 1, 'the cell stays the subject');
    await page.waitForFunction(() => /step=scaled_scores/.test(location.hash));
    await page.keyboard.press('Escape');
    assert.deepEqual(await step(), ['flow', false, true]);
    assert.equal(await page.locator('#flow [data-node="scaled_scores"] .mark-cell').count(), 1);
    for (const [id, name] of [
      ['q', 'Q'],
      ['k', 'K'],
      ['v', 'V'],
      ['weights', 'weights'],
      ['output', 'output'],
    ]) {
      // prettier-ignore
      await page.locator(`[data-node="${id}"]`).focus();
      await page.keyboard.press('ArrowRight');
      const before = await writtenTitle(page);
      await page.keyboard.press('Enter');
      assert.deepEqual(await step(), [name, true, false]);
      assert.equal(await focused(page), 'figure', 'the focus is on the matrix that was enlarged');
      assert.equal(await writtenTitle(page), before, 'the cell stays the subject');
      await page.keyboard.press('ArrowDown');
      assert.notEqual(await writtenTitle(page), before);
      await page.keyboard.press('Escape'); // the numbers beside the cell
      await page.keyboard.press('Escape');
      assert.equal((await step())[0], 'flow');
      assert.equal((await focused(page)).split(' ')[0], id, 'the focus is on the matrix that one comes from');
    }
    await page.click('[data-frame="weights"]');
    await page.click('[data-frame="flow"]');
    assert.equal((await step())[0], 'flow');
    await answered(page, () => page.goBack());
    assert.equal((await step())[0], 'weights');
    // While the mask is edited, a click on a weight masks it.
    await openStep(page, 'flow');
    await openDrawer(page);
    await page.click('#mask-edit');
    await page.waitForTimeout(200); // the flow is drawn again beside the drawer
    const cell = await flowCell(page, 'weights', 3, 0);
    await answered(page, () => page.mouse.click(cell.x, cell.y));
    assert.equal((await state(page)).step, 'flow');
    assert.equal((await read(page, 0)).weights[3][0], 0);
  }));

test('a matrix that is enlarged moves from its place in the flow and back, and nothing moves if one wishes so', async () => {
  for (const reducedMotion of ['no-preference', 'reduce']) {
    await onPage({ reducedMotion }, async (page) => {
      await open(page, '/#example=000');
      // Clicks, and returns the first and the last place of what moves then, and how many things move.
      const moves = (selector) =>
        page.evaluate((selector) => {
          document.querySelector(selector).dispatchEvent(new MouseEvent('click', { bubbles: true, clientX: 1, clientY: 1 }));
          const found = document.getAnimations();
          const frames = found.map(({ effect }) => effect.getKeyframes().map(({ left, top, width }) => [left, top, width].map(parseFloat)));
          return { frames, longest: Math.max(0, ...found.map(({ effect }) => effect.getTiming().duration)) };
        }, selector);
      const boxOf = async (selector) => {
        const { x, y, width } = await page.locator(selector).first().boundingBox();
        return [x, y, width];
      };
      const near = (got, wanted, what) =>
        got.forEach((value, at) => assert.ok(Math.abs(value - wanted[at]) < 1, `${what}: ${got} is not ${wanted}`));
      const small = await boxOf('[data-node="scores"]');
      const there = await moves('[data-node="scores"]');
      const large = await boxOf('#single .figure-over');
      await page.waitForFunction(() => !document.getAnimations().length && !document.querySelector('.stage-ghost'));
      const back = await moves('[data-frame="flow"]');
      if (reducedMotion === 'reduce') {
        assert.deepEqual([there.frames, back.frames], [[], []]);
      } else {
        assert.deepEqual([there.frames.length, back.frames.length], [1, 1]);
        assert.ok(there.longest > 0 && there.longest <= 400, 'it is short');
        near(there.frames[0][0], small, 'from the flow');
        near(there.frames[0].at(-1), large, 'to its place on the stage');
        near(back.frames[0][0], large, 'from the stage');
        near(back.frames[0].at(-1), small, 'to the flow');
      }
      await page.waitForFunction(() => !document.querySelector('.stage-ghost'));
    });
  }
});

test('the flow has other colours in the dark, and its words can be read', async () => {
  const seen = {};
  for (const colorScheme of ['light', 'dark']) {
    await onPage({ colorScheme }, async (page) => {
      await open(page, '/#example=001');
      await page.waitForTimeout(200); // the pictures of large matrices come later
      // The lightness of the darkest and the lightest point of the title of X.
      const { top, left } = (await boxes(page)).X;
      seen[colorScheme] = await page.locator('.flow-canvas').evaluate(
        (canvas, { top, left }) => {
          const bounds = canvas.getBoundingClientRect();
          const ratio = canvas.width / bounds.width;
          const { data } = canvas
            .getContext('2d')
            .getImageData((left - bounds.left) * ratio, (top - bounds.top - 16) * ratio, 60 * ratio, 14 * ratio);
          let ink = 0;
          for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 200) ink = Math.max(ink, data[at]);
          const [paper] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
          return Math.abs(ink - paper);
        },
        { top, left },
      );
      assert.ok(seen[colorScheme] > 80, `${colorScheme}: ${seen[colorScheme]}`);
      await picture(page, `flow-${colorScheme}`);
    });
  }
});

test('the matrices keep their places while one points at cells with long and short sentences', () =>
  onPage({ viewport: SIZES[0] }, async (page) => {
    for (const [i, example] of ['000', '001', '003', '005'].entries()) {
      await open(page, `/?${i}#example=${example}`);
      if (example !== '005') await openDrawer(page); // so that sentences have up to three lines
      await page.waitForTimeout(300);
      const before = await boxes(page);
      for (const id of ['output', 'weights', 'scores', 'v', 'q']) {
        const { x, y } = await flowCell(page, id, 1, 0);
        await page.mouse.move(x, y);
        await page.waitForTimeout(60); // two frames, in which the stage could change
      }
      assert.deepEqual(await boxes(page), before, example);
    }
  }));

test('on a large screen, the picture grows with its text until the sheet is full, and pointing still finds its cells', () =>
  onPage({ viewport: { width: 1920, height: 1080 } }, async (page) => {
    await open(page, '/#example=000');
    const { room, nodes, cell } = await page.evaluate(() => {
      const boxes = [...document.querySelectorAll('#flow .node')].map((node) => node.getBoundingClientRect());
      const [left, right] = [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
      const [top, bottom] = [Math.min(...boxes.map((box) => box.top)), Math.max(...boxes.map((box) => box.bottom))];
      const { clientWidth, clientHeight } = document.getElementById('picture');
      return { room: [clientWidth, clientHeight], nodes: [right - left, bottom - top], cell: boxes.at(-1).height / 4 };
    });
    assert.ok(nodes[0] > 0.9 * room[0] || nodes[1] > 0.9 * room[1], `the matrices take ${nodes} of ${room}`);
    assert.ok(nodes[0] <= room[0] && nodes[1] <= room[1] && cell > 36, `a cell is ${cell} high`);
    for (const [row, col] of [
      [0, 0],
      [3, 3],
    ]) {
      const { x, y } = await flowCell(page, 'weights', row, col);
      await page.mouse.move(x, y);
      await page.waitForFunction(
        (title) => document.querySelector('.written-line b').textContent.startsWith(title),
        `word ${row + 1} → word ${col + 1}`,
      );
      const mark = await page.locator('#flow [data-node="weights"] .mark-cell').boundingBox();
      assert.ok(Math.abs(mark.x + mark.width / 2 - x) < 2 && Math.abs(mark.y + mark.height / 2 - y) < 2, 'the mark is on the cell');
    }
  }));

test('the upper right quarter of the picture is used, and cells are as large as the sheet lets them', async () => {
  for (const viewport of [SIZES[0], SIZES[2]]) {
    await onPage({ viewport }, async (page) => {
      for (const [i, example] of ['000', '002', '004', 'it'].entries()) {
        await open(page, `/?${i}#example=${example}`);
        const { left, top, width, height } = await page.locator('#flow').evaluate((flow) => flow.getBoundingClientRect().toJSON());
        const all = Object.values(await boxes(page));
        const within = (box, x0, y0, x1, y1) =>
          Math.max(0, Math.min(box.right, x1) - Math.max(box.left, x0)) * Math.max(0, Math.min(box.bottom, y1) - Math.max(box.top, y0));
        const quarter = [left + width / 2, top, left + width, top + height / 2];
        const used = sum(all.map((box) => within(box, ...quarter))) / ((width * height) / 4);
        assert.ok(used > 0.2, `${example} at ${viewport.width}: ${used} of the quarter is used`);
        const size = [
          Math.max(...all.map((box) => box.right)) - Math.min(...all.map((box) => box.left)),
          Math.max(...all.map((box) => box.bottom)) - Math.min(...all.map((box) => box.top)),
        ];
        assert.ok(
          size[0] > 0.9 * width || size[1] > 0.85 * height,
          `${example} at ${viewport.width}: the matrices take ${size} of ${width} × ${height}`,
        );
      }
    });
  }
});

test('words above columns are not turned while several lines have room for them', () =>
  onPage({ viewport: { width: 1024, height: 768 } }, async (page) => {
    await page.addInitScript(() => {
      window.turned = [];
      const write = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        if (Math.abs(this.getTransform().b) > 0.1) window.turned.push(text);
        write.call(this, text, ...more);
      };
    });
    for (const [i, example] of ['000', '003', '004', 'it'].entries()) {
      await open(page, `/?${i}#example=${example}`);
      await page.waitForSelector('#flow[data-drawn="true"]');
      assert.deepEqual(await page.evaluate(() => window.turned), [], example);
    }
  }));

test('titles of narrow matrices do not touch each other', () =>
  onPage({ viewport: { width: 1366, height: 768 } }, async (page) => {
    await page.addInitScript(() => {
      window.titles = [];
      const write = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        const { a, e, f } = this.getTransform();
        if (this.font.startsWith('600') || this.font.startsWith('bold'))
          window.titles.push({ text, from: e / a, to: e / a + this.measureText(text).width, y: f / a });
        write.call(this, text, ...more);
      };
    });
    await open(page, '/#example=own');
    const words = Array.from({ length: 300 }, (_, at) => `w${at}`).join(' ');
    const request = JSON.parse(await page.evaluate(() => window.explorer.state.text));
    await setBody(page, { ...request, text: words });
    await page.waitForSelector('#flow[data-drawn="true"]');
    const titles = (await page.evaluate(() => window.titles)).reverse();
    const last = titles.slice(
      0,
      titles.findIndex(({ text }, at) => at && text === titles[0].text),
    );
    for (const one of ['Q', 'K']) assert.ok(last.some(({ text }) => text === one || text.startsWith(`${one} =`)), one); // prettier-ignore
    for (const one of last)
      for (const other of last)
        if (one.from < other.from && Math.abs(one.y - other.y) < 3)
          assert.ok(one.to + 4 <= other.from, `${one.text} ends at ${one.to}, and ${other.text} begins at ${other.from}`);
  }));
