// compare.js shows two results beside each other, and their difference: an answer that the user has kept (A) and the present answer (B), or
// the present answer (A) and the output of the user's own kernel from a file (B). The service judges the file, and the page shows where the
// numbers beyond its tolerance are. The page loads this script when it is first needed, and gives it parts that exist once (`tools`).
import { makeScale, paintPixels, rangeOf } from './colour.js';
import * as diff from './difference.js';
import { fill, makeWith, setBox } from './dom.js';
import { movedCell } from './keyboard.js';
import { measured, split } from './matrices.js';
import { formatNumber } from './numbers.js';
import { axisNames, isSigned, stepNamed } from './steps.js';
import markup from './parts/compare.html';
import { fail, shapeText, TYPES } from './tensortext.js';
import { paintMap, thumbSize } from './paint.js';

/* global OUTPUTS_NAME */
const GAP = 28; // pixels between the figures
const FOOT = 90; // pixels below a figure
const [LEAST_THUMB, THUMB] = [40, 64]; // pixels of a side of the map of a head
const MOST_THUMBS = 256; // heads; of more of them, those with the most errors are here
const EXPECTED = 'expected.'; // before the names of results, as in a request
const NONE = { absolute: 0, relative: 0 }; // the tolerance of a result whose verdict names none: every difference counts
const MOST_WEIGHTS = 30_000_000; // weights of an answer; the page does not look for the cause of a wrong result among more
const PANES = ['A', 'B', 'B − A'];

function readOutputs(file) {
  const worker = new Worker(new URL(OUTPUTS_NAME, import.meta.url), { type: 'module' });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data: { arrays, message } }) => (arrays ? resolve(arrays) : reject(new Error(message)));
    worker.onerror = () => reject(new Error('The browser cannot read the file. It may be too long for the memory.'));
    worker.postMessage(file);
  }).finally(() => worker.terminate());
}

const sizesOf = (groups) => ({ batch: groups.length, heads: groups[0].length, rows: groups[0][0].rows, cols: groups[0][0].cols });
// Returns what the rows and columns of a result stand for. Vectors with a number for each query, and gradients, are no steps of the page.
function stepOf(name) {
  const rows = /^grad_[KV]$/.test(name) ? 'key' : 'query';
  return stepNamed(name) ?? { name, title: name, measure: `entry of ${name}`, rows, cols: name === 'grad_bias' ? 'key' : 'dimension' };
}
const isVector = (groups) => ArrayBuffer.isView(groups[0][0]);
const titled = (word) => word[0].toUpperCase() + word.slice(1);
const written = (x) => (Number.isNaN(x) ? 'NaN' : formatNumber(x, 6));
const counted = (count) => count.toLocaleString('en');

// Returns whether the columns of a result hold all heads side by side.
const isPacked = (answer, name) => name === 'output' && answer.summary.packed && answer.heads > 1;

// Returns a result of an answer with one matrix for each head, or null if it has none that an array could be compared with. Numbers of a
// text become those of float32 that the service has.
function resultOf(answer, name) {
  let groups = answer.matrices[name];
  if (groups && isVector(groups)) groups = groups.map((item) => item.map((data) => ({ rows: data.length, cols: 1, data })));
  if (!groups?.[0]?.[0]?.data) return null;
  const heads = isPacked(answer, name) ? split(groups, answer.heads) : groups;
  if (answer.summary.options.dtype === 'float64') return heads;
  return heads.map((item) => item.map((matrix) => ({ ...matrix, data: Float32Array.from(matrix.data) })));
}

// Returns an array of a file as the service compares it. A text names no type, so its numbers have that of the request.
function typed(array, { dtype }) {
  if (!array.text || dtype === 'float64') return array;
  const data = Float32Array.from(array.data);
  return { ...array, type: 'F32', data, bytes: new Uint8Array(data.buffer) };
}

