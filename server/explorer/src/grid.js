// grid.js shows the weights of all heads of all layers as a grid of small maps: a row for each layer, a column for each head. The rollout is
// one more map, in a row of its own. A click or Enter opens one map large, on a stage of its own; Escape goes back. All maps can be saved as a picture.
import { makeScale, rangeOf } from './colour.js';
import { fill, makeWith } from './dom.js';
import { widthOf } from './geometry.js';
import { movedCell } from './keyboard.js';
import { measured } from './matrices.js';
import { formatNumber } from './numbers.js';
import { BAR_HEIGHT, paintBar, paintMap, PRINTED } from './paint.js';
import markup from './parts/grid.html';
import large from './parts/onelayer.html';
import { meanOf } from './rollout.js';
import { FRESH } from './state.js';

const SIDE = 64; // most pixels of a side of a small map; a pixel of a larger matrix shows the mean of several weights
const MOST_LAYERS = 48;
const MOST_HEADS = 32;
const MANY = 400; // maps; the browser paints more of them only where they are in sight
const MIXED = 'all layers: the mean over heads, plus the identity'; // the rollout, in the place of the name of a layer
const BAR = 200; // pixels; the width of the bar of colours
const SAVED = { edge: 8, top: 20, side: 64, each: 68 }; // pixels of a saved picture; each: from one map to the next

function largestOf({ data, cols }) {
  const best = data.reduce((most, weight, at) => (weight > data[most] ? at : most), 0);
  return { row: Math.floor(best / cols), col: best % cols, weight: data[best] };
}

