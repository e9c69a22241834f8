// flow.js draws all matrices of an answer as one would on a blackboard. Each matrix stands where its multiplication needs it: the left
// factor beside the product, and the right factor above it, perhaps in the line before, so that a row and a column meet in their cell. All
// are on one canvas; over each of them lies an element that has its marks. The owner says what is marked and what follows from a click.
import { defer } from './defer.js';
import { make, makeWith, setBox } from './dom.js';
import { elide, widthOf, wholeRange } from './geometry.js';
import { movedCell } from './keyboard.js';
import { formatNumber } from './numbers.js';
import { CanvasSurface, paintCells, PRINTED, READABLE } from './paint.js';
import { transposed } from './projections.js';
import { stepNamed } from './steps.js';
import { sourceOf } from './request.js';
import { mixedOf, stepOf } from './way.js';

const CELL = { width: 58, height: 48 }; // pixels; the largest cell
const RATIO = 1.9; // a cell is at most so many times as wide as it is high
const FEW = 8; // rows or columns; more of them become narrower, so that the other matrices keep their room
const SQUEEZE = { words: [0.75, 30], dimensions: [0.35, 18] }; // how: an exponent, and the room of the longest side in cells of a short one
const TITLE = 19; // pixels above a matrix
const INSIDE = 14; // pixels between a factor and the product
const BETWEEN = 30; // pixels between two multiplications without a word
const BANDS = 12; // pixels between two lines of multiplications
const LABEL = { longest: 84, least: 10, turned: 62 }; // pixels; the longest label, the lowest row with one, and the longest upright one
const LINE = 12; // pixels; a line of labels above columns
const LINES = 3; // most lines of them
const SQUEEZED = 0.9; // a label may be so narrow in parts of its width
const LARGEST = 1.8; // if cells of the largest size leave room, the picture is drawn so many times as large, with its text
export const NARROW = 640; // pixels; a narrower stage scrolls
const PLAIN = 6400; // cells; more are painted as a picture
const PIXELS = 256; // of the longer side of such a picture
const CANVAS = { className: 'flow-canvas', ariaHidden: 'true' };
// Sets of right factors that may stand in the line above that of their product.
const RAISED = [[], ['v'], ['W_O'], ['v', 'W_O'], ['k', 'v'], ['k', 'v', 'W_O']];
const EACH = 0.97; // a layout loses this part of its worth with each line, so one line more must make the cells larger by 3 %
const LABELLED = ['X', 'context', 'value_context', 'q']; // matrices with words beside their rows

// Returns a place of a matrix as it is drawn, or the place of what is drawn, because Kᵀ alone is turned.
const turnedOf = (id, { row, col }) => (id === 'k' ? { row: col, col: row } : { row, col });

// Returns in how many lines the labels above columns stand, so that each has the width of as many columns. 0: they must be turned.
function linesFor(widest, column) {
  const lines = Math.max(1, Math.ceil((widest * SQUEEZED) / column));
  return lines > LINES ? 0 : lines;
}

// Returns the room of so many rows or columns, in cells of a short side. kind: what one of them stands for (steps.js).
function units(count, kind) {
  const [exponent, most] = SQUEEZE[kind === 'dimension' || kind === 'gate' ? 'dimensions' : 'words'];
  return count <= FEW ? count : Math.min(FEW * (count / FEW) ** exponent, most);
}

// Returns the multiplications of an answer in their order: [{op, cells: [{id, x, y}]}]. op: what leads to them, in words. x and y: the
// column and the line of a matrix; line 0 is that of the right factors.
function blocksOf(answer, has, opOf) {
  const { projected } = answer.summary;
  const block = (op, ...cells) => ({ op, cells: cells.filter(({ id }) => has(id)) });
  const at = (id, x, y) => ({ id, x, y });
  const product = (op, left, top, result) => block(op, at(left, 0, 1), at(top, 1, 0), at(result, 1, 1));
  const blocks = [];
  if (projected) {
    for (const source of ['X', 'context', 'value_context']) {
      const names = ['Q', 'K', 'V'].filter((name) => sourceOf(name, answer.summary) === source);
      blocks.push(block('', at(source, 0, 1), ...names.flatMap((name, place) => [at(`W_${name}`, place + 1, 0), at(name, place + 1, 1)])));
    }
    blocks.findLast(({ cells }) => cells.length).breaks = true;
  }
  blocks.push(product('', 'q', 'k', 'scores'));
  for (const id of ['scaled_scores', 'masked_scores', 'gates', 'uncorrected', 'corrections']) blocks.push(block(opOf(id), at(id, 0, 1)));
  const mixed = mixedOf(has, answer.summary);
  blocks.push(mixed ? product(opOf('weights'), 'weights', 'v', mixed) : block(opOf('weights'), at('weights', 0, 1)));
  if (has('states')) blocks.push(block('', at('states', 0, 1)));
  if (has('joined')) blocks.push(product('all heads', 'joined', 'W_O', 'output'));
  else if (!mixed)
    blocks.push(block('all heads', at('W_O', 0, 0), at('output', 0, 1))); // what stands side by side is not known
  else if (mixed === 'mixed') blocks.push(block('all heads', at('output', 0, 1)));
  return blocks.filter(({ cells }) => cells.length);
}

