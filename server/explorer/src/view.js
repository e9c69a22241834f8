// view.js shows the steps on the page. It makes their articles once, fills them with an answer, and marks the cell that the pointer is on
// in all of them. main.js tells it what to show (an Answer and the state), and it tells main.js what the user does. It sends no request.
import { arithmetic } from './arithmetic.js';
import { ArithmeticPanel } from './arithmeticpanel.js';
import { drawBars, barsWidth } from './bars.js';
import { makeScale, rangeOf, raster } from './colour.js';
import { make } from './dom.js';
import { createSaveMenu } from './savemenu.js';
import { factsOf, meaningOf } from './facts.js';
import { Figure } from './figure.js';
import { Film } from './film.js';
import { share } from './geometry.js';
import { Heads } from './heads.js';
import { drawBar, makeRange } from './legend.js';
import { movedCell } from './keyboard.js';
import { createLines } from './lines.js';
import { createTable, formatNumber } from './numbers.js';
import { drawExplanation } from './explanation.js';
import { defer } from './defer.js';
import { axisNames, formulaOf, GROUPS, isSigned, STEPS, textOf, titleOf } from './steps.js';
import { colours } from './theme.js';
import { drawThumb } from './thumbs.js';
import { hideTooltip, showTooltip } from './tooltip.js';
import { Words } from './words.js';

const GAP = 36; // pixels between the figures of a row, as in steps.css
const AROUND = 150; // pixels; the height of the title, the labels and the bar of colours of a figure
const TALLEST = { least: 200, most: 620 }; // pixels; the height of the cells of a figure
const PAPER = 660; // pixels; a little less than the width of A4 without the margins of print.css
const ENTROPY = 'entropy, nats';
const HATCHED = ['weights', 'uncorrected', 'corrections']; // in these steps, forbidden cells are hatched

// Draws a picture of a matrix in the page itself, because a browser that prints does not wait for the worker.
async function drawnNow(matrix, scale, part, side) {
  const { width, height, pixels } = raster(matrix, scale, part, side);
  const bitmap = Object.assign(document.createElement('canvas'), { width, height });
  bitmap.getContext('2d').putImageData(new ImageData(pixels, width, height), 0, 0);
  return { bitmap, width, height };
}

const largestOf = (row) => row.reduce((most, weight) => Math.max(most, Math.abs(weight)), 0) || 1;

export class View {
  // elements: the places of the words, of the small pictures of steps (film), of the heads, of the steps (root), of the lines, of the
  // explanation and of the arithmetic.
  // act: the functions that view.js calls: {lock(row|null), open(step), head(h, batch), compare(h, batch), mean(), toggleMask(row, col),
  // tell(title, detail), say(text), picture({name, batch, head, mask, scale, part, side})}
  constructor({ root, words, film, heads, lines, explanation, arithmetic }, act) {
    Object.assign(this, { root, act });
    this.parts = { lines, explanation };
    this.steps = new Map();
    this.hover = null;
    this.subject = { query: 0, key: 0 }; // the cell whose arithmetic is shown
    this.lines = null;
    this.printing = false; // whether all steps are drawn for a page of paper
    this.words = new Words(words, {
      point: (row) => this.setHover(row === null ? null : { query: row }),
      lock: (row) => act.lock(this.state.row === row ? null : row),
    });
    this.film = new Film(film, { open: (name) => act.open(name), paint: (canvas, name) => this.thumb(canvas, name, this.state.head) });
    this.heads = new Heads(heads, {
      ...{ choose: (head, batch) => act.head(head, batch), compare: (head, batch) => act.compare(head, batch), mean: () => act.mean() },
      paint: (canvas, batch, head) => this.thumb(canvas, 'weights', head, batch),
    });
    this.panel = new ArithmeticPanel(arithmetic, act.say);
    this.headings = Object.keys(GROUPS).map((group) => [group, this.makeGroup(group)]);
    const weights = this.steps.get('weights');
    weights.panes.before(lines);
    new ResizeObserver(() => this.resized()).observe(root);
  }

