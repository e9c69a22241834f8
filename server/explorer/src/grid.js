// grid.js shows the weights of all heads of all layers as a grid of small maps: a row for each layer, a column for each head. A click or
// Enter opens one map large; Escape goes back. The rollout is one more map, in a row of its own.
import { raster } from './colour.js';
import { makeWith } from './dom.js';
import { wholeRange } from './geometry.js';
import { movedCell } from './keyboard.js';
import { formatNumber } from './numbers.js';

const SIDE = 64; // most pixels of a side of a small map; a pixel of a larger matrix shows the largest of several weights
const MOST_LAYERS = 48;
const MOST_HEADS = 32;
const MANY = 400; // maps; the browser paints more of them only where they are in sight
const LARGE = 640; // pixels; the greatest width of a large map
const NARROW = 200; // pixels; the least width of a large map beside the row in words
const MIXED = 'all layers: the mean over heads, plus the identity'; // the rollout, in the place of the name of a layer
const BESIDE = 300; // pixels of the row in words, with the gap before it

// Returns the place of the largest weight of a matrix.
function largestOf({ data, cols }) {
  let best = 0;
  for (let at = 1; at < data.length; at++) if (data[at] > data[best]) best = at;
  return { row: Math.floor(best / cols), col: best % cols, weight: data[best] };
}

