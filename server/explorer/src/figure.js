// A heat map of one matrix: a canvas that is there at once, plotly.js over it when it has come, and over both what is pointed at.
// It tells its owner which cell the pointer or the keyboard is on; what else that concerns is the owner's business.
import { position, textOn, css } from './colour.js';
import { axes, FONT, layOut, whole } from './geometry.js';
import { show } from './numbers.js';
import { cells, draw, layout } from './plotly.js';

const MOST_CELLS = 6400; // more are drawn by the worker, as a picture
const MOST_PIXELS = 512; // of a side of such a picture
const READABLE = { width: 38, height: 22 }; // a cell that has room for its number
const CLICK = 5; // pixels that a pointer may move in a click

function element(name, className, parent) {
  const made = document.createElement(name);
  made.className = className;
  parent.append(made);
  return made;
}

export class Figure {
  // on: {point(cell|null, event), click(cell, event), key(event), leave(), zoom(zoomed)}; cell is {row, col}.
  constructor(parent, on) {
    this.on = on;
    this.root = element('div', 'figure', parent);
    this.root.tabIndex = 0;
    this.root.setAttribute('role', 'application');
    this.root.setAttribute('aria-roledescription', 'heat map');
    this.canvas = element('canvas', 'figure-canvas', this.root);
    this.canvas.setAttribute('aria-hidden', 'true');
    this.plot = element('div', 'figure-plot', this.root);
    this.plot.setAttribute('aria-hidden', 'true');
    this.numbers = element('canvas', 'figure-numbers', this.root);
    this.numbers.setAttribute('aria-hidden', 'true');
    this.over = element('div', 'figure-over', this.root);
    this.marks = { rows: [], cols: [], cell: null };
    this.live = false; // plotly.js shows what is to be shown
    this.serial = 0;
    this.near = false; // in sight, or nearly: the rest has time
    new IntersectionObserver(([entry]) => (this.near = entry.isIntersecting), { rootMargin: '200px' }).observe(this.root);
    this.listen();
  }

  listen() {
    const { root } = this;
    let down = null;
    root.addEventListener('pointermove', (event) => this.on.point(this.cellAt(event), event));
    root.addEventListener('pointerleave', (event) => this.on.point(null, event));
    root.addEventListener('pointerdown', (event) => (down = event.button === 0 ? event : null), true);
    window.addEventListener('pointerup', (event) => {
      const still = down && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < CLICK;
      const cell = still && this.cellAt(event);
      down = null;
      if (cell) this.on.click(cell, event);
    });
    root.addEventListener('keydown', (event) => this.on.key(event));
    root.addEventListener('blur', () => this.on.leave());
  }

  // given: {matrix, mask, rowLabels, colLabels, scale, width, most, label, colours: {ink, paper, hatch}, picture(scale, part, side)}
  update(given) {
    const before = this.given;
    const sameSize = before && before.matrix.rows === given.matrix.rows && before.matrix.cols === given.matrix.cols;
    this.given = given;
    if (!sameSize) this.range = whole(given.matrix);
    const box = layOut({ ...given.matrix, ...given });
    if (!this.box || ['left', 'top', 'width', 'height'].some((side) => box[side] !== this.box[side])) this.stale();
    this.box = box;
    this.big = given.matrix.rows * given.matrix.cols > MOST_CELLS;
    this.root.setAttribute('aria-label', given.label);
    this.root.dataset.masked = given.masked ?? given.matrix.masked;
    for (const [side, value] of [
      ['width', box.width],
      ['height', box.height],
    ]) {
      this.root.style[side] = `${value}px`;
    }
    Object.assign(this.over.style, { left: `${box.left}px`, top: `${box.top}px` });
    Object.assign(this.over.style, { width: `${box.plotWidth}px`, height: `${box.plotHeight}px` });
    this.redraw();
  }

  stale() {
    this.live = false;
    this.plot.classList.remove('live');
  }

  async redraw() {
    const serial = ++this.serial;
    let drawn = null;
    if (this.big) {
      const part = this.range;
      const { pixels } = this;
      if (pixels) this.paint(pixels);
      drawn = await this.given.picture(this.given.scale, part, MOST_PIXELS);
      if (serial !== this.serial || drawn.gone) return;
      this.pixels = drawn;
      drawn.part = part;
    } else {
      this.pixels = null;
    }
    if (!this.near) this.stale();
    this.paint(drawn);
    this.mark(this.marks);
    draw(this.plot, {
      near: () => this.near,
      make: () => this.plotted(),
      done: () => {
        if (serial !== this.serial) return;
        this.live = true;
        this.plot.classList.add('live');
        this.paint(drawn);
        this.hear();
      },
    });
  }

