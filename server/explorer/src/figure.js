// figure.js has the heat map of one matrix: a canvas, and over it the marks of cells. It can be zoomed. It tells its owner which cell the
// pointer is on and which keys are pressed; the owner decides what follows.
import { layOut, wholeRange } from './geometry.js';
import { BAR_HEIGHT, barWidth, CanvasSurface, cellSize, paintBar, paintFigure, PRINTED } from './paint.js';
import { defer } from './defer.js';
import { make, makeWith, setBox } from './dom.js';
import { hideTooltip } from './tooltip.js';
import { holding, listenToDrag, scaled, within } from './zoom.js';

const MOST_CELLS = 6400; // the worker draws a picture of a larger matrix
const FEW_CELLS = 400; // a matrix of at most so many cells needs no zoom
const EDGE = 8; // pixels of paper around a saved figure, and above its bar of colours

export class Figure {
  // on: the functions that the owner gives: {point(cell|null, event), click(cell, event), keydown(event), leave(), zoom(zoomed), scaled()}; cell is
  // {row, col}. scaled() is called when a picture has colours of its own.
  constructor(parent, on) {
    this.on = on;
    this.root = make('div', 'figure', parent);
    Object.assign(this.root, { tabIndex: 0, role: 'application', ariaRoleDescription: 'heat map' });
    this.canvas = makeWith('canvas', this.root, { className: 'figure-canvas', ariaHidden: true });
    this.over = make('div', 'figure-over', this.root);
    this.marks = { rows: [], cols: [], cell: null };
    this.serial = 0;
    const { root } = this;
    listenToDrag(root, () => (this.zoomable() ? { bounds: this.over.getBoundingClientRect(), range: this.range } : null), {
      click: (event) => this.cellAt(event) && on.click(this.cellAt(event), event),
      begin: () => on.point(null, {}),
      drag: (range) => this.zoom(range),
      reset: () => this.unzoom(),
    });
    root.addEventListener('pointermove', (event) => on.point(this.cellAt(event), event));
    root.addEventListener('pointerleave', (event) => on.point(null, event));
    root.addEventListener('keydown', (event) => on.keydown(event));
    root.addEventListener('blur', () => on.leave());
  }

  // Shows a matrix. given: {matrix, shades, mask, rowLabels, colLabels, names, measure, scale, width, most, tallest, label, colours: {ink,
  // paper, hatch}, picture(scale, part, side)}. names: the names of the axes. measure: what a number is, for the bar of colours.
  update(given) {
    const { matrix } = given;
    const before = this.given?.matrix;
    this.given = given;
    const box = layOut({ ...matrix, ...given });
    this.box = box;
    // The numbers beside the pointer are those of the matrix before.
    if (before && before !== matrix && this.root.matches(':hover, :focus')) hideTooltip();
    if (before?.rows !== matrix.rows || before?.cols !== matrix.cols) {
      this.range = wholeRange(matrix);
      this.pixels = null;
      this.on.zoom(false);
    }
    this.root.ariaLabel = given.label;
    this.root.dataset.masked = given.masked ?? matrix.masked;
    for (const one of [this.root, this.canvas]) setBox(one, { width: box.width, height: box.height });
    setBox(this.over, { left: box.left, top: box.top, width: box.plotWidth, height: box.plotHeight });
    this.drawn = this.redraw();
  }

  // Paints the cells. If there are many, it paints the last picture again, and then the new one when the worker has sent it.
  async redraw() {
    const serial = ++this.serial;
    const { matrix, scale, picture } = this.given;
    const part = this.range;
    const many = matrix.rows * matrix.cols > MOST_CELLS;
    this.root.dataset.drawn = false;
    if (!many || this.pixels) defer(this, () => this.paint(!many));
    this.mark(this.marks);
    if (!many) return;
    const pixels = await picture(scale, part, this.side());
    if (serial !== this.serial || pixels.gone) return;
    this.pixels = { ...pixels, part };
    defer(this, () => this.paint(true));
    this.on.scaled?.();
  }

  // Returns the pixels that the picture of a large matrix has on the screen.
  side() {
    const on = (length) => Math.ceil(length * window.devicePixelRatio);
    return { width: on(this.box.plotWidth), height: on(this.box.plotHeight) };
  }

  // Returns what the bar of colours shows: the scale, and what a number is.
  legend() {
    const { given, pixels } = this;
    return { scale: pixels?.scale ?? given.scale, measure: pixels?.reduced ? `mean ${given.measure} in a pixel` : given.measure };
  }