// Returns the pixels between columns and the room of the columns.
function lengthOf(columns) {
  const total = (name) => columns.reduce((sum, one) => sum + one[name], 0);
  return { fixed: total('before'), units: total('units') };
}

const columnOf = (columns, id) => columns.findIndex(({ column }) => column.some((cell) => cell.id === id));

// Returns the sizes of a line of blocks: {columns: [{units, before, column, op}], heights: [units of line 0 and 1], upper, lengths}. before:
// the pixels before a column. op: what leads to it. upper: the pixels of the words above Kᵀ. lengths: of all that stands side by side.
function measureBand(blocks, nodes, { margin, labels, raised }) {
  const columns = [];
  const heights = [0, 0];
  const here = ({ id, y }) => y || !raised.includes(id);
  blocks.forEach(({ op, cells }, place) => {
    const last = Math.max(...cells.map(({ x }) => x));
    for (let x = 0; x <= last; x++) {
      const column = cells.filter((cell) => cell.x === x);
      if (!column.length) continue;
      const labelled = !place || (!x && column.some(({ id }) => LABELLED.includes(id)));
      const gap = Math.max(labelled ? margin + (place ? INSIDE : 0) : BETWEEN, op ? widthOf(op) + 16 : 0);
      const units = Math.max(...column.map(({ id }) => nodes.get(id).wide));
      columns.push({ units, before: x && columns.length ? INSIDE : gap, column, op: column[0] === cells[0] && op });
    }
    for (const cell of cells.filter(here)) heights[cell.y] = Math.max(heights[cell.y], nodes.get(cell.id).high);
  });
  const upper = blocks.some(({ cells }) => cells.some((cell) => cell.id === 'k' && here(cell))) ? labels : 0;
  return { columns, heights, upper, lengths: [lengthOf(columns)] };
}

// Returns the bands of lines of blocks. A raised factor stands in the lower line of the band above: Kᵀ before the other matrices there, and
// any other one after them.
function bandsOf(lines, nodes, given) {
  const bands = lines.map((line) => measureBand(line, nodes, given));
  for (const id of given.raised) {
    const at = bands.findIndex(({ columns }) => columnOf(columns, id) >= 0);
    const [above, { columns }] = bands.slice(at - 1, at + 1);
    const number = columnOf(columns, id);
    above.heights[1] = Math.max(above.heights[1], nodes.get(id).high);
    above.beside ??= [...above.columns];
    if (id === 'k') {
      above.start = columns.slice(0, number + 1);
      above.beside.unshift(...above.start, { before: BETWEEN, units: 0 });
      if (!above.heights[0]) above.upper = given.labels;
    } else above.beside.push({ ...columns[number], before: given.margin }, ...columns.slice(number + 1));
    above.lengths[1] = lengthOf(above.beside);
  }
  return bands;
}

