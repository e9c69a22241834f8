// compare.js shows two results beside each other, and their difference: an answer that the user has kept (A) and the present answer (B), or
// the present answer (A) and the output of the user's own kernel from a file (B). The page loads it when it is first needed. Parts of the
// page that exist once are given to it (`tools`).
import { makeScale, raster, rangeOf } from './colour.js';
import { ATOL, difference, fitTo, largestError, partsOf, RTOL } from './difference.js';
import { makeWith } from './dom.js';
import { movedCell } from './keyboard.js';
import { measured, split } from './matrices.js';
import { formatNumber } from './numbers.js';
import { axisNames, isSigned, STEPS } from './steps.js';
import { shapeText } from './tensortext.js';

/* global OUTPUTS_NAME */
const GAP = 28; // pixels between the figures
const TYPES = { F16: 'float16', BF16: 'bfloat16', F32: 'float32' };
const PANES = ['A', 'B', 'B − A'];
// The results that an array without a name is compared with: the first of them that has its shape.
const USUAL = ['output', 'weights', 'scores', 'scaled_scores', 'masked_scores', 'Q', 'K', 'V'];

// Resolves to the arrays of a file (outputs.js).
function readOutputs(file) {
  const worker = new Worker(new URL(OUTPUTS_NAME, import.meta.url), { type: 'module' });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data: { arrays, message } }) => (arrays ? resolve(arrays) : reject(new Error(message)));
    worker.onerror = () => reject(new Error('The browser cannot read the file. It may be too long for the memory.'));
    worker.postMessage(file);
  }).finally(() => worker.terminate());
}

const sizesOf = (groups) => ({ batch: groups.length, heads: groups[0].length, rows: groups[0][0].rows, cols: groups[0][0].cols });
// Returns whether all heads have the same number of columns.
const areEqual = (groups) => groups.every((item) => item.every(({ cols }) => cols === groups[0][0].cols));
const measuredAll = (groups) => groups.map((item) => item.map(measured));

// Returns the result of an answer in a form that an array of this shape fits: as it is, or with its columns split into heads. Returns null
// if none fits.
function formOf(answer, name, shape) {
  const groups = answer.matrices[name];
  if (!groups || !groups[0]?.[0]?.data || !areEqual(groups)) return null;
  if (!fitTo(shape, sizesOf(groups), name)) return groups;
  const { heads, cols } = { ...sizesOf(groups), heads: answer.heads };
  if (groups[0].length > 1 || heads < 2 || cols % heads) return null;
  const perHead = split(groups, heads);
  return fitTo(shape, sizesOf(perHead), name) ? null : perHead;
}

// Finds the result of an answer that an array of a file is compared with, as {name, type, ours, theirs}. Throws an Error with a sentence if
// there is none.
function pairOf(answer, { name, shape, data, type = 'F32' }) {
  const names = name === null ? USUAL : [name];
  for (const one of names) {
    const groups = formOf(answer, one, shape);
    if (groups) return { name: one, type, ours: groups, theirs: measuredAll(partsOf({ data }, sizesOf(groups))) };
  }
  const known = names.filter((one) => answer.matrices[one]?.[0]?.[0]?.data);
  if (name !== null && !known.length) throw new Error(`The file has ${name}, and the answer has no such result.`);
  if (name !== null)
    throw new Error(
      fitTo(shape, sizesOf(answer.matrices[name]), name) ??
        `The heads of ${name} have different numbers of columns, so no array holds them.`,
    );
  const shapes = known.map((one) => `${one} ${shapeText(Object.values(sizesOf(answer.matrices[one])).slice(answer.batch > 1 ? 0 : 1))}`);
  throw new Error(`The file has ${shapeText(shape)}, and no result has this shape: ${shapes.join(', ')}.`);
}

// Returns a mask of the cells that have no colour: −∞, ∞ and NaN, or null if there is none.
function unpaintable({ data }) {
  const bits = Uint8Array.from(data, (value) => (Number.isFinite(value) ? 0 : 1));
  return bits.includes(1) ? bits : null;
}