  // latest: whether no newer picture will follow.
  paint(latest) {
    const surface = new CanvasSurface(this.canvas, this.box, window.devicePixelRatio, this.given.colours.hatch);
    paintFigure(surface, this.shown());
    this.root.dataset.drawn = latest;
  }

  shown() {
    const { box, range, pixels, given } = this;
    return { ...given, ...this.legend(), box, range, pixels, size: cellSize(box, range) };
  }

  zoomable() {
    return this.given?.matrix.data.length > FEW_CELLS;
  }

  // Shows the cells of a range. A range that is larger than the matrix shows all of it.
  zoom(range) {
    const { matrix } = this.given;
    this.range = within(range, matrix);
    const { row0, row1, col0, col1 } = this.range;
    this.on.zoom(row1 - row0 < matrix.rows || col1 - col0 < matrix.cols);
    this.drawn = this.redraw();
  }

  unzoom() {
    this.zoom(wholeRange(this.given.matrix));
  }

  // Zooms in or out by a factor of two around a cell. Returns false if the matrix is too small for zoom.
  zoomAt(cell, closer) {
    if (!this.zoomable()) return false;
    this.zoom(scaled(this.range, cell, closer, this.given.matrix));
    return true;
  }

  reveal(cell) {
    const range = holding(this.range, cell);
    if (range.row0 !== this.range.row0 || range.col0 !== this.range.col0) this.zoom(range);
  }

  cellAt({ clientX, clientY }) {
    if (!this.box) return null;
    const bounds = this.over.getBoundingClientRect();
    const { width, height } = cellSize(this.box, this.range);
    const col = this.range.col0 + Math.floor((clientX - bounds.left) / width);
    const row = this.range.row0 + Math.floor((clientY - bounds.top) / height);
    const inside = row >= this.range.row0 && row < this.range.row1 && col >= this.range.col0 && col < this.range.col1;
    return inside ? { row, col } : null;
  }

  rectOf({ row, col }) {
    const bounds = this.over.getBoundingClientRect();
    const { width, height } = cellSize(this.box, this.range);
    const { row0, col0 } = this.range;
    const [left, top] = [bounds.left + (col - col0) * width, bounds.top + (row - row0) * height];
    return { left, top, right: left + width, bottom: top + height };
  }

  // Outlines rows, columns and cells: {rows: [], cols: [], cell: {row, col} | null, subject: {row, col} | null, locked: row | null}. cell:
  // the one that the pointer is on. subject: the one whose arithmetic is shown.
  mark(marks) {
    this.marks = marks;
    if (!this.box) return;
    const { width, height, gap } = cellSize(this.box, this.range);
    const { row0, row1, col0, col1 } = this.range;
    this.over.replaceChildren();
    // Marks a cell in sight. Without a column it is the whole row, and without a row the whole column.
    const add = (className, { row = row0, col = col0, rows = 1, cols = 1 }) => {
      if (row < row0 || row >= row1 || col < col0 || col >= col1) return;
      const place = { left: (col - col0) * width, top: (row - row0) * height };
      setBox(make('i', className, this.over), { ...place, width: cols * width - gap, height: rows * height - gap });
    };
    for (const row of marks.rows) add('mark-band', { row, cols: col1 - col0 });
    for (const col of marks.cols) add('mark-band', { col, rows: row1 - row0 });
    if (marks.locked !== null) add('mark-locked', { row: marks.locked, cols: col1 - col0 });
    if (marks.cell) add('mark-cell', marks.cell);
    else if (marks.subject) add('mark-subject', marks.subject);
  }

  // Returns what a file has: the figure and its bar of colours (paint.js). printed: whether it is for a paper.
  async drawing(printed = false) {
    await this.drawn;
    const shown = this.shown();
    const { box, measure } = shown;
    if (printed) {
      const scale = { ...shown.scale, table: shown.scale.table.replace('dark', 'light') };
      const pixels = shown.pixels && { ...(await shown.picture(scale, shown.pixels.part, this.side())), part: shown.pixels.part };
      Object.assign(shown, { scale, pixels, colours: PRINTED });
    }
    const width = barWidth(box.plotWidth);
    const size = { width: Math.max(box.width, box.left + width) + 2 * EDGE, height: box.height + 3 * EDGE + BAR_HEIGHT };
    const paint = (surface) => {
      surface.move(EDGE, EDGE);
      surface.move(box.left, box.height + EDGE);
      paintBar(surface, { scale: shown.scale, title: measure, width, colours: shown.colours });
      surface.move(-box.left, -box.height - EDGE);
      paintFigure(surface, shown);
    };
    return { size, colours: shown.colours, paint };
  }
}