// Returns where all matrices stand, in a room: {width, height, boxes: Map of id -> {left, top, width, height}, ops}. It tries every way to
// divide the blocks into lines, with the right factors in their own line or in the one above, and takes the one with the largest cells.
function arrange(blocks, nodes, room, margin, labels) {
  let best = null;
  for (let cut = 0; cut < 2 ** (blocks.length - 1); cut++) {
    const lines = [[]];
    blocks.forEach((block, at) => {
      lines.at(-1).push(block);
      if (at < blocks.length - 1 && cut & (1 << at)) lines.push([]);
    });
    const breaks = lines.some((line) => line.slice(0, -1).some((block) => block.breaks)) ? 0.45 : 1;
    const lineOf = (id) => lines.findIndex((line) => line.some(({ cells }) => cells.some((cell) => cell.id === id)));
    const canRise = (ids) => ids.every((id) => lineOf(id) > 0) && (ids[0] !== 'k' || lineOf('k') === lineOf('v')); // Kᵀ rises only from the line of V
    for (const raised of RAISED.filter(canRise)) {
      const bands = bandsOf(lines, nodes, { margin, labels, raised });
      const fixed = bands.reduce((sum, { heights, upper }) => sum + TITLE * (heights[0] ? 2 : 1) + upper, BANDS * (bands.length - 1));
      const all = bands.reduce((sum, { heights }) => sum + heights[0] + heights[1], 0);
      const widths = bands.flatMap(({ lengths }) => lengths.map((one) => (room.width - one.fixed - 2) / one.units));
      let width = Math.min(...widths);
      let height = room.height === Infinity ? Math.max(width / 1.6, 17) : (room.height - fixed) / all;
      width = Math.min(width, RATIO * Math.max(height, 1));
      height = Math.min(height, 1.25 * width);
      // The largest cells are the best, as long as their numbers can be read.
      const worth = Math.min(1, width / READABLE.width) * breaks * EACH ** lines.length;
      const score = Math.sqrt(width * height) * worth - raised.length * 0.001;
      if (!(width > 0 && height > 0) || score <= best?.score) continue;
      height = Math.min(height, CELL.height);
      width = Math.min(width, CELL.width, RATIO * Math.max(height, 1));
      const placed = place({ bands, raised, width, height, margin }, nodes, room);
      if (placed.widest < room.width + 1) best = { ...placed, score };
    }
  }
  return best;
}

function place({ bands, raised, width, height, margin }, nodes, room) {
  const boxes = new Map();
  const ops = [];
  let [top, bottom, end] = [0, 0, 0]; // of this band; of the lower line above it, and where that ends
  for (const { columns, heights, upper, start = [] } of bands) {
    const under = top + upper + (heights[0] ? TITLE + heights[0] * height : 0) + TITLE; // the top of the lower line
    const isRaised = ({ id, y }) => !y && raised.includes(id);
    const { fixed, units } = lengthOf(start);
    let left = start.length ? fixed + units * width + BETWEEN : 0;
    columns.forEach(({ column, units: wide, before, op }, number) => {
      const from = left;
      left += before;
      // A product moves to the right until its raised factor has the room that it needs.
      const next = columns[number + 1];
      if (next?.column.some((cell) => isRaised(cell) && cell.id !== 'k')) left = Math.max(left, end + margin - next.before - wide * width);
      for (const cell of column) {
        const [w, h] = [nodes.get(cell.id).wide * width, nodes.get(cell.id).high * height];
        boxes.set(cell.id, { left, top: cell.y ? under : (isRaised(cell) ? bottom : under - TITLE) - h, width: w, height: h });
      }
      const y = under + (nodes.get(column.at(-1).id).high * height) / 2;
      if (op) ops.push({ text: op, left: from, right: left, y, leads: from > 0 });
      left += wide * width;
    });
    end = left;
    bottom = under + heights[1] * height;
    top = bottom + BANDS;
  }
  const all = [...boxes.values()];
  const widest = Math.max(...all.map((box) => box.left + box.width)) + 2;
  const indent = Math.max(0, (room.width - widest) / 2);
  for (const one of [...all, ...ops]) one.left += indent;
  for (const op of ops) op.right += indent;
  return { width: room.width, widest, height: bottom + 2, boxes, ops, cell: width };
}

export class Flow {
  // on: {point(place, byKey), open(id, cell), picture(step, scale, mask, side), mask(step), scale(step, matrix), title(id), op(step)}
  constructor(root, on) {
    Object.assign(this, { root, on });
    const ariaLabel = 'All matrices. Arrow keys move from cell to cell, comma and full stop from matrix to matrix, Enter enlarges.';
    Object.assign(root, { role: 'group', ariaLabel });
    this.canvas = makeWith('canvas', root, CANVAS);
    this.nodes = new Map();
    this.waiting = []; // the matrices of the last painting
    this.turned = new WeakMap();
    root.addEventListener('pointermove', (event) => {
      const found = event.pointerType !== 'touch' && this.placeOf(event);
      if (found) this.on.point(found);
    });
    root.addEventListener('click', (event) => this.clicked(event));
    root.addEventListener('keydown', (event) => this.keydown(event));
    root.addEventListener('focusin', ({ target }) => target.dataset.node && this.setCurrent(target.dataset.node));
  }

