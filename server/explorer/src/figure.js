// figure.js has the heat map of one matrix: a canvas, and over it the marks of cells. It can be zoomed. It tells its owner which cell the
// pointer is on and which keys are pressed; the owner decides what follows.
import { layOut, wholeRange } from './geometry.js';
import { BAR_HEIGHT, barWidth, CanvasSurface, cellSize, paintBar, paintFigure, SVGSurface } from './paint.js';
import { defer } from './defer.js';
import { make } from './dom.js';
import { holding, listenToDrag, scaled, within } from './zoom.js';

const MOST_CELLS = 6400; // the worker draws a picture of a larger matrix
const MOST_PIXELS = 512; // pixels of the longer side of this picture
const FEW_CELLS = 400; // a matrix of at most so many cells needs no zoom
const EDGE = 8; // pixels of paper around a saved figure, and above its bar of colours
// The colours of a figure for a paper.
export const PRINTED = { ink: '#000000', paper: '#ffffff', hatch: '#8d8a84' };

export class Figure {
  // on: the functions that the owner gives: {point(cell|null, event), click(cell, event), keydown(event), leave(), zoom(zoomed)}; cell is
  // {row, col}.
  constructor(parent, on) {
    this.on = on;
    this.root = make('div', 'figure', parent);
    this.root.tabIndex = 0;
    this.root.setAttribute('role', 'application');
    this.root.setAttribute('aria-roledescription', 'heat map');
    this.canvas = make('canvas', 'figure-canvas', this.root);
    this.canvas.setAttribute('aria-hidden', 'true');
    this.over = make('div', 'figure-over', this.root);
    this.marks = { rows: [], cols: [], cell: null };
    this.serial = 0;
    this.listen();
  }

  listen() {
    const { root, on } = this;
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
    if (before?.rows !== matrix.rows || before?.cols !== matrix.cols) {
      this.range = wholeRange(matrix);
      this.pixels = null;
    }
    const box = layOut({ ...matrix, ...given });
    this.box = box;
    this.root.setAttribute('aria-label', given.label);
    this.root.dataset.masked = given.masked ?? matrix.masked;
    for (const [one, { left = 0, top = 0, width, height }] of [
      [this.root, box],
      [this.canvas, box],
      [this.over, { left: box.left, top: box.top, width: box.plotWidth, height: box.plotHeight }],
    ]) {
      if (one === this.over) Object.assign(one.style, { left: `${left}px`, top: `${top}px` });
      Object.assign(one.style, { width: `${width}px`, height: `${height}px` });
    }
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
    const pixels = await picture(scale, part, MOST_PIXELS);
    if (serial !== this.serial || pixels.gone) return;
    this.pixels = { ...pixels, part };
    defer(this, () => this.paint(true));
  }

  // latest: whether no newer picture will follow.
  paint(latest) {
    const surface = new CanvasSurface(this.canvas, this.box, window.devicePixelRatio, this.given.colours.hatch);
    paintFigure(surface, this.shown());
    this.root.dataset.drawn = latest;
  }

  // Returns the settings that the painter takes.
  shown() {
    const { box, range, pixels, given } = this;
    return { ...given, box, range, pixels, size: this.size() };
  }