// Makes the comparison in an empty section. tools: {Figure, drawBar, makeRange, createSaveMenu, colours, defer, showTooltip, hideTooltip,
// point({query, key}|null), show({step, batch, head, row}), tell(title, detail), close(), closed()}. close() removes what was told.
export function createCompare(section, tools) {
  let kept = null; // the answer A, if the user has kept one
  let file = null; // {name, pairs}: what the file of the user's kernel has, as pairs with results of the answer
  let arrays = null; // the arrays of this file
  let own = null; // whether the difference has colours of its own; null: only that of a file has
  let now = null; // {answer, state}
  let opened = 0; // how many times the user has chosen what is compared; a file that is still being read belongs to the choice before
  let found = null; // what is shown: {name, type, ours, theirs, parts, worst}

  const head = makeWith('p', section, { className: 'compare-head' });
  const title = makeWith('strong', head);
  const keep = makeWith('button', head, { type: 'button', textContent: 'Keep B as A' });
  makeWith('label', head, { className: 'button', htmlFor: 'compare-file', textContent: 'Open a kernel’s output' });
  const input = makeWith('input', head, {
    type: 'file',
    id: 'compare-file',
    className: 'unseen',
    accept: '.npy,.safetensors,.json,.csv,.tsv,.txt',
  });
  const ownLabel = makeWith('label', head);
  const ownBox = makeWith('input', ownLabel, { type: 'checkbox' });
  ownLabel.append(' B − A in colours of its own');
  const stop = makeWith('button', head, { type: 'button', className: 'quiet', textContent: 'Stop comparing' });
  const line = makeWith('div', section, { className: 'compare-told' });
  const told = makeWith('p', line, { id: 'compare-told', role: 'status' });
  const go = makeWith('button', line, { type: 'button', textContent: 'Show this place', hidden: true });
  const row = makeWith('div', section, { className: 'compare-panes' });
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
    const menu = tools.createSaveMenu(
      foot,
      () => ({ figure, lines: null, name: `attention-${found.name}-${name.replace(' − ', '-minus-')}` }),
      tools.tell,
    );
    menu.name(name);
    return { pane, figure, bar, meta };
  }

  const step = () => STEPS.find(({ name }) => name === found.name);

  // Returns the numbers of a cell in A, B and B − A.
  const numbersAt = (cell) => found.parts.map(({ data, cols }) => data[cell.row * cols + cell.col]);

  let pointed = null;
  function point(cell, event, figure) {
    if (!found) return;
    pointed = cell;
    const names = { query: cell?.row, key: step().cols === 'key' ? cell?.col : undefined };
    tools.point(cell && step().rows === 'query' ? names : null);
    if (!cell) tools.hideTooltip();
    else {
      const [a, b, c] = numbersAt(cell).map((x) => formatNumber(x, 6));
      const label = step().cols === 'key' ? now.answer.key(cell.col) : `column ${cell.col}`;
      tools.showTooltip(`${now.answer.label(step().rows)(cell.row)}, ${label}`, [['A', a], ['B', b], ['B − A', c, true]], event, figure.rectOf(cell)); // prettier-ignore
    }
    mark();
  }

  function keydown(figure, event) {
    const cell = movedCell(pointed, event, found.parts[0]);
    if (!cell) return;
    figure.reveal(cell);
    point(cell, {}, figure);
    const [a, b, c] = numbersAt(cell).map((x) => formatNumber(x, 6));
    tools.say(`${now.answer.label(step().rows)(cell.row)}, ${now.answer.label(step().cols)(cell.col)}: A ${a}, B ${b}, B − A ${c}`);
    event.preventDefault();
    event.stopPropagation();
  }

  function mark() {
    const { worst } = found;
    const at = worst.firstBroken ?? (worst.error === null ? null : worst);
    const { batch, head: index } = placeOf();
    const subject = at && at.batch === batch && at.head === index ? { row: at.row, col: at.col } : null;
    for (const { figure } of panes) figure.mark({ rows: [], cols: [], cell: pointed, subject, locked: null });
  }

  // Returns the batch item and the head of the pair that the page shows.
  function placeOf() {
    const { state } = now;
    const batch = Math.min(state.batch, found.ours.length - 1);
    const count = found.ours[batch].length;
    return { batch, head: count === 1 ? 0 : Math.min(Math.floor((state.head * count) / now.answer.heads), count - 1) };
  }

  // Finds what is compared: {name, type, ours, theirs}, or throws an Error with a sentence.
  function pair() {
    const { answer, state } = now;
    if (file) return file.pairs.find(({ name }) => name === state.step) ?? file.pairs[0];
    const name = answer.matrices[state.step] ? state.step : 'weights';
    kept.position = state.position;
    const [ours, theirs] = [kept, answer].map((one) => one.groups(name));
    const said = (groups) => shapeText(Object.values(sizesOf(groups)));
    if (!ours) throw new Error(`A has no ${name}.`);
    if (said(ours) !== said(theirs) || !ours[0].every(({ cols }, head) => cols === theirs[0][head].cols))
      throw new Error(`A has ${said(ours)} ${name} and B has ${said(theirs)}, so there is no difference to show.`);
    return { name, type: 'F32', ours, theirs };
  }

  // Says the largest difference and its place.
  function tell({ worst, name, type }) {
    const { answer } = now;
    const place = ({ batch, head: index, row: r, col: c }) =>
      [
        ...(found.ours.length > 1 ? [`batch item ${batch}`] : []),
        ...(found.ours[0].length > 1 ? [`head ${index}`] : []),
        `row ${r} (${answer.label(step().rows)(r)})`,
        `column ${c}${step().cols === 'key' ? ` (${answer.key(c)})` : ''}`,
      ].join(', ');
    const [mine, yours] = file ? ['the service', 'the file'] : ['A', 'B'];
    const said = [];
    if (worst.brokenCount) {
      const { ours, theirs } = worst.firstBroken;
      const cells = worst.brokenCount === 1 ? 'One number has' : `${worst.brokenCount.toLocaleString('en')} numbers have`;
      said.push(
        `${cells} no finite difference; the first is ${name} at ${place(worst.firstBroken)}: ${mine} has ${formatNumber(ours, 6)}, ${yours} has ${Number.isNaN(theirs) ? 'NaN' : formatNumber(theirs, 6)}.`,
      );
    }
    if (!worst.error && !worst.brokenCount) said.push(`A and B have the same ${name}.`);
    else if (worst.error > 0) {
      said.push(
        `The largest ${file ? 'error' : 'difference'} is ${formatNumber(worst.error, 4)}, in ${name} at ${place(worst)}: ${mine} has ${formatNumber(worst.ours, 6)}, ${yours} has ${formatNumber(worst.theirs, 6)}.`,
      );
    }
    const tolerance = `${formatNumber(ATOL, 3)} + ${formatNumber(RTOL[type], 3)} · |A|, the tolerance of PyTorch for ${TYPES[type]}`;
    if (worst.over) {
      said.push(
        `In total, ${worst.over.toLocaleString('en')} of ${worst.count.toLocaleString('en')} numbers differ by more than ${tolerance}.`,
      );
    } else if (worst.error > 0) said.push(`No number differs by more than ${tolerance}.`);
    told.textContent = said.join(' ');
    go.hidden = !worst.error && !worst.brokenCount;
  }

  function draw() {
    const { answer, state } = now;
    const { batch, head: index } = placeOf();
    const [a, b] = [found.ours[batch][index], found.theirs[batch][index]];
    const diff = difference(a, b);
    found.parts = [a, b, diff];
    const { palette, log, dark, range } = state;
    const signed = isSigned(found.name, answer.summary.options) || Math.min(a.lo, b.lo) < 0;
    const hi = !signed && rangeOf(range, answer.keys) === 'one' ? 1 : Math.max(a.hi, b.hi);
    const scale = makeScale({ lo: Math.min(a.lo, b.lo), hi, signed, log, palette, dark });
    const ofOwn = own ?? Boolean(file);
    ownBox.checked = ofOwn;
    const reach = ofOwn ? Math.max(-diff.lo, diff.hi) : Math.max(Math.abs(scale.lo), scale.hi);
    const scales = [scale, scale, makeScale({ lo: -reach, hi: reach, signed: true, log, palette, dark })];
    const across = section.clientWidth < 700 ? 1 : 3;
    const width = Math.min((section.clientWidth - (across - 1) * GAP) / across, 480);
    panes.forEach(({ figure, bar, meta }, at) => {
      const matrix = found.parts[at];
      const mask = at === 2 ? (matrix.bits ?? null) : unpaintable(matrix);
      figure.update({
        ...{ matrix, mask, masked: matrix.masked, scale: scales[at], width, most: 56, tallest: 420, colours: tools.colours() },
        rowLabels: answer.label(step().rows),
        colLabels: answer.label(step().cols),
        names: axisNames(step()),
        measure: at === 2 ? `${step().measure}, B − A` : step().measure,
        label: `${PANES[at]}, ${step().title}: ${matrix.rows} × ${matrix.cols}. Arrow keys move.`,
        picture: async (picked, part, side) => {
          const { width: wide, height, pixels } = raster({ ...matrix, mask }, picked, part, side);
          return { bitmap: await createImageBitmap(new ImageData(pixels, wide, height)), width: wide, height };
        },
      });
      bar.style.marginLeft = `${figure.box.left}px`;
      tools.drawBar(bar, { scale: scales[at], measure: figure.given.measure, plotWidth: figure.box.plotWidth, colours: tools.colours() });
      meta.replaceChildren(tools.makeRange(matrix));
    });
    mark();
  }

  // Compares the present answer. A pair that cannot be compared is said in words.
  function render(answer, state) {
    if (!kept && !file) return;
    const other = now?.answer !== answer;
    now = { answer, state };
    title.textContent = file ? `A: the service. B: ${file.name}.` : `A: ${kept.described}. B: the request now.`;
    keep.hidden = Boolean(file);
    try {
      if (file && (other || !file.pairs)) {
        file.pairs = null; // pairs of another answer must not stay if the file does not fit to this one
        file.pairs = arrays.map((one) => pairOf(answer, one));
      }
      const next = pair();
      if (other || found?.ours !== next.ours || found?.theirs !== next.theirs) {
        found = { ...next, worst: largestError(next.ours, next.theirs, next.type), parts: [] };
        tell(found);
      }
      row.hidden = false;
      draw();
    } catch (error) {
      found = null;
      told.textContent = error.message;
      row.hidden = go.hidden = true;
    }
  }

  function close() {
    opened++;
    kept = file = arrays = found = null;
    section.hidden = true;
    tools.closed();
  }

  // Compares the present answer with the first file.
  async function open(files, answer, state) {
    if (!files.length) return;
    const mine = ++opened;
    try {
      if (files.length > 1) throw new Error('Open one file. A .safetensors or JSON file can have several results.');
      const read = await readOutputs(files[0]);
      if (mine !== opened) return;
      const pairs = read.map((one) => pairOf(answer, one));
      [arrays, file, kept, own] = [read, { name: files[0].name, pairs }, null, null];
      section.hidden = false;
      now = null;
      tools.close();
      tools.show({ step: (pairs.find(({ name }) => name === state.step) ?? pairs[0]).name });
    } catch (error) {
      if (mine === opened) tools.tell(`${files[0].name}: not compared`, error.message);
    }
  }

  input.addEventListener('change', () => {
    tools.opened([...input.files]);
    input.value = '';
  });
  keep.addEventListener('click', () => tools.keep());
  stop.addEventListener('click', close);
  ownBox.addEventListener('change', () => {
    own = ownBox.checked;
    if (found) draw();
  });
  go.addEventListener('click', () => {
    const { batch, head: index, row: r, col: c } = found.worst.firstBroken ?? found.worst;
    const heads = found.ours[batch].length;
    tools.show({ step: found.name, batch, head: heads === 1 ? now.state.head : Math.floor((index * now.answer.heads) / heads) });
    const { figure } = panes[2];
    figure.reveal({ row: r, col: c });
    figure.root.focus();
    point({ row: r, col: c }, {}, figure);
  });

  return {
    render,
    close,
    open,
    // Keeps an answer as A.
    keep(answer) {
      kept = answer;
      file = arrays = own = now = null;
      opened++;
      section.hidden = false;
    },
    holds: (element) => !section.hidden && section.contains(element),
    // A copy of what is compared: {name, worst, difference}.
    shown: () => found && structuredClone({ name: found.name, worst: found.worst, difference: found.parts[2] }),
  };
}