  // Shows an answer in a room {width, height}. given: {answer, batch, head, colours, label(kind), printed}. printed: whether it is for a sheet
  // of paper, which has what is painted as lines and text.
  show(given, room) {
    this.given = given;
    const { answer, batch, head } = given;
    const before = this.nodes;
    this.nodes = new Map();
    const has = (id) => {
      const step = stepOf(id);
      const matrix = answer.matrix(step, batch, head);
      if (!matrix?.data) return false;
      const flipped = id === 'k' ? (this.turned.get(matrix) ?? transposed(matrix)) : matrix;
      if (id === 'k') this.turned.set(matrix, flipped);
      const old = before.get(id);
      const { rows, cols } = flipped;
      const kinds = stepNamed(step);
      const { row: down, col: across } = turnedOf(id, { row: kinds.rows, col: kinds.cols });
      const sizes = { wide: units(cols, across), high: units(rows, down) };
      const pixels = old?.matrix === flipped ? old.pixels : null;
      this.nodes.set(id, { id, step, matrix: flipped, rows, cols, ...sizes, element: old?.element, pixels });
      return true;
    };
    const blocks = blocksOf(answer, has, (id) => this.on.op(id));
    const used = new Set(blocks.flatMap(({ cells }) => cells.map(({ id }) => id)));
    for (const id of this.nodes.keys()) if (!used.has(id)) this.nodes.delete(id);
    const labels = (kind, count) => Array.from({ length: Math.min(count, 64) }, (_, at) => widthOf(given.label(kind)(at)));
    const margin = Math.min(LABEL.longest, Math.max(20, ...labels('query', answer.queries)), room.width / 5) + 8;
    const widest = Math.max(...labels('key', answer.keys));
    const tall = room.width < NARROW ? Infinity : room.height;
    const fit = (zoom) => {
      const within = (upper) => arrange(blocks, this.nodes, { width: room.width / zoom, height: tall / zoom }, margin, upper);
      this.zoom = zoom;
      this.layout = within(LINE);
      if (!this.layout) return;
      // Labels that are wider than a column stand in several lines, or are turned, if the column has room for a turned one.
      const column = this.columnOf(this.layout);
      const lines = linesFor(widest, column);
      if (lines !== 1) this.layout = within(lines * LINE || (column < LABEL.least ? 0 : Math.min(widest, LABEL.turned) + 4));
    };
    fit(1);
    if (!this.layout) return;
    const spare = Math.min(room.width / this.layout.widest, room.height / this.layout.height) - 0.005;
    if (tall !== Infinity && spare > 1) fit(Math.min(spare, LARGEST));
    const free = tall === Infinity || given.printed ? 0 : room.height / this.zoom;
    this.height = Math.max(this.layout.height, free);
    this.root.style.height = `${this.height * this.zoom}px`;
    this.down = Math.max(0, (free - this.layout.height) / 2);
    for (const [id, { element }] of before) if (!this.nodes.has(id)) element.remove();
    for (const node of this.nodes.values()) this.placeNode(node);
    this.setCurrent([this.current, 'weights', ...this.nodes.keys()].find((id) => this.nodes.has(id)));
    this.paint();
    this.mark();
  }

  columnOf = ({ cell }) => ((this.nodes.get('k')?.wide ?? 0) * cell) / this.given.answer.keys;

  placeNode(node) {
    const { id, matrix, step } = node;
    node.element ??= make('div', 'node', this.root);
    const { left, top, width, height } = this.layout.boxes.get(id);
    node.box = { left, top: top + this.down, width, height };
    node.element.dataset.node = id;
    setBox(node.element, this.zoomed(node.box));
    const range = `${formatNumber(matrix.lo, 3)} to ${formatNumber(matrix.hi, 3)}`;
    const ariaLabel = `${this.on.title(id)}: ${matrix.rows} × ${matrix.cols}, ${range}`;
    Object.assign(node.element, { role: 'application', ariaRoleDescription: 'matrix', ariaLabel });
    const size = { width: width / matrix.cols, height: height / matrix.rows };
    node.size = { ...size, gap: Math.min(size.width, size.height) >= 6 ? 1 : 0 };
    node.scale = this.on.scale(step, matrix);
    node.mask = this.on.mask(step);
    if (matrix.data.length > PLAIN) this.fetch(node);
  }

  // Returns lengths of the layout as lengths on the screen.
  zoomed = (box) => Object.fromEntries(Object.entries(box).map(([name, length]) => [name, length * this.zoom]));