// Makes the grid. root: its element, still empty and hidden. tools: as in layers.js.
export function createGrid(root, tools) {
  const note = makeWith('p', root, { className: 'text' });
  const table = makeWith('div', root, { className: 'maps', role: 'grid' });
  const large = makeWith('div', root, { className: 'large-map', hidden: true });
  let given = null; // what show() got
  let cells = []; // the maps, by row: {button, canvas, matrix, title, name, where}
  let at = { row: 0, col: 0 }; // the map that Tab reaches
  let opened = null; // the map that is shown large

  // ---------------------------------------------------------------- the small maps

  function makeCell(parent, matrix, title, name, where) {
    const holder = makeWith('div', parent, { role: 'gridcell' });
    const button = makeWith('button', holder, { type: 'button', className: 'map', tabIndex: -1 });
    const canvas = makeWith('canvas', button, {
      className: 'thumb',
      width: Math.min(matrix.cols, SIDE),
      height: Math.min(matrix.rows, SIDE),
    });
    canvas.setAttribute('aria-hidden', 'true');
    const { row, col, weight } = largestOf(matrix);
    const largest = formatNumber(weight, 3);
    button.ariaLabel = `${title}: the largest weight is ${largest}, from ${given.label(row)} to ${given.label(col)}`;
    const cell = { button, canvas, matrix, title, name, where };
    button.addEventListener('click', () => open(cell));
    button.addEventListener('focus', () => focusable(where));
    button.addEventListener('pointermove', (event) => {
      if (event.pointerType === 'touch') return;
      tools.showTooltip(title, [['largest', largest, true], ['from', given.label(row)], ['to', given.label(col)]], event); // prettier-ignore
    });
    button.addEventListener('pointerleave', () => tools.hideTooltip());
    return cell;
  }

  function makeRow(title, name, heads, titleOf) {
    const row = makeWith('div', table, { role: 'row' });
    makeWith('div', row, { role: 'rowheader', textContent: title, title: name });
    const number = cells.length;
    cells.push(heads.map((matrix, col) => makeCell(row, matrix, titleOf(col), name, { row: number, col })));
  }

  function makeTable(layers, heads) {
    table.replaceChildren();
    cells = [];
    table.style.setProperty('--heads', heads);
    table.dataset.many = layers.length * heads > MANY;
    const top = makeWith('div', table, { role: 'row' });
    makeWith('div', top, { role: 'columnheader', textContent: 'head' });
    for (let head = 0; head < heads; head++) makeWith('div', top, { role: 'columnheader', textContent: head });
    layers.forEach(({ name, heads: all }, layer) =>
      makeRow(`layer ${layer}`, name, all.slice(0, heads), (head) => `layer ${layer}, head ${head}`),
    );
    if (given.rollout) makeRow('rollout', MIXED, [given.rollout], () => 'rollout');
  }

  // Says what the grid shows and what it leaves out.
  function describe(layers, heads) {
    const all = Math.max(...given.layers.map((layer) => layer.heads.length));
    const { rows, cols } = layers[0].heads[0];
    const said = [
      'Each row is a layer, and each map is a head: its rows are the words that look, its columns the words that they look at.',
    ];
    if (layers.length < given.layers.length) said.push(`The first ${layers.length} of ${given.layers.length} layers are here.`);
    if (heads < all) said.push(`The first ${heads} of ${all} heads are here.`);
    if (Math.max(rows, cols) > SIDE) said.push(`A pixel shows the largest of several weights, because a map has ${rows} × ${cols}.`);
    if (given.rollout) said.push('Rollout is what all layers together take from each word: the mean over heads, plus the word itself.');
    note.textContent = said.join(' ');
  }

  function paint({ canvas, matrix }) {
    const { width, height, pixels } = raster(matrix, given.scaleOf(matrix), wholeRange(matrix), SIDE);
    canvas.getContext('2d').putImageData(new ImageData(pixels, width, height), 0, 0);
  }

  async function paintAll() {
    table.dataset.drawn = 'false';
    const mine = given;
    for (const cell of cells.flat()) tools.defer(cell.canvas, () => paint(cell));
    await tools.allDone();
    if (mine === given) table.dataset.drawn = 'true';
  }

  // Makes Tab reach one map.
  function focusable({ row, col }) {
    cells[at.row]?.[at.col]?.button.setAttribute('tabindex', -1);
    at = { row, col };
    cells[row][col].button.tabIndex = 0;
  }

  function moved({ key }) {
    const { row, col } = at;
    const last = (line) => cells[line].length - 1;
    const down = Math.min(row + 1, cells.length - 1);
    const up = Math.max(row - 1, 0);
    return {
      ArrowDown: { row: down, col: Math.min(col, last(down)) },
      ArrowUp: { row: up, col: Math.min(col, last(up)) },
      ArrowLeft: { row, col: Math.max(col - 1, 0) },
      ArrowRight: { row, col: Math.min(col + 1, last(row)) },
      Home: { row, col: 0 },
      End: { row, col: last(row) },
    }[key];
  }

  table.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = moved(event);
    if (!to) return;
    cells[to.row][to.col].button.focus();
    event.preventDefault();
    event.stopPropagation();
  });

  // ---------------------------------------------------------------- one large map

  const head = makeWith('p', large, { className: 'large-head' });
  const back = makeWith('button', head, { type: 'button', textContent: 'Back to all heads' });
  const title = makeWith('h3', head);
  const source = makeWith('small', head);
  const both = makeWith('div', large, { className: 'weigh' });
  const pane = makeWith('div', makeWith('div', both, { className: 'panes' }), { className: 'pane' });
  const figure = new tools.Figure(pane, {
    point: (cell, event) => event.pointerType !== 'touch' && point(cell, event),
    click: (cell, event) => click(cell, event),
    keydown: (event) => keydown(event),
    leave: () => point(null),
    zoom: (zoomed) => (reset.hidden = !zoomed),
  });
  const reset = makeWith('button', pane, { type: 'button', className: 'quiet reset', textContent: 'Show the whole matrix', hidden: true });
  const foot = makeWith('footer', makeWith('div', pane, { className: 'step' }));
  const bar = makeWith('canvas', foot, { className: 'colours' });
  const meta = makeWith('p', foot, { className: 'meta' });
  const menu = tools.createSaveMenu(foot, () => ({ figure, lines: null, name: fileName() }), tools.tell);
  const numbers = makeWith('div', pane, { className: 'numbers-place' });
  const explanation = makeWith('aside', both, { className: 'explanation', ariaLabel: 'The row in words' });
  let pointed = null;
  let locked = null;

  const fileName = () => `attention-${given.name}-${opened.title.replace(/\W+/g, '-')}`;

  function renderLarge() {
    const { matrix } = opened;
    const { label } = given;
    const scale = given.scaleOf(matrix);
    const room = large.clientWidth - (large.clientWidth - BESIDE >= 2 * NARROW ? BESIDE : 0);
    title.textContent = opened.title;
    source.textContent = opened.name;
    figure.update({
      matrix,
      mask: null,
      rowLabels: label,
      colLabels: label,
      names: { rows: 'query ↓', cols: 'key →' },
      measure: 'weight',
      scale,
      width: Math.min(room, LARGE),
      most: 64,
      colours: tools.colours(),
      label: `${opened.title}: ${matrix.rows} × ${matrix.cols}, ${formatNumber(matrix.lo)} to ${formatNumber(matrix.hi)}. Arrow keys move, Enter keeps a row, Escape releases it or goes back.`,
      picture: async (picked, part, side) => {
        const { width, height, pixels } = raster(matrix, picked, part, side);
        return { bitmap: await createImageBitmap(new ImageData(pixels, width, height)), width, height };
      },
    });
    meta.replaceChildren(
      makeWith('span', null, { className: 'shape', textContent: `${matrix.rows} × ${matrix.cols}` }),
      tools.makeRange(matrix),
    );
    tools.drawBar(bar, { scale, measure: 'weight', plotWidth: figure.box.plotWidth, colours: tools.colours() });
    menu.name(opened.title);
    numbers.replaceChildren(
      ...(given.numbers ? [tools.createTable({ title: opened.title, matrix, mask: null, rowLabels: label, colLabels: label })] : []),
    );
    mark();
  }

  function mark() {
    const row = locked ?? pointed?.row ?? null;
    figure.mark({ rows: pointed ? [pointed.row] : [], cols: [], cell: pointed, locked });
    const { data, cols } = opened.matrix;
    const shown = row !== null && {
      query: given.label(row),
      row: data.subarray(row * cols, (row + 1) * cols),
      mask: null,
      keyLabel: given.label,
      locked: row === locked,
    };
    tools.drawExplanation(explanation, shown || null);
  }

  function factsOf({ row, col }) {
    const { data, cols } = opened.matrix;
    const rest = data.subarray(row * cols, (row + 1) * cols);
    const rank = 1 + rest.reduce((count, other) => count + (other > rest[col]), 0);
    const entries = [['weight', formatNumber(rest[col]), true], ['rank in row', `${rank} of ${cols}`]]; // prettier-ignore
    return { title: `${given.label(row)} → ${given.label(col)}`, entries };
  }

  function point(cell, event) {
    if (!opened) return;
    if (!cell) tools.hideTooltip();
    else tools.showTooltip(factsOf(cell).title, factsOf(cell).entries, event, figure.rectOf(cell));
    if (cell?.row === pointed?.row && cell?.col === pointed?.col) return;
    pointed = cell;
    mark();
  }

  function click(cell, event) {
    locked = locked === cell.row ? null : cell.row;
    if (event?.pointerType === 'touch') point(cell, event);
    mark();
  }

  function keydown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const from = pointed ?? { row: 0, col: 0 };
    const cell = movedCell(pointed, event, opened.matrix);
    if (cell) {
      figure.reveal(cell);
      point(cell, {});
      const facts = factsOf(cell);
      tools.say(`${facts.title}: ${facts.entries.map((entry) => entry.slice(0, 2).join(' ')).join(', ')}`);
    } else if (event.key === 'Enter' || event.key === ' ') {
      click(from);
    } else if (!('+=-'.includes(event.key) && figure.zoomAt(from, event.key !== '-'))) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  function open(cell) {
    tools.hideTooltip();
    opened = cell;
    pointed = locked = null;
    table.hidden = note.hidden = true;
    large.hidden = false;
    renderLarge();
    figure.root.focus({ preventScroll: true });
    root.scrollIntoView({ block: 'nearest' });
  }

  // Shows all maps again.
  function close() {
    if (!opened) return;
    const { where } = opened;
    opened = null;
    tools.hideTooltip();
    if (figure.range) figure.unzoom();
    large.hidden = true;
    table.hidden = note.hidden = false;
    cells[where.row]?.[where.col]?.button.focus();
  }

  back.addEventListener('click', close);
  reset.addEventListener('click', () => figure.unzoom());
  large.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    tools.hideTooltip();
    if (locked === null) close();
    else click({ row: locked });
    event.preventDefault();
    event.stopPropagation();
  });
  let width = 0;
  new ResizeObserver(() => {
    if (!opened || large.clientWidth === width) return;
    width = large.clientWidth;
    renderLarge();
  }).observe(large);

  return {
    close,
    // Shows weights. what: {name, layers: [{name, heads}], rollout, label(word), scaleOf(matrix), numbers}. rollout may be null.
    show(what) {
      const before = opened?.where;
      const same = given?.layers.length === what.layers.length && given.name === what.name;
      given = what;
      const layers = given.layers.slice(0, MOST_LAYERS);
      const heads = Math.min(MOST_HEADS, Math.max(...layers.map((layer) => layer.heads.length)));
      root.hidden = false;
      table.ariaLabel = `Weights of ${given.name}: ${layers.length} layers, ${heads} heads. Arrow keys move, Enter opens a map.`;
      describe(layers, heads);
      makeTable(layers, heads);
      focusable(same && cells[at.row]?.[at.col] ? at : { row: 0, col: 0 });
      paintAll();
      if (before && cells[before.row]?.[before.col]) {
        opened = cells[before.row][before.col];
        renderLarge();
      }
    },
  };
}