  // A picture stays on the canvas: plotly.js then has the axes and the zoom alone.
  plotted() {
    const { given, box, range } = this;
    const zoomable = given.matrix.rows * given.matrix.cols > 400 && matchMedia('(hover: hover)').matches;
    const traces = this.big ? [] : [cells({ ...given, gap: this.gap() })];
    const shape = layout({ box, range, axes: axes(box, range, given.rowLabels, given.colLabels), ink: given.colours.ink, zoomable });
    return { traces, layout: shape };
  }

  // The zoom of plotly.js, to whole cells.
  hear() {
    if (this.heard) return;
    this.heard = true;
    this.plot.on('plotly_relayout', (change) => {
      if (!('xaxis.range[0]' in change || 'yaxis.range[0]' in change)) return;
      const { xaxis, yaxis } = this.plot.layout;
      const { rows, cols } = this.given.matrix;
      const [top, bottom] = [...yaxis.range].sort((a, b) => a - b);
      const [left, right] = [...xaxis.range].sort((a, b) => a - b);
      const from = (x, last) => Math.min(Math.max(0, Math.floor(x + 0.5)), last - 1);
      const range = { row0: from(top, rows), row1: Math.min(rows, Math.ceil(bottom + 0.5)) };
      Object.assign(range, { col0: from(left, cols), col1: Math.min(cols, Math.ceil(right + 0.5)) });
      this.zoom(range);
    });
    this.plot.on('plotly_doubleclick', () => this.zoom(whole(this.given.matrix)));
  }

  zoom(range) {
    this.range = range;
    const { row0, row1, col0, col1 } = range;
    const { rows, cols } = this.given.matrix;
    const zoomed = row1 - row0 < rows || col1 - col0 < cols;
    this.root.classList.toggle('zoomed', zoomed);
    this.on.zoom?.(zoomed);
    this.redraw();
  }

  unzoom() {
    this.zoom(whole(this.given.matrix));
  }

  size() {
    const { range, box } = this;
    return { width: box.plotWidth / (range.col1 - range.col0), height: box.plotHeight / (range.row1 - range.row0) };
  }

  gap() {
    const { width, height } = this.size();
    return Math.min(width, height) >= 6 ? 1 : 0;
  }

  numbersFit() {
    const { width, height } = this.size();
    return width >= READABLE.width && height >= READABLE.height;
  }

  masked(at) {
    return this.given.mask?.[at] === 1 || this.given.matrix.data[at] === -Infinity;
  }