  async fetch(node) {
    const look = JSON.stringify(node.scale);
    if (node.pixels?.look === look) return;
    const found = await this.on.picture(node.step, node.scale, node.mask, PIXELS);
    if (found.gone || this.nodes.get(node.id) !== node) return;
    const { bitmap, width, height } = found;
    const turned = node.id === 'k';
    const canvas = Object.assign(document.createElement('canvas'), turned ? { width: height, height: width } : { width, height });
    const context = canvas.getContext('2d');
    if (turned) context.transform(0, 1, 1, 0, 0, 0);
    context.drawImage(bitmap, 0, 0);
    node.pixels = { bitmap: canvas, width: canvas.width, height: canvas.height, look };
    this.paint();
  }

  // Paints all matrices on a new canvas, each when there is time for it, and shows the canvas when it is complete.
  paint() {
    const size = { width: this.layout.width, height: this.height };
    const canvas = makeWith('canvas', null, CANVAS);
    setBox(canvas, this.zoomed(size));
    this.root.dataset.drawn = false;
    const { colours, printed } = this.given;
    const on = new CanvasSurface(canvas, size, (printed ? 1 : window.devicePixelRatio) * this.zoom, colours.hatch);
    const nodes = [...this.nodes.values()];
    for (const node of this.waiting) defer(node, () => {}); // a painting that is not complete is given up
    this.waiting = nodes;
    for (const node of nodes) defer(node, () => this.paintNode(on, node, colours));
    defer(this, () => {
      this.paintOps(on, colours);
      this.canvas.replaceWith(canvas);
      this.canvas = canvas;
      this.root.dataset.drawn = nodes.every(({ matrix, pixels }) => matrix.data.length <= PLAIN || pixels);
    });
  }

  // printed: whether it is painted for a paper, in the light colours.
  paintNode(on, node, colours, printed = false) {
    const { box, matrix, mask, size, pixels } = node;
    const scale = printed && node.scale.signed ? { ...node.scale, table: 'light' } : node.scale;
    on.move(box.left, box.top);
    if (matrix.data.length <= PLAIN) {
      const readable = { width: 12, height: 12 };
      paintCells(on, { matrix, mask, scale, range: wholeRange(matrix), size, numbers: true, readable, fit: true });
    } else if (pixels) {
      on.hatch(0, 0, box.width, box.height);
      on.picture(pixels, [0, 0, box.width, box.height], [0, 0, box.width, box.height]);
    }
    on.move(-box.left, -box.top);
    this.paintLabels(on, node, colours);
  }

  paintOps(on, colours) {
    for (const { text, left, right, y, leads } of this.layout.ops) {
      const middle = (left + right) / 2;
      on.text(text, middle, y + this.down - 9, { colour: colours.ink, align: 'center' });
      if (leads) on.text('→', middle, y + this.down + 5, { colour: colours.ink, align: 'center' });
    }
  }

  paintLabels(on, { id, box, matrix, size }, { ink }) {
    const { label } = this.given;
    const words = id === 'v' || LABELLED.includes(id) || (id === 'weights' && !this.nodes.has('q'));
    const kind = { X: 'both', v: 'key', context: 'key', value_context: 'key' }[id] ?? 'query';
    if (words && size.height >= LABEL.least) {
      const beside = (one) => one.left < box.left && one.top < box.top + box.height && box.top < one.top + one.height;
      const ends = [...this.nodes.values()].filter((node) => beside(node.box)).map((node) => node.box.left + node.box.width);
      const room = Math.min(LABEL.longest, box.left - Math.max(0, ...ends) - 6);
      for (let row = 0; row < matrix.rows; row++)
        on.text(elide(label(kind)(row), room), box.left - 5, box.top + (row + 0.5) * size.height, { colour: ink, align: 'right' });
    }
    const above = size.width >= LABEL.least ? this.labelsAbove(id) : null;
    const widest = above ? Math.max(...above.map(widthOf)) : 0;
    const lines = linesFor(widest, size.width);
    const most = lines * size.width;
    above?.forEach((text, col) => {
      const shown = elide(text, lines ? most / SQUEEZED : LABEL.turned);
      const placed = lines ? { align: 'center', most: most - 1 } : { align: 'left', turned: true };
      const y = box.top - (lines ? 7 + (col % lines) * LINE : 4);
      on.text(shown, box.left + (col + 0.5) * size.width, y, { colour: ink, ...placed });
    });
    const higher = !above ? 9 : lines ? lines * LINE + 8 : Math.min(LABEL.turned, widest) + 14;
    const room = Math.min(box.width + INSIDE - 6, this.layout.width - box.left);
    const title = this.on.title(id);
    const short = widthOf(title) * 1.15 > room ? elide(title.split(/ =|,/)[0], room) : title; // a bold text is wider
    this.nodes.get(id).element.title = short === title ? '' : title;
    on.text(short, box.left, box.top - higher, { colour: ink, align: 'left', strong: true });
  }