  // Makes a group of steps. Returns its heading, because its text depends on the answer.
  makeGroup(group) {
    const section = make('section', `group group-${group}`, this.root);
    section.hidden = true; // render() shows it when an answer has come
    section.setAttribute('aria-labelledby', `group-${group}`);
    const heading = Object.assign(make('h2', '', section, GROUPS[group]), { id: `group-${group}` });
    const row = make('div', 'row', section);
    for (const step of STEPS.filter((one) => one.group === group)) this.makeStep(step, row);
    return heading;
  }

  makeStep(step, row) {
    const article = make('article', 'step', row);
    article.dataset.step = step.name;
    article.hidden = true;
    const head = make('header', '', article);
    const title = make('h3', '', head, step.title);
    const formula = make('p', 'formula', head);
    const text = make('p', 'text', article);
    const panes = make('div', 'panes', article);
    const parts = { step, article, title, formula, text, panes, figures: [] };
    const lines = () => (step.name === 'weights' && this.lined() ? this.lines.picture() : null);
    parts.foot = this.makeFoot(article, () => ({ ...this.saved(step, parts.figures[0]), lines: lines() }));
    parts.figures.push(this.makePane(step, panes));
    if (step.name === 'weights') parts.figures.push(this.makePane(step, panes));
    this.steps.set(step.name, parts);
  }

  // Makes what stands below figures: the bar of colours, their shape, and a menu that saves chosen().
  makeFoot(parent, chosen) {
    const foot = make('footer', '', parent);
    const bar = make('canvas', 'colours', foot);
    const meta = make('p', 'meta', foot);
    return { foot, bar, meta, menu: createSaveMenu(foot, chosen, this.act.tell) };
  }

  // Returns the line below a pane. If two heads stand side by side, each pane has its own line.
  footOf(parts, pane) {
    if (!this.beside() || this.lined()) return parts.foot;
    pane.foot ??= this.makeFoot(pane.pane, () => this.saved(parts.step, pane));
    return pane.foot;
  }

  // Returns whether the weights are shown as lines. On paper they are a heat map.
  lined() {
    return this.state.lines && !this.printing;
  }

  // Returns whether two heads stand side by side.
  beside() {
    return this.state.compare !== null && !this.state.mean;
  }

  // Returns the canvas of a step.
  canvas(name) {
    return this.steps.get(name).figures[0].figure.canvas;
  }

  saved(step, { figure, head }) {
    return { figure, name: this.fileName(step.name, head) };
  }

  makePane(step, panes) {
    const pane = make('div', 'pane', panes);
    const title = make('p', 'pane-title', pane);
    const row = make('div', 'pane-row', pane);
    const figure = new Figure(row, {
      point: (cell, event) => this.point(step, pane, cell, event),
      click: (cell, event) => this.click(step, pane, cell, event),
      keydown: (event) => this.keydown(step, pane, event),
      leave: () => this.point(step, pane, null, {}),
      zoom: (zoomed) => this.zoomed(pane, zoomed),
    });
    const bars = make('canvas', 'bars', row);
    bars.hidden = true;
    bars.setAttribute('role', 'img');
    const reset = Object.assign(make('button', 'quiet reset', pane, 'Show the whole matrix'), { type: 'button', hidden: true });
    reset.addEventListener('click', () => figure.unzoom());
    const numbers = make('div', 'numbers-place', pane);
    return { pane, title, figure, bars, reset, numbers, head: 0 };
  }

  fileName(name, head) {
    const { batch, mean } = this.state;
    const item = this.answer.batch > 1 ? `-batch-${batch}` : '';
    const which = name === 'weights' && mean ? '-mean' : this.answer.heads > 1 ? `-head-${head}` : '';
    return `attention-${name}${item}${which}`;
  }