// Makes the grid. root: its element, still empty and hidden. tools: {Stage, createSaveMenu, drawBar, colours, defer, allDone, showTooltip,
// hideTooltip, copy(button), say(text), tell(title, detail)}. on: {open(row, col, batch), close(), hide(whether)} tells what the user wants to
// see, and the owner then calls show(). The row after the last layer is that of the rollout.
export function createGrid(root, tools, on) {
  const { back, title, source, hideBox, hide, hideText, copy, note, all, table, foot, legend, large } = fill(root, markup);
  back.addEventListener('click', () => on.close());
  hide.addEventListener('change', () => on.hide(hide.checked));
  copy.addEventListener('click', () => tools.copy(copy));
  const menu = tools.createSaveMenu(foot, () => ({ figure: picture, name: `attention-${given.name}-heads` }), tools.tell);
  menu.name('the maps of all heads');
  const one = createOneLayer(large, tools, { choose: (head, batch) => on.open(opened.where.row, head, batch), close: () => on.close() });
  let given = null; // what show() got
  let cells = []; // the maps, by row: {button, canvas, matrix, title, where, line}
  let at = { row: 0, col: 0 }; // the map that Tab reaches
  let opened = null; // the map that is shown large

  const scaleOf = ({ hi, cols }) => {
    const { palette, log, dark, range } = given.look;
    const means = rangeOf(range, cols);
    return makeScale({ lo: 0, hi: means === 'one' ? 1 : hi, signed: false, log, palette, dark, means });
  };

  // ---------------------------------------------------------------- the small maps

  function makeCell(parent, matrix, title, where) {
    const holder = makeWith('div', parent, { role: 'gridcell' });
    const button = makeWith('button', holder, { type: 'button', className: 'map', tabIndex: -1 });
    const [width, height] = [matrix.cols, matrix.rows].map((count) => Math.min(count, SIDE));
    const canvas = makeWith('canvas', button, { className: 'thumb', width, height, ariaHidden: 'true' });
    const { row, col, weight } = largestOf(matrix);
    const largest = formatNumber(weight, 3);
    button.ariaLabel = `${title}: the largest weight is ${largest}, from ${given.label(row)} to ${given.label(col)}`;
    const entries = () => [['largest', largest, true], ['from', given.label(row)], ['to', given.label(col)]]; // prettier-ignore
    Object.assign(button, {
      onclick: () => on.open(where.row, where.col, given.batch),
      onfocus: () => focusable(where),
      onpointermove: (event) => event.pointerType !== 'touch' && tools.showTooltip(title, entries(), event),
      onpointerleave: () => tools.hideTooltip(),
    });
    return { button, canvas, matrix, title, where };
  }

  function makeTable(layers, heads) {
    table.replaceChildren();
    table.style.setProperty('--heads', heads);
    table.dataset.many = layers.length * heads > MANY;
    const top = makeWith('div', table, { role: 'row' });
    for (const textContent of ['head', ...Array(heads).keys()]) makeWith('div', top, { role: 'columnheader', textContent });
    const rows = layers.map(({ line, name, heads: all }) => ({ line, name, all: all.slice(0, heads) }));
    if (given.rollout) rows.push({ line: 'rollout', name: MIXED, all: [given.rollout] });
    cells = rows.map(({ line, name, all }, row) => {
      const parent = makeWith('div', table, { role: 'row' });
      makeWith('div', parent, { role: 'rowheader', textContent: line, title: name });
      const title = (col) => (name === MIXED ? line : `${line}, head ${col}`);
      return all.map((matrix, col) => ({ ...makeCell(parent, matrix, title(col), { row, col }), line }));
    });
  }

  function describe() {
    const { layers, rollout, special } = given;
    const count = Math.max(...layers.map((layer) => layer.heads.length));
    const { rows, cols } = layers[0].heads[0];
    const isRollout = opened?.name === MIXED;
    const maps = 'Each row is a layer, and each map is a head: its rows are the words that look, its columns the words that they look at.';
    const said = [
      opened ? given.note : maps,
      given.hidden && `Without ${special}, rows sum to less than 1, because the numbers stay those of the model.`,
      !opened && layers.length > MOST_LAYERS && `The first ${MOST_LAYERS} of ${layers.length} layers are here.`,
      !opened && count > MOST_HEADS && `The first ${MOST_HEADS} of ${count} heads are here.`,
      !opened && Math.max(rows, cols) > SIDE && `A pixel shows the mean of several weights, because a map has ${rows} × ${cols}.`,
      (opened ? isRollout : rollout) &&
        'Rollout is what all layers together take from each word: the mean over heads, plus the word itself.',
      isRollout && 'A number of it is a row of the last layer times a column of the rollout of the layers below.',
    ];
    note.textContent = said.filter(Boolean).join(' ');
  }

  async function paintAll() {
    table.dataset.drawn = 'false';
    const mine = cells;
    for (const cell of cells.flat()) tools.defer(cell.canvas, () => paintMap(cell.canvas, cell.matrix, scaleOf(cell.matrix)));
    await tools.allDone();
    if (mine === cells) table.dataset.drawn = 'true';
  }

  // Makes Tab reach one map.
  function focusable({ row, col }) {
    cells[at.row]?.[at.col]?.button.setAttribute('tabindex', -1);
    at = { row, col };
    cells[row][col].button.tabIndex = 0;
  }

  table.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const side = { Home: 0, End: MOST_HEADS }[event.key];
    const to = side === undefined ? movedCell(at, event, { rows: cells.length, cols: MOST_HEADS }) : { row: at.row, col: side };
    if (!to) return;
    const line = cells[to.row];
    line[Math.min(to.col, line.length - 1)].button.focus();
    event.preventDefault();
    event.stopPropagation();
  });

  // ---------------------------------------------------------------- the legend and the picture of all maps

  // Returns what the bar of colours shows. If the colours of each map end at its own largest weight, it shows parts of that.
  function barOf() {
    const [{ cols }] = given.layers[0].heads;
    const own = rangeOf(given.look.range, cols) !== 'one';
    return {
      scale: scaleOf({ hi: 1, cols }),
      measure: own ? `part of the largest ${cols > SIDE ? 'pixel' : 'weight'} of its map` : 'weight',
    };
  }

  // Resolves to what a file of all maps has (paint.js). printed: whether it is for a paper.
  async function drawing(printed) {
    await tools.allDone();
    const { edge, top, side, each } = SAVED;
    const left = edge + Math.max(...cells.map(([{ line }]) => widthOf(line))) + 8;
    const below = edge + top + cells.length * each + edge;
    const size = { width: left + Math.max(cells[0].length * each, BAR) + edge, height: below + BAR_HEIGHT + edge };
    const colours = printed ? PRINTED : tools.colours();
    function paint(on) {
      const write = (text, x, y, align) => on.text(text, x, y, { colour: colours.ink, align });
      write('head', edge, edge + top / 2, 'left');
      cells[0].forEach((_, col) => write(String(col), left + col * each + side / 2, edge + top / 2, 'center'));
      cells.forEach((line, row) => {
        const y = edge + top + row * each;
        write(line[0].line, edge, y + side / 2, 'left');
        line.forEach(({ canvas }, col) => {
          const place = [left + col * each, y, side, side];
          on.picture({ bitmap: canvas, width: canvas.width, height: canvas.height }, place, place);
        });
      });
      on.move(left, below);
      const { scale, measure } = barOf();
      paintBar(on, { scale, title: measure, width: BAR, colours });
    }
    return { size, colours, paint };
  }

  // All maps as a figure that savemenu.js saves. As numbers, they stand below each other.
  const picture = {
    get given() {
      const maps = cells.flat();
      const { rows, cols } = maps[0].matrix;
      const data = new Float64Array(maps.length * rows * cols);
      maps.forEach(({ matrix }, place) => data.set(matrix.data, place * rows * cols));
      const rowLabels = (row) => `${maps[Math.floor(row / rows)].title}, ${given.label(row % rows)}`;
      return { matrix: { rows: maps.length * rows, cols, data }, rowLabels, colLabels: given.label };
    },
    drawing,
  };

  // ---------------------------------------------------------------- what is shown

  // Returns the title, the name and the place of a map, or null if there is none.
  function named(where) {
    const { row, col } = where ?? {};
    const { layers, rollout } = given;
    if (layers[row]?.heads[col]) return { title: `${layers[row].line}, head ${col}`, name: layers[row].name, where };
    return rollout && row === layers.length && col === 0 ? { title: 'rollout', name: MIXED, where } : null;
  }

  function build() {
    const layers = given.layers.slice(0, MOST_LAYERS);
    const heads = Math.min(MOST_HEADS, Math.max(...layers.map((layer) => layer.heads.length)));
    table.ariaLabel = `Weights of ${given.name}: ${layers.length} layers, ${heads} heads. Arrow keys move, Enter opens a map.`;
    makeTable(layers, heads);
    focusable(cells[at.row]?.[at.col] ? at : { row: 0, col: 0 });
    paintAll();
    const { scale, measure } = barOf();
    tools.defer(legend, () => tools.drawBar(legend, { scale, measure, plotWidth: BAR, colours: tools.colours() }));
  }

  return {
    // Shows weights. what: {name, layers: [{name, heads}], rollout, label(word), batch, look, special, hidden, note, open, answer}. look: how
    // the page shows weights, as its state has it. special: the words that the user may hide, as a text, or ''. hidden: whether they are
    // hidden. note: what is said above a large map. open: the {row, col} of this map. answer: the Answer of its layer. Null is what is missing.
    show(what) {
      const { layers, look } = given ?? {};
      given = what;
      root.hidden = false;
      if (layers !== what.layers || JSON.stringify(look) !== JSON.stringify(what.look)) build();
      const before = opened;
      opened = named(what.open);
      const waits = large.hidden;
      for (const element of [back, title, source, copy]) element.hidden = !opened;
      all.hidden = Boolean(opened);
      large.hidden = !opened || !what.answer;
      title.textContent = opened?.title ?? '';
      source.textContent = opened?.name ?? '';
      large.dataset.hidden = what.hidden;
      hideBox.hidden = !what.special;
      hide.checked = what.hidden;
      hideText.textContent = ` hide ${what.special}`;
      describe();
      large.dataset.rollout = opened?.name === MIXED;
      if (!large.hidden) one.show(what.answer, opened.where.col, what.batch, what.look);
      if (waits && !large.hidden) {
        root.scrollIntoView({ behavior: 'instant' });
        // A browser takes the focus from what is hidden only with its next frame.
        if (document.activeElement === document.body || all.contains(document.activeElement)) one.focus();
      }
      if (Boolean(before) !== Boolean(opened)) tools.hideTooltip();
      if (before && !opened) cells[before.where.row]?.[before.where.col]?.button.focus();
    },
  };
}