// Finds the result of an answer that an array of a file is compared with, as {name, array, ours, sizes, own, orders}. own: the order in
// which the service has the numbers. orders: those that the shape of the array fits. Throws an Error with a sentence if there is none.
function pairOf(answer, given) {
  const isFlat = given.name && isVector(answer.matrices[given.name] ?? [[]]);
  const array = isFlat ? { ...given, shape: [...given.shape, 1] } : given;
  const names = array.name === null ? diff.RESULTS : [array.name];
  const known = names.map((name) => ({ name, ours: resultOf(answer, name) })).filter(({ ours }) => ours);
  if (!known.length) fail(`The file has ${array.name}, and the answer has no such result.`);
  const all = known.map(({ name, ours }) => {
    const sizes = sizesOf(ours);
    const even = ours[0].every(({ cols }) => cols === sizes.cols);
    const own = isPacked(answer, name) ? 'rows' : 'heads';
    return { name, array, ours, sizes, even, own, orders: even ? diff.ordersOf(array.shape, sizes) : [] };
  });
  const found = all.find(({ orders, own }) => orders.includes(own)) ?? all.find(({ orders }) => orders.length);
  if (found) return found;
  const [{ name, sizes, even }] = all;
  if (!even) fail(`The heads of ${name} have different numbers of columns, so no array holds them.`);
  if (array.name) fail(diff.refusal(array.shape, sizes, name));
  const shapes = all.map((one) => `${one.name} ${shapeText(Object.values(one.sizes).slice(answer.batch > 1 ? 0 : 1))}`);
  fail(`The file has ${shapeText(array.shape)}, and no result has this shape: ${shapes.join(', ')}.`);
}

// Finds the results that the arrays of a file are compared with. One with an unknown name is left out, unless it is the only one.
function pairsOf(answer, arrays) {
  const known = arrays.filter(({ name }) => name === null || resultOf(answer, name));
  const only = arrays.length === 1 ? [{ ...arrays[0], name: null }] : arrays;
  return (known.length ? known : only).map((array) => pairOf(answer, typed(array, answer.summary.options)));
}

// Returns the matrices of a pair whose array is read in an order.
function theirsOf({ array, sizes }, order) {
  const { batch, heads, rows, cols } = sizes;
  return diff.partsOf(order === 'rows' ? diff.swapped(array.data, batch, rows, heads, cols) : array.data, sizes);
}

// Returns the tensor that the service compares with its result.
function expectedOf({ name, array, sizes: { batch, heads, rows, cols }, own }, order, shape) {
  const { type, bytes } = array;
  const [m, n] = order === 'rows' ? [rows, heads] : [heads, rows];
  const data = order === own ? bytes : diff.swapped(bytes, batch, m, n, cols * TYPES[type][0]);
  return { name: `expected.${name}`, type, shape, data };
}

// Returns a mask of the cells that have no colour: those of `bits`, −∞, ∞ and NaN, or null if there is none.
function unpaintable({ data }, bits) {
  const mask = Uint8Array.from(data, (value, at) => (Number.isFinite(value) && !bits?.[at] ? 0 : 1));
  return mask.includes(1) ? mask : null;
}