  // The canvas: cells and hatching, below plotly.js; labels only as long as plotly.js does not write them. Numbers lie above both.
  paint(drawn) {
    const { box, numbers, canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    for (const one of [canvas, numbers]) Object.assign(one.style, { width: `${box.width}px`, height: `${box.height}px` });
    this.paintOn(canvas, ratio, (context) => {
      if (drawn) this.paintPicture(context, drawn);
      else if (!this.big) this.paintCells(context);
    });
    if (!this.live) this.paintLabels(canvas.getContext('2d'));
    numbers.hidden = this.big || !this.numbersFit();
    if (!numbers.hidden) this.paintOn(numbers, ratio, (context) => this.paintNumbers(context));
  }

  // A canvas of the figure's size; does(context) draws from the corner of the first cell on.
  paintOn(canvas, ratio, does) {
    const { box } = this;
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.font = FONT;
    context.save();
    context.translate(box.left, box.top);
    does(context);
    context.restore();
    return context;
  }

  paintPicture(context, { bitmap, part }) {
    const { box, range } = this;
    this.hatch(context, 0, 0, box.plotWidth, box.plotHeight);
    const { width, height } = this.size();
    context.imageSmoothingEnabled = false;
    context.beginPath();
    context.rect(0, 0, box.plotWidth, box.plotHeight);
    context.clip();
    const [x, y] = [(part.col0 - range.col0) * width, (part.row0 - range.row0) * height];
    context.drawImage(bitmap, x, y, (part.col1 - part.col0) * width, (part.row1 - part.row0) * height);
  }

  // does(at, place) for each cell in sight; place is [x, y, width, height].
  eachCell(does) {
    const { cols } = this.given.matrix;
    const { row0, row1, col0, col1 } = this.range;
    const { width, height } = this.size();
    const gap = this.gap();
    for (let row = row0; row < row1; row++) {
      for (let col = col0; col < col1; col++) {
        does(row * cols + col, [(col - col0) * width, (row - row0) * height, width - gap, height - gap]);
      }
    }
  }

  paintCells(context) {
    const { matrix, scale } = this.given;
    this.eachCell((at, place) => {
      if (this.masked(at)) return this.hatch(context, ...place);
      context.fillStyle = css(scale.table, position(scale, matrix.data[at]));
      context.fillRect(...place);
    });
  }

  paintNumbers(context) {
    const { matrix, scale } = this.given;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    this.eachCell((at, [x, y, width, height]) => {
      if (this.masked(at)) return;
      context.fillStyle = textOn(scale.table, position(scale, matrix.data[at]));
      context.fillText(show(matrix.data[at], 3), x + width / 2, y + height / 2 + 1, width - 4);
    });
  }

  hatch(context, x, y, width, height) {
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.strokeStyle = this.given.colours.hatch;
    context.lineWidth = 1;
    context.beginPath();
    const first = Math.floor((x - y - height) / 5) * 5;
    for (let at = first; at < x + width - y + 5; at += 5) {
      context.moveTo(at + y, y);
      context.lineTo(at + y + height, y + height);
    }
    context.stroke();
    context.restore();
  }

  paintLabels(context) {
    const { box, range, given } = this;
    const { width, height } = this.size();
    const { rows, cols } = axes(box, range, given.rowLabels, given.colLabels);
    context.fillStyle = given.colours.ink;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (const { at, text } of rows) context.fillText(text, box.left - 5, box.top + (at - range.row0 + 0.5) * height + 1);
    context.textAlign = box.across ? 'left' : 'center';
    for (const { at, text } of cols) {
      context.save();
      context.translate(box.left + (at - range.col0 + 0.5) * width, box.top - (box.across ? 5 : 8));
      if (box.across) context.rotate(-Math.PI / 2);
      context.fillText(text, 0, 0);
      context.restore();
    }
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

  // Where a cell ends on the screen, as an event of the pointer would say it.
  placeOf({ row, col }) {
    const bounds = this.over.getBoundingClientRect();
    const { width, height } = this.size();
    const { row0, col0 } = this.range;
    return { clientX: bounds.left + (col + 1 - col0) * width, clientY: bounds.top + (row + 1 - row0) * height };
  }

  // Outlines rows, columns and one cell: {rows: [], cols: [], cell: {row, col} | null, locked: row | null}.
  mark(marks) {
    this.marks = marks;
    if (!this.box) return;
    const { width, height } = this.size();
    const { row0, row1, col0, col1 } = this.range;
    this.over.replaceChildren();
    const add = (className, row, col, rows, cols) => {
      const mark = element('i', className, this.over);
      Object.assign(mark.style, { left: `${(col - col0) * width}px`, top: `${(row - row0) * height}px` });
      Object.assign(mark.style, { width: `${cols * width - this.gap()}px`, height: `${rows * height - this.gap()}px` });
    };
    for (const row of marks.rows) if (row >= row0 && row < row1) add('mark-band', row, col0, 1, col1 - col0);
    for (const col of marks.cols) if (col >= col0 && col < col1) add('mark-band', row0, col, row1 - row0, 1);
    if (marks.locked !== null && marks.locked >= row0 && marks.locked < row1) add('mark-locked', marks.locked, col0, 1, col1 - col0);
    const { cell } = marks;
    if (cell && cell.row >= row0 && cell.row < row1 && cell.col >= col0 && cell.col < col1) add('mark-cell', cell.row, cell.col, 1, 1);
  }

  // A canvas of its own for a file: on paper, with labels and hatching.
  picture(ratio = 2) {
    const inner = document.createElement('canvas');
    const drawn = this.paintOn(inner, ratio, (context) => {
      if (this.pixels) return this.paintPicture(context, this.pixels);
      this.paintCells(context);
      if (this.numbersFit()) this.paintNumbers(context);
    });
    this.paintLabels(drawn);
    const canvas = document.createElement('canvas');
    const edge = 8 * ratio;
    canvas.width = inner.width + 2 * edge;
    canvas.height = inner.height + 2 * edge;
    const context = canvas.getContext('2d');
    context.fillStyle = this.given.colours.paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(inner, edge, edge);
    return canvas;
  }
}