  show(answer, state) {
    const words = JSON.stringify([answer.queries, answer.keys, answer.labels, answer.isSelf()]);
    // Another rule leaves the words as they are, so their cell stays, too.
    if (words === this.said && (answer.own || this.answer.own)) this.subject.answer = answer;
    this.answer = answer;
    this.hover = null;
    if (words !== this.said) this.words.show(answer);
    this.said = words;
    this.render(state);
  }

  resized() {
    const width = this.root.clientWidth;
    if (!this.answer || !width || width === this.width) return;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.render(this.state));
  }

  // Returns the name of the step that is open, or `all`. A step that the answer does not have cannot be open.
  opened() {
    const { answer, state } = this;
    if (this.printing) return 'all';
    return state.step === 'all' || answer.matrix(state.step, state.batch, state.head) ? state.step : 'weights';
  }

  // Draws the open steps for the present answer.
  render(state) {
    this.state = { ...state }; // the state may already be that of another answer when the pointer moves
    this.width = this.printing ? PAPER : this.root.clientWidth || this.width;
    // The layout is read before anything changes, because reading it later would compute it once more.
    this.taken = this.root.offsetTop + this.panel.root.parentElement.offsetHeight;
    this.panel.measure();
    this.colours = colours();
    const { answer } = this;
    answer.position = state.position;
    const opened = this.opened();
    const all = opened === 'all';
    this.renderSmall(opened);
    this.choose();
    this.root.classList.toggle('single', !all);
    this.parts.explanation.hidden = all;
    for (const { step, article } of this.steps.values()) {
      article.hidden = !(all || step.name === opened) || !answer.matrix(step.name, state.batch, state.head);
    }
    for (const section of this.root.querySelectorAll('.group')) section.hidden = !section.querySelector('.step:not([hidden])');
    for (const parts of this.steps.values()) {
      if (!parts.article.hidden && parts.step.name !== 'weights') this.fill(parts, parts.figures[0], state.head, this.room(parts.step));
    }
    for (const [group, heading] of this.headings) heading.textContent = titleOf(group, answer.summary);
    if (!this.steps.get('weights').article.hidden) this.renderWeights();
    this.mark();
  }

  // Shows the small pictures of steps and heads.
  renderSmall(opened) {
    const { answer, state } = this;
    const { palette, log, dark, range, batch, head } = state;
    const steps = STEPS.filter(({ name }) => answer.matrix(name, batch, head));
    const look = [palette, log, dark, range].join();
    const entries = steps.map(({ name, group, title }) => ({ name, group, title, matrix: answer.matrix(name, batch, head) }));
    this.film.show(entries, opened, look);
    this.heads.show(answer, state, look);
  }

  // Returns the scale of colours of matrices that share it.
  scaleOf(name, both) {
    const { state, answer } = this;
    const signed = isSigned(name, answer.summary.options);
    const { palette, log, dark } = state;
    const ends = both.map((one) => one.reach ?? one); // all states have the colours of the largest one
    const lo = Math.min(...ends.map((one) => one.lo));
    const fixed = name === 'gates' || (!signed && rangeOf(state.range, answer.keys) === 'one');
    const hi = fixed ? 1 : Math.max(...ends.map((one) => one.hi));
    return makeScale({ lo, hi, signed, log, palette, dark });
  }

  // Returns the room for a figure: {width, tallest, most}. If all steps are shown, the figures of a group share the width of the page.
  room(step) {
    const { answer, state } = this;
    if (this.opened() !== 'all') return { width: Math.min(this.width, 760), tallest: this.tallest(), most: 64 };
    const row = STEPS.filter(({ name, group }) => group === step.group && !this.steps.get(name).article.hidden);
    const wide = (one) => ({
      ...answer.matrix(one.name, state.batch, state.head),
      rowLabels: answer.label(one.rows),
      names: axisNames(one),
    });
    const { width, across } = share(row.map(wide), this.width, GAP);
    this.steps.get(step.name).article.parentElement.style.setProperty('--across', across);
    return { width };
  }

  // Returns the greatest height of the cells of a step that is open alone, so that the words above it and the arithmetic below it are in
  // sight, too.
  tallest() {
    const room = window.innerHeight - this.taken - AROUND;
    return Math.min(Math.max(room, TALLEST.least), TALLEST.most);
  }

  // Fills a pane of a step. matrix, mask and name are those of the mean over heads; otherwise they are those of the head.
  fill(parts, pane, head, { width, tallest, most, matrix, mask, name = parts.step.name }) {
    const { answer, state } = this;
    const { step } = parts;
    const { batch } = state;
    const shown = matrix ?? answer.matrix(step.name, batch, head);
    const hatched = mask ?? (HATCHED.includes(step.name) ? answer.maskOfWeights(batch, head) : null);
    const beside = step.name === 'weights' && this.beside();
    const both = beside ? [state.head, state.compare].map((one) => answer.matrix('weights', batch, one)) : [shown];
    const scale = this.scaleOf(step.name, both);
    const label = answer.label(step.rows);
    const empties = step.name === 'weights' || step.name === 'masked_scores' ? answer.mask(batch, head) : null;
    const rowLabels = (row) => (answer.isEmpty(empties, row) ? `${label(row)} ∅` : label(row));
    const colLabels = answer.label(step.cols);
    const place = name === 'mean' ? { batch, head: 0 } : answer.place(name, batch, head);
    const maskName = step.name === 'weights' && hatched && name === 'weights' ? 'masked_scores' : null;
    const range = `${formatNumber(shown.lo)} to ${formatNumber(shown.hi)}`;
    pane.head = head;
    pane.figure.update({
      matrix: shown,
      mask: hatched,
      masked: hatched ? (answer.matrix('masked_scores', batch, head)?.masked ?? hatched.reduce((sum, bit) => sum + bit)) : shown.masked,
      rowLabels,
      colLabels,
      names: axisNames(step),
      measure: step.measure,
      scale,
      width,
      tallest,
      most,
      colours: this.colours,
      label: `${step.title}: ${shown.rows} × ${shown.cols}, ${range}. Arrow keys move, Enter keeps a row.`,
      picture: (picked, part, side) =>
        this.printing || answer.own
          ? drawnNow({ ...shown, mask: hatched }, picked, part, side)
          : this.act.picture({ name, ...place, mask: maskName, scale: picked, part, side }),
    });
    this.describe(parts, pane, shown, scale);
    this.writeNumbers(parts, pane, { matrix: shown, mask: hatched, rowLabels, colLabels });
  }

  // Writes the formula and the text of a step, and the line below its figure.
  describe(parts, pane, matrix, scale) {
    const { step, formula, text } = parts;
    if (this.lined() && pane !== parts.figures[0]) return;
    const { bar, meta, menu } = step.name === 'weights' ? this.footOf(parts, pane) : parts.foot;
    const { statistics, summary } = this.answer;
    formula.innerHTML = formulaOf(step, summary);
    text.textContent = textOf(step, summary);
    menu.name(step.name === 'weights' && this.beside() ? `${step.title}, head ${pane.head}` : step.title);
    const variance = statistics?.variance[step.name];
    const { plotWidth, left } = pane.figure.box;
    bar.style.marginLeft = `${left}px`;
    defer(bar, () => drawBar(bar, { scale, measure: step.measure, plotWidth, colours: this.colours }));
    meta.replaceChildren(
      make('span', 'shape', null, `${matrix.rows} × ${matrix.cols}`),
      makeRange(matrix),
      ...(variance === undefined ? [] : [make('span', 'variance', null, `variance ${formatNumber(variance, 3)}`)]),
    );
  }

  writeNumbers(parts, pane, { matrix, mask, rowLabels, colLabels }) {
    pane.numbers.replaceChildren();
    if (!this.state.numbers) return;
    const { step } = parts;
    const extra = [];
    if (step.name === 'weights') {
      extra.push({ title: 'largest', values: matrix.largest });
      const entropy = this.entropyOf(pane);
      if (entropy) extra.push({ title: ENTROPY, values: entropy });
    }
    const masked = mask && ((row, col) => mask[row * matrix.cols + col] === 1);
    pane.numbers.append(createTable({ title: step.title, matrix, mask: masked, rowLabels, colLabels, extra }));
  }

  entropyOf(pane) {
    const { state, answer } = this;
    return state.mean || answer.matrices.weights[0].length < answer.heads ? null : answer.entropy(state.batch, pane.head);
  }

  renderWeights() {
    const { state, answer } = this;
    const parts = this.steps.get('weights');
    const [first, second] = parts.figures;
    const two = this.beside();
    const mean = state.mean && answer.mean?.[state.batch];
    const panes = two ? 2 : 1;
    const room = this.width - (panes - 1) * GAP;
    const tallest = this.opened() === 'all' ? undefined : this.tallest();
    const narrow = this.width < 520;
    const matrixOf = (head) => mean || answer.matrix('weights', state.batch, head);
    second.pane.hidden = !two;
    parts.article.classList.toggle('as-lines', this.lined());
    parts.foot.foot.hidden = two && !this.lined();
    for (const { foot } of parts.figures) if (foot) foot.foot.hidden = !two || this.lined();
    const shown = [[first, state.head], ...(two ? [[second, state.compare]] : [])];
    const largest = Math.max(...shown.map(([, head]) => matrixOf(head).hi));
    for (const [pane, head] of shown) {
      pane.head = head;
      const bars = narrow ? [] : this.barColumns(pane, matrixOf(head), largest);
      const fits = room / panes - barsWidth(bars) >= 200;
      const width = Math.min((fits ? room / panes : this.width) - barsWidth(bars), 640);
      pane.title.textContent = two ? `head ${head}` : mean ? `mean of ${answer.heads} heads` : '';
      const more = mean ? { matrix: mean, mask: answer.commonMask(state.batch) ?? undefined, name: 'mean' } : {};
      this.fill(parts, pane, head, { width, tallest, most: 64, ...more });
      this.drawBars(pane, bars);
    }
    this.renderLines(shown, mean);
  }

  // Returns the columns of bars beside a pane. largest: the largest weight of all panes, so that the bars of two panes can be compared.
  barColumns(pane, matrix, largest) {
    const entropy = this.entropyOf(pane);
    const list = [{ title: 'largest', values: matrix.largest, most: Math.max(largest, 1e-300) }];
    if (entropy) list.push({ title: ENTROPY, values: entropy, most: Math.log(matrix.cols) });
    return list;
  }

  drawBars(pane, columns) {
    pane.columns = columns;
    pane.bars.hidden = !columns.length;
    if (!columns.length) return;
    pane.bars.setAttribute('aria-label', 'The largest weight and the entropy of each row. The table of numbers has the numbers.');
    this.paintBars(pane);
  }

  zoomed(pane, zoomed) {
    const parts = [...this.steps.values()].flatMap(({ figures }) => figures).find((one) => one.pane === pane);
    parts.reset.hidden = !zoomed;
    if (parts.columns?.length) this.paintBars(parts);
  }

  paintBars({ bars, figure, columns }) {
    Object.assign(bars.style, { width: `${barsWidth(columns)}px`, height: `${figure.box.height}px` });
    defer(bars, () => drawBars(bars, figure.shown(), columns, this.colours));
  }

  renderLines(shown, mean) {
    const { state, answer } = this;
    this.parts.lines.hidden = !this.lined();
    if (!this.lined()) return;
    this.lines ??= createLines(this.parts.lines, {
      onHover: (word) => this.setHover(word && { query: word.query ?? undefined, key: word.key ?? undefined }),
      onLock: (row) => this.act.lock(row),
    });
    const { batch } = state;
    const entry = (head) => ({
      weights: mean ? mean.data : answer.matrix('weights', batch, head).data,
      masked: mean ? answer.commonMask(batch) : answer.maskOfWeights(batch, head),
      name: mean ? 'mean' : `head ${head}`,
      index: head,
    });
    const count = Math.min(answer.matrices.weights[batch].length, 8);
    const heads = state.every && !mean ? Array.from({ length: count }, (_, head) => entry(head)) : shown.map(([, head]) => entry(head));
    this.lines.update({
      heads,
      rows: answer.queries,
      cols: answer.keys,
      queryLabels: Array.from({ length: answer.queries }, (_, row) => answer.query(row)),
      keyLabels: Array.from({ length: answer.keys }, (_, col) => answer.key(col)),
      threshold: state.threshold,
      mode: state.mass ? 'mass' : 'weight',
      row: state.row,
    });
  }

  thumb(canvas, name, head, batch = this.state.batch) {
    const { answer } = this;
    const matrix = answer.matrix(name, batch, head);
    const mask = HATCHED.includes(name) ? answer.maskOfWeights(batch, head) : null;
    const scale = this.scaleOf(name, [matrix]);
    const place = answer.place(name, batch, head);
    const maskName = mask ? 'masked_scores' : null;
    const picture = (part, side) =>
      answer.own
        ? drawnNow({ ...matrix, mask }, scale, part, side)
        : this.act.picture({ name, ...place, mask: maskName, scale, part, side });
    defer(canvas, () => drawThumb(canvas, matrix, mask, scale, picture));
  }

  point(step, pane, cell, event) {
    if (event.pointerType === 'touch') return;
    if (!cell) {
      hideTooltip();
      this.setHover(null);
      return;
    }
    const same = this.hover?.step === step.name && this.hover.row === cell.row && this.hover.col === cell.col;
    if (!same) this.setHover(meaningOf(step, cell, this.answer));
    this.tell(step, pane, cell, event);
  }

  paneOf(step, pane) {
    return this.steps.get(step.name).figures.find((one) => one.pane === pane);
  }

  // Returns the numbers of a cell.
  facts(step, pane, cell) {
    const { head, figure } = this.paneOf(step, pane);
    const { matrix } = figure.given;
    const weights = step.name === 'weights' ? matrix : this.weights().matrix;
    return factsOf(step, cell, { answer: this.answer, batch: this.state.batch, head, matrix, weights });
  }

  tell(step, pane, cell, event) {
    const { title, entries } = this.facts(step, pane, cell);
    showTooltip(title, entries, event, this.paneOf(step, pane).figure.rectOf(cell));
  }

  setHover(hover) {
    if (hover === this.hover) return;
    this.hover = hover;
    this.mark();
  }

  // Marks the cell that the pointer is on, and the locked row, in all steps.
  mark() {
    const { hover, state } = this;
    if (hover) this.choose();
    const { query: row, key: col } = this.subject;
    for (const { step, article, figures } of this.steps.values()) {
      if (article.hidden) continue;
      const marks = { rows: [], cols: [], cell: null, locked: step.rows === 'query' || step.rows === 'both' ? state.row : null };
      if (hover) {
        const { query, key } = hover;
        const rows = { query: [query], key: [key], both: [query, this.answer.wordOf(key)] }[step.rows] ?? [];
        marks.rows = [...new Set(rows.filter((row) => row !== undefined))];
        if (step.cols === 'key') {
          if (query !== undefined && key !== undefined && hover.step !== 'X') marks.cell = { row: query, col: key };
          else if (key !== undefined && query === undefined) marks.cols = [key];
        } else if (hover.step === step.name) {
          marks.cell = { row: hover.row, col: hover.col };
        }
      }
      if (step.cols === 'key') marks.subject = { row, col };
      for (const { figure, pane } of figures) if (!pane.hidden) figure.mark(marks);
    }
    this.explain();
  }

  // Returns the weights that are shown: those of the head, or the mean over heads.
  weights() {
    const { answer, state } = this;
    const mean = state.mean && answer.mean?.[state.batch];
    return {
      matrix: mean || answer.matrix('weights', state.batch, state.head),
      mask: mean ? answer.commonMask(state.batch) : answer.maskOfWeights(state.batch, state.head),
    };
  }

  // Chooses the cell whose arithmetic is shown: the one that the pointer is on, or that was the last one. If only the query is known, the
  // key is that of its largest weight.
  choose() {
    const { hover, state, answer, subject } = this;
    const { matrix } = this.weights();
    const query = Math.min(hover?.query ?? state.row ?? subject.query, answer.queries - 1);
    const row = matrix.data.subarray(query * matrix.cols, (query + 1) * matrix.cols);
    const largest = () => row.reduce((best, weight, key) => (Math.abs(weight) > Math.abs(row[best]) ? key : best), 0);
    const moved = query !== subject.query || subject.answer !== answer;
    const key = hover?.key < answer.keys ? hover.key : moved || subject.key >= answer.keys ? largest() : subject.key;
    this.subject = { query, key, answer };
    const place = { batch: state.batch, head: state.head, row: query, col: key };
    this.panel.show({
      found: answer.own ? answer.own.arithmetic(place) : arithmetic(answer, place),
      drawWay: answer.own?.drawWay,
      query: answer.query(query),
      key: answer.key(key),
      head: answer.heads > 1 ? `head ${state.head}` : '',
      dark: state.dark,
    });
    const strongest = rangeOf(state.range, answer.keys) === 'one' && !isSigned('weights', answer.summary.options) ? 1 : largestOf(row);
    this.words.tint({ row: query, weights: row, most: strongest, locked: state.row === query });
  }

  // Explains the row of the query in words.
  explain() {
    const { answer, state } = this;
    if (this.opened() === 'states') {
      const position = Math.min(state.position ?? Infinity, answer.queries - 1);
      const said = answer.own.sayStep(state.batch, state.head, position);
      this.parts.explanation.replaceChildren(make('p', 'lead', null, said));
      return;
    }
    const row = this.subject.query;
    const { matrix, mask } = this.weights();
    const part = (all) => all?.subarray(row * matrix.cols, (row + 1) * matrix.cols);
    const keyLabel = (col) => answer.key(col);
    drawExplanation(this.parts.explanation, {
      query: answer.query(row),
      row: part(matrix.data),
      mask: part(mask),
      keyLabel,
      entropy: this.entropyOf({ head: state.head })?.[row],
      locked: state.row === row,
    });
  }

  click(step, pane, cell, event) {
    if (this.state.editMask && step.cols === 'key') return this.act.toggleMask(cell.row, cell.col);
    const { query } = meaningOf(step, cell, this.answer);
    if (query !== undefined) this.act.lock(this.state.row === query ? null : query);
    if (event?.pointerType === 'touch') {
      this.setHover(meaningOf(step, cell, this.answer));
      this.tell(step, pane, cell, event);
    }
  }

  keydown(step, pane, event) {
    const { figure } = this.paneOf(step, pane);
    const { rows, cols } = figure.given.matrix;
    const at = this.hover?.step === step.name ? this.hover : { row: 0, col: 0, fresh: true };
    const cell = movedCell(at.fresh ? null : at, event, figure.given.matrix);
    if (cell) {
      this.setHover(meaningOf(step, cell, this.answer));
      figure.reveal(cell);
      this.tell(step, pane, cell, {});
      const { title, entries } = this.facts(step, pane, cell);
      this.act.say(
        `${title}: ${entries
          .slice(step.cols === 'key' ? 2 : 0)
          .map((entry) => entry.slice(0, 2).join(' '))
          .join(', ')}`,
      );
    } else if (event.key === 'Enter' || event.key === ' ') {
      this.click(step, pane, at);
    } else if ('+=-'.includes(event.key) && !event.ctrlKey && !event.metaKey && figure.zoomAt(at, event.key !== '-')) {
      const { row0, row1, col0, col1 } = figure.range;
      this.act.say(`rows ${row0} to ${row1 - 1} of ${rows}, columns ${col0} to ${col1 - 1} of ${cols}`);
    } else if (event.key === 'Escape') {
      // The event goes on to keyboard.js, which releases the row.
      hideTooltip();
      return;
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