  labelsAbove(id) {
    const { answer, label } = this.given;
    if (id === 'k') return Array.from({ length: answer.keys }, (_, key) => label('key')(key));
    return id === 'X' && answer.columns?.length === this.nodes.get(id).cols ? answer.columns : null;
  }

  // ---------------------------------------------------------------- pointing

  // Returns the place of an event, {id, row, col}, with the rows and columns of the step.
  placeOf(event) {
    const node = this.nodes.get(event.target.closest?.('[data-node]')?.dataset.node);
    if (!node) return null;
    const bounds = node.element.getBoundingClientRect();
    const within = (part, count) => Math.min(Math.max(Math.floor(part * count), 0), count - 1);
    const row = within((event.clientY - bounds.top) / bounds.height, node.rows);
    const col = within((event.clientX - bounds.left) / bounds.width, node.cols);
    return { id: node.id, ...turnedOf(node.id, { row, col }) };
  }

  // On a touch screen, the first tap points and the second one enlarges.
  clicked(event) {
    const found = this.placeOf(event);
    if (!found) return;
    const { id, row, col } = this.marks?.subject ?? {};
    const same = id === found.id && row === found.row && col === found.col;
    if (event.pointerType === 'touch' && !same) this.on.point(found);
    else this.on.open(found.id, found);
  }

  keydown(event) {
    const node = this.nodes.get(event.target.closest?.('[data-node]')?.dataset.node);
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const { subject } = this.marks ?? {};
    const at = subject?.id === node.id ? turnedOf(node.id, subject) : null;
    const cell = movedCell(at, event, node.matrix);
    const step = { ',': -1, '.': 1 }[event.key];
    if (cell) this.on.point({ id: node.id, ...turnedOf(node.id, cell) }, true);
    else if (step) {
      const ids = [...this.nodes.keys()];
      this.focus(ids[(ids.indexOf(node.id) + step + ids.length) % ids.length]);
    } else if (event.key === 'Enter') this.on.open(node.id, at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Makes a matrix the one that Tab leads to.
  setCurrent(id) {
    this.current = id;
    for (const node of this.nodes.values()) node.element.tabIndex = node.id === id ? 0 : -1;
  }

  focus(id) {
    this.nodes.get(id).element.focus({ preventScroll: true });
  }

  // Marks places: {subject, from: [place], to: [place]}.
  mark(marks = this.marks) {
    this.marks = marks;
    for (const { element } of this.nodes.values()) element.replaceChildren();
    if (!marks || !this.layout) return; // there is no layout without room
    const add = (className, place) => {
      const node = this.nodes.get(place.id);
      if (!node) return;
      const { row, col } = turnedOf(node.id, place);
      if (row >= node.rows || col >= node.cols || row < 0 || col < 0) return;
      const { width, height, gap } = node.size;
      const mark = make('i', className, node.element);
      const [rows, cols] = [row === undefined ? node.rows : 1, col === undefined ? node.cols : 1];
      const corner = { left: (col ?? 0) * width, top: (row ?? 0) * height };
      setBox(mark, this.zoomed({ ...corner, width: cols * width - gap, height: rows * height - gap }));
    };
    for (const one of marks.to) add('mark-next', one);
    for (const one of marks.from) {
      const { row, col } = turnedOf(one.id, one);
      add(row === undefined ? 'mark-col' : col === undefined ? 'mark-row' : 'mark-before', one);
    }
    if (marks.subject) add('mark-cell', marks.subject);
  }

  // ---------------------------------------------------------------- files

  // Returns what a file has (paint.js). printed: whether it is for a paper, in the light colours.
  async drawing(printed = false) {
    const { width, height } = this.layout;
    const colours = printed ? PRINTED : this.given.colours;
    const paint = (on) => {
      for (const node of this.nodes.values()) this.paintNode(on, node, colours, printed);
      this.paintOps(on, colours);
    };
    return { size: { width, height: height + 2 * this.down }, colours, paint };
  }
}