// Makes the comparison in an empty section. It is as high as --compare-height of the section says, if it can. tools: {Figure, drawBar,
// makeRange, createSaveMenu, colours, defer, showTooltip, hideTooltip, judge(request), point({query, key}|null), show({step, batch, head}),
// say(text), tell(title, detail), opened(files), request(files), keep(), aside(is), close(), closed()}. request(files): makes a request of a
// file. aside(is): whether the page shows its own view below the verdict. close() removes what was told.
export function createCompare(section, tools) {
  let kept = null; // the answer A, if the user has kept one
  // The file of the user's kernel: {name, arrays, others, pairs, error, order, own, fresh, chosen, verdicts}, or null. others: arrays that the
  // service compares, and the page has no numbers of its results. error: why it cannot be compared. order: the one that the user chose. own:
  // whether it has what the request expects. fresh: whether its worst place is still to be shown. chosen: a result that is no step, and the user
  // looks at it: {name, step}, where step is the one that was open. verdicts: a promise of those of the service.
  let file = null;
  let aside = false; // whether the page shows a step that the file does not have
  let colours = null; // the colours of the difference that the user chose, or null
  let now = null; // {answer, state}
  let opened = 0; // how many times the user has chosen what is compared; a file that is still being read belongs to the choice before
  let asked = 0; // how many comparisons have begun; a verdict that comes late belongs to one before
  let found = null; // what is shown: {name, ours, theirs, tolerance, ..., parts} and what difference.js has found (`all`)
  let shown = ''; // what the verdict belongs to

  const { title, keep, input, choice, stop, told, results, flip, go, thumbs, row } = fill(section, markup);
  const panes = PANES.map((name) => makePane(name));

  function makePane(name) {
    const pane = makeWith('div', row, { className: 'pane' });
    makeWith('p', pane, { className: 'pane-title', textContent: name });
    const figure = new tools.Figure(pane, {
      point: (cell, event) => event.pointerType !== 'touch' && point(cell, event, figure),
      click: (cell, event) => point(cell, event, figure),
      keydown: (event) => keydown(figure, event),
      leave: () => point(null),
      zoom: () => {},
    });
    const foot = makeWith('footer', pane);
    const bar = makeWith('canvas', foot, { className: 'colours' });
    const meta = makeWith('p', foot, { className: 'meta' });
    const saved = () => ({ figure, lines: null, name: `attention-${found.name}-${name.replace(' − ', '-minus-')}` });
    tools.createSaveMenu(foot, saved, tools.tell).name(name);
    return { pane, figure, bar, meta };
  }

  const step = () => stepOf(found.name);

  // Returns the numbers of a cell in A, B and B − A, with their names, and its words.
  const numbersAt = ({ row: r, col: c }) => found.parts.map(({ data, cols }, at) => [PANES[at], written(data[r * cols + c]), at === 2]);
  const titleOf = ({ row: r, col: c }) =>
    `${now.answer.label(step().rows)(r)}, ${step().cols === 'key' ? now.answer.key(c) : `column ${c}`}`;

  let pointed = null;
  function point(cell, event, figure) {
    if (!found) return;
    pointed = cell;
    const names = { query: cell?.row, key: step().cols === 'key' ? cell?.col : undefined };
    tools.point(cell && step().rows === 'query' ? names : null);
    if (!cell) tools.hideTooltip();
    else tools.showTooltip(titleOf(cell), numbersAt(cell), event, figure.rectOf(cell));
    mark();
  }

  function keydown(figure, event) {
    const cell = movedCell(pointed, event, found.parts[0]);
    if (!cell) return;
    figure.reveal(cell);
    point(cell, {}, figure);
    tools.say(`${titleOf(cell)}: ${numbersAt(cell).map(([name, number]) => `${name} ${number}`).join(', ')}`); // prettier-ignore
    event.preventDefault();
    event.stopPropagation();
  }

  // Returns the worst place: the first broken cell, or that of the largest error, or null if nothing differs.
  const worstOf = ({ all }) => all.firstBroken ?? (all.error ? all : null);

  function mark() {
    const at = worstOf(found);
    const { batch, head: index } = placeOf();
    const subject = at?.batch === batch && at.head === index ? { row: at.row, col: at.col } : null;
    for (const { figure } of panes) figure.mark({ rows: [], cols: [], cell: pointed, subject, locked: null });
  }

  // Returns the batch item and the head of the pair that the page shows.
  function placeOf() {
    const { state } = now;
    const batch = Math.min(state.batch, found.ours.length - 1);
    const count = found.ours[batch].length;
    return { batch, head: count === 1 ? 0 : Math.min(Math.floor((state.head * count) / now.answer.heads), count - 1) };
  }

  function showHead(batch, index) {
    const heads = found.ours[batch].length;
    const where = { batch, head: heads === 1 ? now.state.head : Math.floor((index * now.answer.heads) / heads) };
    tools.show(stepNamed(found.name) ? { step: found.name, ...where } : where);
  }

  function showResult(name) {
    const isStep = Boolean(stepNamed(name));
    file.chosen = isStep ? null : { name, step: now.state.step };
    tools.show(isStep ? { step: name } : {});
  }

  // Finds what is compared: {name, ours, theirs} or, for a file, what pairOf() returns, its order, and all pairs. Throws an Error with a
  // sentence.
  function pair() {
    const { answer, state } = now;
    if (file?.error) fail(file.error);
    if (file) {
      const orderOf = ({ orders, own }) => file.order ?? (orders.includes(own) ? own : null);
      file.pairs ??= pairsOf(answer, file.arrays);
      const pairs = file.pairs.map((one) => ({ ...one, order: orderOf(one) }));
      const shownOf = (step) => pairs.find(({ name }) => name === step);
      if (file.chosen?.step !== state.step) file.chosen = null;
      const shown = shownOf(file.chosen?.name ?? state.step);
      aside = !shown;
      return { ...(shown ?? shownOf(found?.name) ?? pairs[0]), pairs };
    }
    const name = answer.matrices[state.step] ? state.step : 'weights';
    kept.position = state.position;
    const [ours, theirs] = [kept, answer].map((one) => one.groups(name));
    const said = (groups) => shapeText(Object.values(sizesOf(groups)));
    if (!ours) fail(`A has no ${name}.`);
    if (said(ours) !== said(theirs) || !ours[0].every(({ cols }, at) => cols === theirs[0][at].cols))
      fail(`A has ${said(ours)} ${name} and B has ${said(theirs)}, so there is no difference to show.`);
    return { name, ours, theirs };
  }

  // Asks the service for its verdicts on results of the file, by a request or a changed one. Resolves to a function of a result that returns
  // {tolerance, verdict, beyond, message}, or {failure}. message: a sentence of the service that explains a wrong result.
  async function judge(pairs, { text, more }) {
    const { shapes } = now.answer.reply;
    const asked = pairs.filter(({ name, order }) => shapes[name] && order);
    const expected = [...more, ...asked.map((one) => expectedOf(one, one.order, shapes[one.name]))];
    const { comparison, problem, failure } = asked.length ? await tools.judge({ path: now.answer.summary.path, text, expected }) : {};
    return (name) => {
      const { tolerance = NONE, verdict, beyond_tolerance: beyond, message } = comparison?.results[name] ?? {};
      if (verdict) return { tolerance, verdict, beyond, message };
      if (!shapes[name]) return { failure: 'The service has no verdict on what the request itself has.' };
      return { failure: `The service has not compared the file: ${problem?.detail ?? failure}` };
    };
  }

  // Says the verdict on a result of a file that has several.
  const tellOne = (name, { verdict = 'not compared', beyond }) => `${name}: ${verdict}${beyond ? `, ${counted(beyond)} numbers` : ''}`;

  const word = (r) => ` (${now.answer.label(step().rows)(r)})`;

  function spotOf({ batch, head: index, row: r, col: c, ours, theirs }) {
    const [mine, yours] = file ? ['the service', 'the file'] : ['A', 'B'];
    const place = `${found.ours.length > 1 ? `batch item ${batch}, ` : ''}${found.ours[0].length > 1 ? `head ${index}, ` : ''}row ${r}${word(r)}`;
    const column = `column ${c}${step().cols === 'key' ? ` (${now.answer.key(c)})` : ''}`;
    return `${found.name} at ${place}, ${column}: ${mine} has ${written(ours)}, ${yours} has ${written(theirs)}`;
  }

  // Says in which batch items, heads, rows and columns the numbers beyond the tolerance are.
  function regionOf({ heads, rows, cols }) {
    const items = heads.map((item) => item.some(Boolean));
    const any = heads[0].map((_, at) => heads.some((item) => item[at]));
    const said = [items.length > 1 && ['batch item', items], any.length > 1 && ['head', any], ['row', rows, word], cols.includes(0) && ['column', cols]]; // prettier-ignore
    return said.filter(Boolean).map((what) => diff.spanOf(...what)).join(', '); // prettier-ignore
  }

  // Returns whether a result is wrong: the service says so, or, if it has not judged, a number is beyond the tolerance.
  const isWrong = ({ verdict, all }) => (verdict ? verdict === 'wrong' : all.over > 0);

  // Says what is wrong, and where. The verdict and all numbers are those of the service, if it has judged.
  function tell({ all, name, tolerance, verdict, beyond = tolerance === NONE ? 0 : all.over, message, failure, order, own, summary }) {
    const short = (x) => Number(x.toPrecision(3)).toExponential().replace('-', '−');
    const limit = `beyond the tolerance, ${short(tolerance.absolute)} + ${short(tolerance.relative)} · |B|.`;
    const [total, many] = [counted(all.count), counted(all.brokenCount)];
    const said = failure ? [failure] : [];
    if (!all.error && !all.brokenCount) {
      said.push(`A and B have the same ${name}.`);
      if (!file) said.push('Change the request, or open a kernel’s output.');
    } else if (beyond) {
      const first = verdict ? `${titled(verdict)}: ` : file ? 'Wrong: ' : '';
      const [count, are, they] = beyond === 1 ? ['One', 'is', 'It is'] : [counted(beyond), 'are', 'They are'];
      said.push(`${first}${count} of ${total} numbers ${are} ${limit} ${they} in ${regionOf(all)}.`);
    } else if (verdict === 'wrong' || tolerance === NONE) said.push(`${titled(verdict)}:`);
    else said.push(`${verdict ? `${titled(verdict)}: no` : 'No'} number is ${limit}`);
    if (message && !all.brokenCount) said.push(`${message}.`);
    if (all.brokenCount) {
      const cells = all.brokenCount === 1 ? 'One number has' : `${many} numbers have`;
      said.push(`${cells} no finite difference, because of NaN or an infinity; the first is ${spotOf(all.firstBroken)}.`);
    }
    const largest = all.brokenCount ? 'Among the others, the largest' : 'The largest';
    if (all.error > 0) said.push(`${largest} ${file ? 'error' : 'difference'} is ${formatNumber(all.error, 4)}, in ${spotOf(all)}.`);
    if (verdict === 'rounded' && beyond) said.push('Rounding explains the differences.');
    if (file && order !== own) said.push(`The file is read as ${diff.ORDERS[order]}.`);
    told.textContent = summary + said.join(' ');
    go.hidden = !worstOf(found);
  }

  // Looks for the cause of a wrong result of a file: another order of its numbers, or another request. The first that explains it is said.
  async function explain(mine) {
    const { ours, order, sizes, all, tolerance, orders } = found;
    const other = order === 'heads' ? 'rows' : 'heads';
    flip.hidden = true;
    const isBetter = () => orders.includes(other) || diff.survey(ours, theirsOf(found, other), tolerance).over < all.over / 10;
    if (isWrong(found) && sizes.heads > 1 && isBetter()) {
      offer(other);
      if (!orders.includes(other)) told.textContent += ` They would agree if the file were ${diff.ORDERS[other]}: its layout is wrong.`;
    }
    const { batch, heads, queries, keys, text, summary } = now.answer;
    if (found.verdict !== 'wrong' || !flip.hidden || batch * heads * queries * keys > MOST_WEIGHTS) return;
    const tried = [];
    for (const suspect of diff.suspects(text, summary, queries, keys)) {
      const verdictOf = await judge([found], suspect);
      if (mine !== asked) return;
      const { verdict = 'wrong', beyond } = verdictOf(found.name);
      tried.push({ ...suspect, beyond: verdict === 'wrong' ? beyond || Infinity : 0 });
      if (verdict !== 'wrong') break;
    }
    const [best] = tried.sort((a, b) => a.beyond - b.beyond);
    if (!best || (best.beyond && !(best.beyond < found.beyond / 10))) return;
    const said = best.beyond ? `Only ${counted(best.beyond)} numbers of the file are wrong` : 'The file is right';
    told.textContent += ` ${said} if ${best.says}.`;
  }

  function offer(order) {
    flip.hidden = false;
    flip.textContent = `Read it as ${diff.ORDERS[order]}`;
    flip.dataset.order = order;
  }

  // Returns the difference of a head with its colours, as {matrix, shades, mask}.
  function differenceOf(batch, index, how) {
    const [a, b] = [found.ours[batch][index], found.theirs[batch][index]];
    const matrix = diff.difference(a, b);
    const shades = diff.shadesOf(matrix, a, b, how === 'beyond' ? found.tolerance : null);
    const masks = [kept ?? now.answer, now.answer].map((answer) => maskOf(answer, batch, index));
    const isMasked = (at) => masks.every((bits) => bits?.[at]) && matrix.data[at] === 0;
    return { matrix, shades, mask: masks[0] && shades.map((_, at) => (isMasked(at) ? 1 : 0)) };
  }

  // Returns the mask of a head of the weights, or null. Other results have −∞ where they are masked.
  const maskOf = (answer, batch, index) => (found.name === 'weights' ? answer.maskOfWeights(batch, index) : null);

  const pictureOf = (matrix) => async (picked, part, side) => paintPixels(document.createElement('canvas'), matrix, picked, part, side);

  // Draws a small map for each head. They are drawn again if their colours have changed.
  function drawThumbs(scale, how) {
    const { heads } = found.all;
    const list = heads.flatMap((item, batch) => item.map((over, index) => ({ batch, index, over })));
    if (list.length > MOST_THUMBS) list.sort((a, b) => b.over - a.over).length = MOST_THUMBS;
    thumbs.hidden = list.length < 2;
    const look = [scale.table, scale.log, how].join();
    if (found.drawn !== look) {
      found.drawn = look;
      thumbs.replaceChildren(...(thumbs.hidden ? [] : list).map((one) => makeThumb(one, scale, how)));
    }
    const at = String(Object.values(placeOf()));
    for (const button of thumbs.children) button.ariaPressed = String(button.dataset.head === at);
  }

  function makeThumb({ batch, index, over }, scale, how) {
    const onclick = () => showHead(batch, index);
    const button = makeWith('button', null, { type: 'button', className: over && isWrong(found) ? 'wrong' : '', onclick });
    button.dataset.head = [batch, index];
    const canvas = makeWith('canvas', button);
    const { width, height } = thumbSize(found.ours[batch][index], THUMB);
    setBox(canvas, { width: Math.max(width, LEAST_THUMB), height: Math.max(height, LEAST_THUMB) });
    const name = `${found.ours.length > 1 ? `item ${batch}, ` : ''}head ${index} `;
    button.append(name, makeWith('b', null, { textContent: counted(over) }));
    const pair = found;
    tools.defer(canvas, () => {
      if (pair !== found) return;
      const { matrix, shades, mask } = differenceOf(batch, index, how);
      paintMap(canvas, { ...matrix, data: shades, mask }, scale);
    });
    return button;
  }

  function draw() {
    row.hidden = thumbs.hidden = aside;
    if (aside) return;
    const { answer, state } = now;
    const { batch, head: index } = placeOf();
    const [a, b] = [found.ours[batch][index], measured(found.theirs[batch][index])];
    const { palette, log, dark, range } = state;
    const { all, tolerance } = found;
    // Where the verdict is not that of a tolerance, all differences have colours.
    const usual = !file ? 'same' : isWrong(found) && (tolerance === NONE || !all.over) ? 'log' : 'beyond';
    const how = (choice.value = colours ?? usual);
    const own = differenceOf(batch, index, how);
    found.parts = [a, b, measured(own.matrix)];
    const signed = isSigned(found.name, answer.summary.options) || all.lo < 0;
    const hi = !signed && rangeOf(range, answer.keys) === 'one' ? 1 : all.hi;
    const scale = makeScale({ lo: all.lo, hi, signed, log, palette, dark });
    const reach = how === 'same' ? Math.max(Math.abs(scale.lo), scale.hi) : (all.error ?? 0);
    // The colours of errors begin at the smallest one that has a colour, or at a tenth of the largest, so that the largest stands out.
    const least = how === 'log' ? Math.max(all.tiny, reach * 1e-9) : all.over ? all.least : tolerance.absolute;
    const top = all.over || how === 'log' ? reach : 10 * tolerance.absolute;
    const errors = { least: Math.min(least, top / 10) || Number.MIN_VALUE, hi: top };
    const last = makeScale({ lo: -reach, hi: reach, signed: true, log, palette, dark, ...(how !== 'same' && errors) });
    const scales = [scale, scale, last];
    drawThumbs(last, how);
    const across = section.clientWidth < 700 ? 1 : 3;
    row.style.setProperty('--across', across);
    const width = Math.min((section.clientWidth - (across - 1) * GAP) / across, 560);
    const height = parseFloat(getComputedStyle(section).getPropertyValue('--compare-height'));
    const above = row.getBoundingClientRect().top - section.getBoundingClientRect().top + FOOT;
    const tallest = height ? Math.max(160, height - above) : 420;
    const bits = maskOf(answer, batch, index)?.map((bit, at) => bit && b.data[at] === 0);
    const shown = [
      { matrix: a, mask: unpaintable(a, maskOf(kept ?? answer, batch, index)) },
      { matrix: b, mask: unpaintable(b, bits) },
      { ...own, matrix: found.parts[2] },
    ];
    panes.forEach(({ figure, bar, meta }, at) => {
      const { matrix, mask, shades } = shown[at];
      figure.update({
        ...{ matrix, shades, mask, masked: matrix.masked, scale: scales[at], width, most: 56, tallest, colours: tools.colours() },
        rowLabels: answer.label(step().rows),
        colLabels: answer.label(step().cols),
        names: axisNames(step()),
        measure: at === 2 ? `${step().measure}, B − A` : step().measure,
        label: `${PANES[at]}, ${step().title}: ${matrix.rows} × ${matrix.cols}. Arrow keys move.`,
        picture: pictureOf({ ...matrix, data: shades ?? matrix.data, mask }),
      });
      bar.style.marginLeft = `${figure.box.left}px`;
      tools.drawBar(bar, { scale: scales[at], measure: figure.given.measure, plotWidth: figure.box.plotWidth, colours: tools.colours() });
      meta.replaceChildren(tools.makeRange(matrix));
    });
    mark();
  }

  function clear(text = '') {
    found = pointed = null;
    asked++;
    shown = '';
    told.textContent = text;
    row.hidden = thumbs.hidden = go.hidden = flip.hidden = results.hidden = true;
    tools.hideTooltip();
    tools.point(null);
  }

  // Returns the verdicts on all results of a file that has several, and offers to show each of which the page has the numbers.
  function tellAll({ name, pairs = [] }, verdictOf) {
    const others = file?.others.map((one) => one.name.slice(EXPECTED.length)) ?? [];
    results.hidden = pairs.length < 2;
    if (pairs.length + others.length < 2) return '';
    results.replaceChildren(...pairs.map((one) => new Option(tellOne(one.name, verdictOf(one.name)), one.name)));
    results.value = name;
    const why = (other) => (verdictOf(other).message ? ` (${verdictOf(other).message})` : '');
    const told = [
      ...pairs.map((one) => tellOne(one.name, verdictOf(one.name))),
      ...others.map((one) => tellOne(one, verdictOf(one)) + why(one)),
    ];
    return `${told.join('. ')}. `;
  }

  async function examine(next) {
    const mine = ++asked;
    if (file) file.verdicts ??= judge(next.pairs, { text: now.answer.text, more: file.others });
    const verdictOf = (await file?.verdicts) ?? (() => ({}));
    if (mine !== asked) return;
    const isBad = ({ name }) => verdictOf(name).verdict === 'wrong';
    const first = file?.fresh && !isBad(next) && next.pairs.find(isBad);
    if (first) return showResult(first.name);
    const verdict = verdictOf(next.name);
    const tolerance = verdict.tolerance ?? diff.toleranceOf(next.array?.type);
    const summary = tellAll(next, verdictOf);
    found = { ...next, ...verdict, tolerance, summary, all: diff.survey(next.ours, next.theirs, tolerance), parts: [] };
    tell(found);
    draw();
    if (!file) return;
    const { fresh } = file;
    file.fresh = false;
    if (fresh && isWrong(found) && worstOf(found)) showHead(worstOf(found).batch, worstOf(found).head);
    await explain(mine);
  }

  // Compares the present answer. A pair that cannot be compared is said in words.
  function render(answer, state) {
    if (!kept && !file) return;
    const other = now?.answer !== answer;
    now = { answer, state };
    title.textContent = file ? `A: the service. B: ${file.name}.` : `A: ${kept.described}. B: the request now.`;
    keep.hidden = Boolean(file);
    try {
      if (other && file) file.verdicts = file.pairs = null;
      aside = false;
      const next = pair();
      tools.aside(aside);
      const what = [next.name, state.position, file?.order].join();
      if (!other && what === shown) return found && draw();
      if (other) pointed = null;
      shown = what;
      if (next.order) next.theirs = theirsOf(next, next.order);
      if (next.theirs) return void examine(next);
      clear(`${diff.refusal(next.array.shape, next.sizes, next.name)} It has this shape as ${diff.ORDERS[next.orders[0]]}.`);
      shown = what;
      offer(next.orders[0]);
    } catch (error) {
      tools.aside(Boolean(file?.error));
      clear(error.message);
    }
  }

  // Begins a comparison with an answer that was kept, or with a file. Without both, there is none.
  function begin(answer, given) {
    opened++;
    clear();
    [kept, file, colours, now] = [answer, given, null, null];
    section.hidden = !answer && !given;
  }

  function close() {
    begin(null, null);
    tools.closed();
  }

  // Compares the present answer with the first file. If the file also has what a request has, its results belong to that request, which
  // becomes the present one. own: whether the file has the present request, and what it expects is compared.
  async function open(files, answer, state, own = false) {
    if (!files.length) return;
    const mine = ++opened;
    const given = { name: files[0].name, arrays: [], others: [], order: null, own, fresh: true, chosen: null, verdicts: null };
    let step = {};
    try {
      if (files.length > 1) fail('Open one file. A .safetensors or JSON file can have several results.');
      const all = await readOutputs(files[0]);
      const expected = all.filter(({ name }) => name?.startsWith(EXPECTED));
      if (expected.length && expected.length < all.length && !own) {
        if (mine !== opened) return;
        close();
        return tools.request(files);
      }
      given.arrays = expected.length ? expected.map((one) => ({ ...one, name: one.name.slice(EXPECTED.length) })) : all;
      const pairs = pairsOf(answer, given.arrays);
      const isShown = ({ name }) => pairs.some((pair) => EXPECTED + pair.name === name);
      const others = expected.filter((one) => !isShown(one)).map((one) => typed(one, answer.summary.options));
      given.others = others.map(({ name, type, shape, bytes }) => ({ name, type, shape, data: bytes }));
      step = { step: (pairs.find(({ name }) => name === state.step) ?? pairs[0]).name };
    } catch ({ message }) {
      given.error = `Not compared: ${message}`;
    }
    if (mine !== opened) return;
    begin(null, given);
    tools.close();
    tools.show(step);
  }

  keep.addEventListener('click', () => tools.keep());
  stop.addEventListener('click', close);
  input.addEventListener('change', () => {
    tools.opened([...input.files]);
    input.value = '';
  });
  results.addEventListener('change', () => showResult(results.value));
  choice.addEventListener('change', () => {
    colours = choice.value;
    if (found) draw();
  });
  flip.addEventListener('click', () => {
    Object.assign(file, { order: flip.dataset.order, verdicts: null });
    render(now.answer, now.state);
  });
  go.addEventListener('click', () => {
    const { batch, head: index, row: r, col: c } = worstOf(found);
    showHead(batch, index);
    const { figure } = panes[2];
    figure.reveal({ row: r, col: c });
    figure.root.focus();
    point({ row: r, col: c }, {}, figure);
  });
  let wide = 0;
  new ResizeObserver(() => {
    if (wide !== section.clientWidth && found && !section.hidden) draw();
    wide = section.clientWidth;
  }).observe(section);

  return {
    render,
    close,
    open,
    // Ends the comparison with what the request before a new one expects.
    forget: () => file?.own && close(),
    keep: (answer) => begin(answer, null),
    holds: (element) => !section.hidden && section.contains(element),
    // A copy of what is compared: {name, verdict, beyond, order, worst, difference}.
    shown() {
      const { name, verdict, beyond, order, all: worst, parts } = found ?? {};
      return found && structuredClone({ name, verdict, beyond, order, worst, difference: parts[2] });
    },
  };
}