// Makes the stage of one map. root: its element, still empty. tools: as in layers.js. on: {choose(head, batch), close()}.
function createOneLayer(root, { Stage, tell, say }, on) {
  let answer = null;
  let state = null;
  const view = { ...FRESH, step: 'weights' };
  let look = {};

  const parts = fill(root, large);
  const stage = new Stage(parts, {
    ...{ tell, say, head: on.choose, toggleMask() {} },
    lock: (row) => change({ row }),
    open: (name) => change(name === 'lines' ? { step: 'weights', lines: true } : { step: name, lines: false }),
    compare: (head) => change({ compare: head === state.head ? null : head, mean: false }),
    mean() {
      answer.mean ??= answer.matrices.weights.map((all) => measured(meanOf(all)));
      change({ mean: !view.mean, compare: null });
    },
  });
  for (const field of root.querySelectorAll('[id]')) field.removeAttribute('id'); // the first stage of the page has them

  // Draws the answer after a change of the view. The rollout, and weights alone, have no other steps.
  function change(what, other = false) {
    Object.assign(view, what);
    state = { ...look, ...view, ...(answer.matrices.scores ? {} : { step: 'weights' }) };
    if (other) stage.show(answer, state);
    else stage.render(state);
  }

  // The keys of the page do the same here while the focus is here.
  const keys = {
    Escape: () => (view.row === null ? on.close() : change({ row: null })),
    '[': () => on.choose(Math.max(view.head - 1, 0), view.batch),
    ']': () => on.choose(Math.min(view.head + 1, answer.heads - 1), view.batch),
    a: () => change({ step: 'flow', lines: false }),
    l: () => change({ step: 'weights', lines: !view.lines }),
  };
  root.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !answer || !(event.key in keys)) return;
    if (event.key !== 'Escape' && !document.getElementById('shortcuts-on').checked) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });

  return {
    // Shows an answer. given: how the page shows weights, as its state has it.
    show(shown, head, batch, given) {
      const other = shown !== answer;
      answer = shown;
      look = given;
      if (other) Object.assign(view, { row: view.row < answer.queries ? view.row : null, mean: false, compare: null });
      change({ head, batch, mean: view.mean && head === view.head, compare: head === view.compare ? null : view.compare }, other);
    },
    focus: () => (state.step === 'flow' || state.lines ? parts.nav.firstChild : stage.panes[0].figure.root).focus({ preventScroll: true }),
  };
}