  zoomable() {
    const { matrix } = this.given ?? {};
    return matrix !== undefined && matrix.rows * matrix.cols > FEW_CELLS;
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

  // Moves the range that is shown as far as needed to show a cell.
  reveal(cell) {
    const range = holding(this.range, cell);
    if (range.row0 !== this.range.row0 || range.col0 !== this.range.col0) this.zoom(range);
  }

  size() {
    return cellSize(this.box, this.range);
  }

  cellAt({ clientX, clientY }) {
    if (!this.box) return null;
    const bounds = this.over.getBoundingClientRect();
    const { width, height } = this.size();
    const col = this.range.col0 + Math.floor((clientX - bounds.left) / width);
    const row = this.range.row0 + Math.floor((clientY - bounds.top) / height);
    const inside = row >= this.range.row0 && row < this.range.row1 && col >= this.range.col0 && col < this.range.col1;
    return inside ? { row, col } : null;
  }

  // Returns the rectangle of a cell on the screen.
  rectOf({ row, col }) {
    const bounds = this.over.getBoundingClientRect();
    const { width, height } = this.size();
    const { row0, col0 } = this.range;
    const [left, top] = [bounds.left + (col - col0) * width, bounds.top + (row - row0) * height];
    return { left, top, right: left + width, bottom: top + height };
  }

  // Outlines rows, columns and cells: {rows: [], cols: [], cell: {row, col} | null, subject: {row, col} | null, locked: row | null}. cell:
  // the one that the pointer is on. subject: the one whose arithmetic is shown.
  mark(marks) {
    this.marks = marks;
    if (!this.box) return;
    const { width, height, gap } = this.size();
    const { row0, row1, col0, col1 } = this.range;
    this.over.replaceChildren();
    const add = (className, row, col, rows, cols) => {
      const mark = make('i', className, this.over);
      Object.assign(mark.style, { left: `${(col - col0) * width}px`, top: `${(row - row0) * height}px` });
      Object.assign(mark.style, { width: `${cols * width - gap}px`, height: `${rows * height - gap}px` });
    };
    for (const row of marks.rows) if (row >= row0 && row < row1) add('mark-band', row, col0, 1, col1 - col0);
    for (const col of marks.cols) if (col >= col0 && col < col1) add('mark-band', row0, col, row1 - row0, 1);
    if (marks.locked !== null && marks.locked >= row0 && marks.locked < row1) add('mark-locked', marks.locked, col0, 1, col1 - col0);
    const outline = (className, cell) => {
      if (cell && cell.row >= row0 && cell.row < row1 && cell.col >= col0 && cell.col < col1) add(className, cell.row, cell.col, 1, 1);
    };
    if (!marks.cell) outline('mark-subject', marks.subject);
    outline('mark-cell', marks.cell);
  }

  // Returns the size of a file with the figure and its bar of colours.
  fileSize() {
    const { box } = this;
    return { width: Math.max(box.width, box.left + barWidth(box.plotWidth)) + 2 * EDGE, height: box.height + 3 * EDGE + BAR_HEIGHT };
  }

  // Paints the figure and its bar of colours on the surface of a file.
  paintFile(surface, { width, height }, shown) {
    const { box, measure, colours, scale } = shown;
    surface.ground(width, height, colours.paper);
    surface.move(EDGE, EDGE);
    surface.move(box.left, box.height + EDGE);
    paintBar(surface, { scale, title: measure, width: barWidth(box.plotWidth), colours });
    surface.move(-box.left, -box.height - EDGE);
    paintFigure(surface, shown);
  }

  // Returns the figure on a new canvas for a file.
  async toCanvas(ratio = 2) {
    await this.drawn;
    const canvas = document.createElement('canvas');
    const size = this.fileSize();
    this.paintFile(new CanvasSurface(canvas, size, ratio, this.given.colours.hatch), size, this.shown());
    return canvas;
  }

  // Returns the figure as the text of an SVG file. Many cells are one picture in it. printed: whether the figure is for a paper: black on
  // white in the light colours, whatever the theme of the page is.
  async toSVG(printed = false) {
    await this.drawn;
    const size = this.fileSize();
    const shown = this.shown();
    if (printed) {
      const scale = { ...shown.scale, table: shown.scale.table.replace('dark', 'light') };
      const pixels = shown.pixels && { ...(await shown.picture(scale, shown.pixels.part, MOST_PIXELS)), part: shown.pixels.part };
      Object.assign(shown, { scale, pixels, colours: PRINTED });
    }
    const surface = new SVGSurface(size, shown.colours.hatch);
    this.paintFile(surface, size, shown);
    return surface.toString();
  }
}
