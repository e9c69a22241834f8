// stage.js shows an answer on the stage of the page: as a flow of all matrices, or one matrix enlarged, or the weights as lines. One number
// is the subject: the page writes how it is made, and marks what it is made of and where it goes. main.js tells this file what to show (an
// Answer and the state), and it tells main.js what the user does. It sends no request.
import { makeScale, paintPixels, rangeOf } from './colour.js';
import { fill, make, makeButton, makeWith, setBox } from './dom.js';
import { createSaveMenu } from './savemenu.js';
import { Figure } from './figure.js';
import { Flow, NARROW } from './flow.js';
import { elide, wholeRange } from './geometry.js';
import { Heads } from './heads.js';
import { barsWidth, drawBar, drawBars, makeRange } from './legend.js';
import { movedCell } from './keyboard.js';
import { rowOf } from './matrices.js';
import { createTable, formatNumber } from './numbers.js';
import markup from './parts/step.html';
import { drawExplanation, sentenceOf } from './explanation.js';
import { defer } from './defer.js';
import { axisNames, formulaOf, isSigned, opOf, stepNamed, STEPS, textOf, titleOf } from './steps.js';
import { colours } from './theme.js';
import { drawThumb } from './paint.js';
import { hideTooltip, showTooltip } from './tooltip.js';
import { factsOf, found, stepOf, wayOf } from './way.js';
import { Words } from './words.js';

/* global LINES_NAME */
const GAP = 36; // pixels between two heads
const AROUND = 160; // pixels; the height of the title, the labels and the bar of colours of a figure
const BESIDE = 300; // pixels of the row in words, with the gap before it
const LEAST = 200; // pixels; the least height of the cells of a figure
// Pixels for the picture on A4, beside the margins of print.css and what else is on the page.
const SHEETS = { portrait: { width: 660, height: 700 }, landscape: { width: 980, height: 430 } };
const TITLE = 14; // pixels of a title of a matrix
const LABEL = 240; // pixels; the longest label in a sentence
const LONG = 240; // milliseconds that a matrix takes to its new place
const ENTROPY = 'entropy, nats';
const HATCHED = ['weights', 'uncorrected', 'corrections']; // in these steps, forbidden cells are hatched

const ofQuery = ({ rows }) => rows === 'query' || rows === 'both';

export class Stage {
  // elements: the places of the words, the names of the steps (nav), the heads, the flow, one step (single), the lines, the explanation,
  // what is written about the subject (written), the menu that saves the flow (save), and the trained model (story). act: the functions that this file calls: {lock(row|null), open(step), head(h, batch),
  // compare(h, batch), mean(), toggleMask(row, col), tell(title, detail), say(text), picture({name, batch, head, mask, scale, part, side})}
  constructor({ root, words, nav, heads, flow, single, lines, explanation, written, save, story }, act) {
    Object.assign(this, { root, nav, single, act, parts: { lines, explanation, written, save, story } });
    Object.assign(this, { subject: { id: 'weights', row: 0, col: 0 }, query: 0, key: 0 });
    this.printing = false; // whether the page is drawn for paper
    this.pictures = new WeakMap(); // for each matrix of the flow, the last {look, picture}
    this.words = new Words(words, {
      point: (row) => row !== null && this.setHover({ query: row }),
      lock: (row) => act.lock(this.state.row === row ? null : row),
    });
    this.heads = new Heads(heads, {
      ...{ choose: act.head, compare: act.compare, mean: act.mean },
      paint: (canvas, batch, head) => this.thumb(canvas, batch, head),
    });
    this.ofFlow = {
      point: this.point.bind(this),
      open: this.enlarge.bind(this),
      picture: (step, scale, mask, side) => this.keptPicture(step, scale, mask, side),
      mask: (step) => this.maskOf(step, this.state.head),
      scale: (step, matrix) => this.scaleOf(step, [matrix]),
      title: (id) => titleOf(id, this.answer.summary),
      op: (step) => opOf(step, this.answer.summary, this.state.head, this.matrixOf('Q')?.cols),
    };
    this.flow = new Flow(flow, this.ofFlow);
    this.sheets = []; // the flow for each orientation of a sheet, as long as the page is drawn for paper
    this.makeSingle();
    this.saveFlow = createSaveMenu(save, () => this.saved(this.panes[0]), act.tell);
    this.saveFlow.name('the picture');
    new ResizeObserver(() => this.resized()).observe(root);
  }

  makeSingle() {
    Object.assign(this, fill(this.single, markup));
    this.single.append(this.parts.lines);
    this.foot = this.makeFoot(this.single, () => ({ ...this.saved(this.panes[0]), lines: this.lined() ? this.lines : null }));
    this.panes = [this.makePane(), this.makePane()];
  }

  // Makes what stands below figures: the bar of colours, their shape, and a menu that saves chosen().
  makeFoot(parent, chosen) {
    const foot = make('footer', '', parent);
    const bar = make('canvas', 'colours', foot);
    const meta = make('p', 'meta', foot);
    return { foot, bar, meta, menu: createSaveMenu(foot, chosen, this.act.tell) };
  }

  makePane() {
    const pane = make('div', 'pane', this.panesRoot);
    const title = make('p', 'pane-title', pane);
    const row = make('div', 'pane-row', pane);
    const made = { pane, title, head: 0, columns: [] };
    made.figure = new Figure(row, {
      point: (cell, event) => this.pointIn(made, cell, event),
      click: (cell, event) => this.click(made, cell, event),
      keydown: (event) => this.keydown(made, event),
      leave: () => hideTooltip(),
      zoom: (zoomed) => {
        made.reset.hidden = !zoomed;
        this.paintBars(made);
      },
      scaled: () => made.drawBar?.(),
    });
    made.bars = makeWith('canvas', row, { className: 'bars', hidden: true, role: 'img' });
    const whole = { className: 'quiet reset', hidden: true };
    made.reset = makeButton(pane, 'Show the whole matrix', () => made.figure.unzoom(), whole);
    made.numbers = make('div', 'numbers-place', pane);
    return made;
  }

  // ---------------------------------------------------------------- what is shown

  // Returns whether the weights are shown as lines. On paper they are a heat map.
  lined() {
    return this.state.lines && this.opened() === 'weights' && !this.printing;
  }

  // Returns the name of the step that is open, or `flow` or `model`. A step that the answer does not have cannot be open.
  opened() {
    const { step, example } = this.state;
    if (step === 'model') return example === 'model' ? step : 'flow';
    return step === 'flow' || this.matrixOf(step) ? step : 'flow';
  }

  // Returns the names of the views, without the lines: the model, the flow, and the steps that the answer has, in their order.
  views() {
    const steps = STEPS.map(({ name }) => name).filter((name) => this.matrixOf(name));
    return [...(this.state.example === 'model' ? ['model'] : []), 'flow', ...steps];
  }

  // Returns the matrix of a step for a head. The weights may be the mean over heads.
  matrixOf(name, head = this.state.head) {
    const { answer, state } = this;
    const mean = name === 'weights' && state.mean && answer.mean?.[state.batch];
    return mean || answer.matrix(name, state.batch, head);
  }

  maskOf(name, head) {
    const { answer, state } = this;
    if (!HATCHED.includes(name)) return null;
    return state.mean && answer.mean ? answer.commonMask(state.batch) : answer.maskOfWeights(state.batch, head);
  }

  // Returns a function of a scale, a part and a side that resolves to the picture of a matrix. part: null for the whole.
  pictureOf(name, matrix, mask, head, batch = this.state.batch) {
    const { answer, state } = this;
    const mean = name === 'weights' && state.mean && answer.mean;
    const place = mean ? { batch, head: 0 } : answer.place(name, batch, head);
    const maskName = mask && name === 'weights' && !mean ? 'masked_scores' : null;
    return async (scale, part, side) => {
      const whole = part ?? wholeRange(matrix);
      const own = this.printing || answer.own || !place; // the page draws it itself: a browser that prints does not wait for the worker
      if (!own) return this.act.picture({ name: mean ? 'mean' : name, ...place, mask: maskName, scale, part: whole, side });
      return paintPixels(make('canvas'), { ...matrix, mask }, scale, whole, side);
    };
  }

  // Resolves to the picture of a whole matrix. It is asked for only once as long as the matrix and its colours are the same.
  keptPicture(name, scale, mask, side) {
    const matrix = this.matrixOf(name);
    const look = JSON.stringify(scale);
    const kept = this.pictures.get(matrix);
    if (kept?.look === look && !this.printing) return kept.picture;
    const picture = this.pictureOf(name, matrix, mask, this.state.head)(scale, null, side);
    this.pictures.set(matrix, { look, picture });
    return picture;
  }

  scaleOf(name, both) {
    const { state, answer } = this;
    const signed = isSigned(name, answer.summary.options);
    const { palette, log, dark } = state;
    const ends = both.map((one) => one.reach ?? one); // all states have the colours of the largest one
    const lo = Math.min(...ends.map((one) => one.lo));
    const range = name === 'gates' ? 'one' : rangeOf(state.range, answer.keys);
    const hi = range === 'one' && !signed ? 1 : Math.max(...ends.map((one) => one.hi));
    return makeScale({ lo, hi, signed, log, palette, dark, means: name === 'weights' && range });
  }

  fileName(name, head) {
    const { batch, mean } = this.state;
    const item = this.answer.batch > 1 ? `-batch-${batch}` : '';
    const which = name === 'weights' && mean ? '-mean' : this.answer.heads > 1 ? `-head-${head}` : '';
    return `attention${this.answer.of ?? ''}-${name}${item}${which}`; // of: what layers.js names an answer
  }

  saved({ figure, head }) {
    if (this.opened() === 'flow') return { figure: this.flow, name: this.fileName('flow', this.state.head) };
    return { figure, name: this.fileName(this.opened(), head) };
  }

  show(answer, state) {
    const words = JSON.stringify([answer.queries, answer.keys, answer.labels, answer.isSelf()]);
    const fresh = words !== this.said;
    this.answer = answer;
    if (fresh) {
      this.words.show(answer);
      this.subject = { id: 'weights', row: state.row ?? 0 };
      this.keepRoom(0);
    }
    this.said = words;
    this.render(state, fresh);
    if (!fresh) this.act.say(this.sentence());
  }

  // Returns the room for the picture. On a narrow window, the height of the stage is that of what it shows, so the room is a part of the
  // window. On one that is also low, as at 200 %, the page scrolls, and the picture is as high as its numbers need.
  room() {
    if (this.printing) return SHEETS.portrait;
    const { clientWidth: width, clientHeight } = this.root;
    if (!matchMedia('(max-width: 900px)').matches) return { width, height: clientHeight };
    const scrolls = matchMedia('(max-height: 30rem)').matches && !document.body.dataset.embed;
    return { width, height: scrolls ? Infinity : Math.max(window.innerHeight - 200, 200) };
  }

  resized() {
    const { width, height } = this.room();
    if (!this.answer || !width || (width === this.size?.width && height === this.size?.height)) return;
    if (width !== this.size?.width) this.keepRoom(0);
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.render(this.state));
  }

  // Draws the present answer. fresh: whether its words are new. What is written is measured then, because the picture has the room that it
  // leaves. This takes long, so both come in slices of their own.
  render(state, fresh = false) {
    const before = this.state && this.answer ? this.root.dataset.step : '';
    const focused = this.root.contains(document.activeElement);
    this.state = { ...state }; // the state may already be that of another answer when the pointer moves
    // The layout is read before anything changes, because reading it later would compute it once more.
    this.size = this.room();
    this.colours = colours();
    const { answer } = this;
    answer.position = state.position;
    const opened = this.opened();
    const place = opened !== before && before ? this.placeOfOpen(opened, before) : null;
    this.root.dataset.step = opened;
    const flow = opened === 'flow';
    this.flow.root.hidden = !flow || this.printing;
    if (!this.printing) for (const sheet of this.sheets.splice(0)) sheet.flow.root.remove();
    const model = opened === 'model';
    this.single.hidden = flow || model;
    this.parts.story.hidden = !model;
    this.parts.save.hidden = !flow;
    this.parts.explanation.hidden = this.single.hidden || opened === 'states';
    this.renderNav(opened);
    this.heads.show(answer, state, [state.palette, state.log, state.dark, state.range].join());
    if (model) this.heads.root.hidden = true;
    const draw = () => {
      if (flow || this.printing) this.renderFlow();
      if (!this.single.hidden) this.renderSingle(stepNamed(opened));
      if (fresh) this.mark();
      else this.choose();
      if (place) this.move(place, opened, before);
      if (opened === before) return;
      hideTooltip();
      if (focused) this.refocus(opened, before);
    };
    if (!fresh) return draw();
    defer(this.words, () => {
      this.choose();
      this.act.say(this.sentence());
      this.size = this.room();
    });
    defer(this, draw);
  }

  // Gives the focus, which was in the view that was left, to what the view that is shown has in its place.
  refocus(opened, before) {
    if (opened === 'flow') this.flow.focus(this.nodeOf(before)?.id ?? this.flow.current);
    else (this.lined() ? this.parts.lines.querySelector('[tabindex="0"]') : this.panes[0].figure.root)?.focus({ preventScroll: true });
  }

  renderNav(opened) {
    const names = [...this.views(), ...(this.answer.later ? [] : ['lines'])];
    const shown = names.join();
    if (shown !== this.shownNames) {
      this.nav.replaceChildren();
      for (const name of names) {
        const title = { model: 'Model', flow: 'All', lines: 'Lines' }[name] ?? (name.length === 1 ? name : stepNamed(name).title);
        makeButton(this.nav, title, () => this.act.open(name)).dataset.frame = name;
      }
      this.shownNames = shown;
    }
    const current = this.lined() ? 'lines' : opened;
    for (const button of this.nav.children) button.ariaCurrent = button.dataset.frame === current ? 'step' : null;
  }

  renderFlow() {
    const { answer, state, size } = this;
    const { batch, head } = state;
    const room = { width: size.width, height: Math.max(size.height - 8, 200) };
    const label = (kind) => answer.label(kind);
    // A file of numbers has the weights.
    const saved = { matrix: this.matrixOf('weights'), rowLabels: label('query'), colLabels: label('key') };
    const given = { answer, batch, head, colours: this.colours, label, ...saved };
    if (!this.printing) return this.flow.show(given, room);
    for (const [name, sheet] of Object.entries(this.sheets.length ? {} : SHEETS))
      this.sheets.push({ sheet, flow: new Flow(make('div', `flow ${name}`, this.root), this.ofFlow) });
    for (const { sheet, flow } of this.sheets) flow.show({ ...given, printed: true }, sheet);
  }

  // ---------------------------------------------------------------- one step

  renderSingle(step) {
    const { state, answer, size } = this;
    const lined = this.lined();
    const weights = step.name === 'weights';
    const two = weights && state.compare !== null && !state.mean; // two heads stand side by side
    this.single.dataset.step = step.name;
    this.single.classList.toggle('as-lines', lined);
    this.title.textContent = step.title;
    this.formula.innerHTML = formulaOf(step, answer.summary);
    this.text.textContent = textOf(step, answer.summary);
    this.panes[1].pane.hidden = !two;
    const shown = [[this.panes[0], state.head], ...(two ? [[this.panes[1], state.compare]] : [])];
    const matrices = shown.map(([, head]) => this.matrixOf(step.name, head));
    const width = size.width - (this.parts.explanation.hidden || this.printing || size.width < 640 ? 0 : BESIDE);
    const room = Math.floor((width - (shown.length - 1) * GAP) / shown.length) - 1;
    const largest = Math.max(...matrices.map(({ hi }) => hi));
    const tallest = this.printing ? undefined : Math.max(size.height - AROUND, LEAST);
    shown.forEach(([pane, head], at) => {
      const extra = this.barColumns(step, head, matrices[at], largest);
      const columns = !weights || width >= 520 ? extra : [];
      const fits = room - barsWidth(columns) >= 200;
      pane.head = head;
      if (step.name === 'products') pane.title.textContent = `query “${answer.query(answer.asked)}”`;
      else pane.title.textContent = two ? `head ${head}` : weights && state.mean && answer.mean ? `mean of ${answer.heads} heads` : '';
      const scale = this.scaleOf(step.name, matrices);
      const within = { width: Math.max((fits ? room : width) - barsWidth(columns), 120), tallest, most: 64 };
      this.fill(step, pane, matrices[at], scale, within, extra);
      pane.columns = columns;
      pane.bars.hidden = !columns.length;
      pane.bars.ariaLabel = `${columns.map(({ title }) => title).join(' and ')} of each row. The table of numbers has the numbers.`;
      this.paintBars(pane);
    });
    this.describe(step, matrices[0], two && !lined);
    this.renderLines(shown);
  }

  // Fills a pane with the matrix of a step. extra: the columns that its table of numbers has beside it.
  fill(step, pane, matrix, scale, room, extra) {
    const { answer, state } = this;
    const mask = this.maskOf(step.name, pane.head);
    const label = answer.label(step.rows);
    const empties = step.name === 'weights' || step.name === 'masked_scores' ? answer.mask(state.batch, pane.head) : null;
    const rowLabels = (row) => (answer.isEmpty(empties, row) ? `${label(row)} ∅` : label(row));
    const colLabels = answer.label(step.cols);
    const range = `${formatNumber(matrix.lo)} to ${formatNumber(matrix.hi)}`;
    pane.figure.update({
      ...{ matrix, mask, rowLabels, colLabels, scale, ...room, colours: this.colours, names: axisNames(step), measure: step.measure },
      masked: mask ? mask.reduce((sum, bit) => sum + bit, 0) : matrix.masked,
      label: `${step.title}: ${matrix.rows} × ${matrix.cols}, ${range}. Arrow keys move, Enter keeps a row.`,
      picture: this.pictureOf(step.name, matrix, mask, pane.head),
    });
    pane.numbers.replaceChildren();
    if (!state.numbers) return;
    const masked = mask && ((row, col) => mask[row * matrix.cols + col] === 1);
    const title = [step.title, pane.title.textContent].filter(Boolean).join(', ');
    pane.numbers.append(createTable({ title, matrix, mask: masked, rowLabels, colLabels, extra }));
  }

  // Writes the line below the figures. If two heads stand side by side, each has its own menu.
  describe(step, matrix, two) {
    const variance = this.answer.statistics?.variance[step.name];
    const feet = two ? this.panes : [this];
    for (const pane of this.panes) {
      if (two) pane.foot ??= this.makeFoot(pane.pane, () => this.saved(pane));
      if (pane.foot) pane.foot.foot.hidden = !two;
    }
    this.foot.foot.hidden = two;
    for (const one of feet) {
      const { figure, head } = one.figure ? one : this.panes[0];
      const { bar, meta, menu } = one.foot;
      const { matrix: shown } = figure.given;
      menu.name(two ? `${step.title}, head ${head}` : step.title);
      // Lines have a legend of their own.
      Object.assign(bar.style, { marginLeft: `${figure.box.left}px`, visibility: this.lined() ? 'hidden' : '' });
      const drawn = () => drawBar(bar, { ...figure.legend(), plotWidth: figure.box.plotWidth, colours: this.colours });
      (one.figure ? one : this.panes[0]).drawBar = () => defer(bar, drawn);
      defer(bar, drawn);
      meta.replaceChildren(
        make('span', 'shape', null, `${matrix.rows} × ${matrix.cols}`),
        makeRange(shown),
        ...(variance === undefined ? [] : [make('span', 'variance', null, `variance ${formatNumber(variance, 3)}`)]),
      );
    }
  }

  entropyOf(head) {
    const { state, answer } = this;
    return state.mean || answer.matrices.weights[0].length < answer.heads ? null : answer.entropy(state.batch, head);
  }

  // Returns the columns of bars beside a step. largest: the largest weight of all panes, so that the bars of two panes can be compared.
  barColumns({ name }, head, matrix, largest) {
    if (name === 'products') {
      const values = rowOf(this.matrixOf('scores', head), this.answer.asked).subarray(0, matrix.rows);
      return [{ title: 'sum = score', values, most: Math.max(...values.map(Math.abs)), scale: this.scaleOf(name, [matrix]) }];
    }
    if (name !== 'weights') return [];
    const entropy = this.entropyOf(head);
    const list = [{ title: 'largest', values: matrix.largest, most: Math.max(largest, 1e-300) }];
    if (entropy) list.push({ title: ENTROPY, values: entropy, most: Math.log(matrix.cols) });
    return list;
  }

  paintBars({ bars, figure, columns }) {
    if (!columns.length) return;
    setBox(bars, { width: barsWidth(columns), height: figure.box.height });
    defer(bars, () => drawBars(bars, figure.shown(), columns, this.colours));
  }

  async loadLines() {
    try {
      const { createLines } = await import(new URL(LINES_NAME, import.meta.url));
      this.lines ??= createLines(this.parts.lines, { onHover: (word) => this.setHover(word), onLock: this.act.lock });
      this.render(this.state);
    } catch ({ message }) {
      this.act.tell('The lines cannot be loaded', message);
    }
  }

  renderLines(shown) {
    const { state, answer } = this;
    this.parts.lines.hidden = !this.lined();
    if (!this.lined()) return;
    if (!this.lines) return this.loadLines();
    const mean = state.mean && answer.mean;
    const entry = (head) => ({
      ...{ weights: this.matrixOf('weights', head).data, masked: this.maskOf('weights', head) },
      ...{ name: mean ? 'mean' : `head ${head}`, index: head },
    });
    const count = Math.min(answer.matrices.weights[state.batch].length, 8);
    this.lines.update({
      heads: state.every && !mean ? Array.from({ length: count }, (_, head) => entry(head)) : shown.map(([, head]) => entry(head)),
      ...{ rows: answer.queries, cols: answer.keys, threshold: state.threshold, mode: state.mass ? 'mass' : 'weight', row: state.row },
      queryLabels: Array.from({ length: answer.queries }, (_, row) => answer.query(row)),
      keyLabels: Array.from({ length: answer.keys }, (_, col) => answer.key(col)),
    });
  }

  thumb(canvas, batch, head) {
    const matrix = this.answer.matrix('weights', batch, head);
    const mask = this.answer.maskOfWeights(batch, head);
    const scale = this.scaleOf('weights', [matrix]);
    const picture = this.pictureOf('weights', matrix, mask, head, batch);
    defer(canvas, () => drawThumb(canvas, matrix, mask, scale, (part, side) => picture(scale, part, side)));
  }

  // ---------------------------------------------------------------- from the flow to one step and back

  enlarge(id, cell) {
    if (this.state.editMask && cell && stepNamed(stepOf(id)).cols === 'key') return this.act.toggleMask(cell.row, cell.col);
    this.act.open(stepOf(id));
  }

  // Returns where the matrix is that grows or shrinks: its element in the view that is left.
  placeOfOpen(opened, before) {
    if (opened === 'flow') return this.panes[0].figure.over.getBoundingClientRect();
    if (before !== 'flow') return null;
    return this.nodeOf(opened)?.element.getBoundingClientRect() ?? null;
  }

  // Scrolls to a matrix of the flow, if the flow is longer than the window. covered: the pixels of the window that something covers above; what
  // is written covers the lower part. The title of the matrix is seen, too.
  reveal(id, covered) {
    const box = this.flow.nodes.get(id)?.element.getBoundingClientRect();
    if (!box || (this.size.width >= NARROW && this.size.height < Infinity)) return;
    const room = window.innerHeight - this.parts.written.offsetHeight - covered;
    const top = covered + Math.max((room - box.height) / 2, 2 * TITLE);
    window.scrollBy({ top: box.top - top, behavior: 'instant' });
  }

  nodeOf(step) {
    const { nodes } = this.flow;
    return [...nodes.values()].find((node) => node.step === step && node.id !== 'k') ?? (step === 'K' ? nodes.get('k') : undefined);
  }

  // Moves a matrix from its place in the view that was left to its place in the view that is shown.
  move(from, opened, before) {
    if (matchMedia('(prefers-reduced-motion: reduce)').matches || this.printing || !from.width) return;
    const element = opened === 'flow' ? this.nodeOf(before)?.element : this.panes[0].figure.over;
    const to = element?.getBoundingClientRect();
    if (!to?.width) return;
    const ghost = make('div', 'stage-ghost', document.body);
    const at = ({ left, top, width, height }) => ({ left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
    const frames = [{ ...at(from), opacity: 0.9 }, { ...at(to), opacity: 0.3 }]; // prettier-ignore
    ghost.animate(frames, { duration: LONG, easing: 'ease-out' }).onfinish = () => ghost.remove();
  }

  // ---------------------------------------------------------------- the subject

  // Makes the cell of a query and a key the subject. If one of them is missing, it is that of the largest weight.
  setHover(hover) {
    if (!hover) return;
    this.subject = { id: 'weights', row: hover.query ?? this.subject.row, col: hover.key };
    this.choose();
  }

  // Makes a query the subject and returns how many parts it has: in the flow, its score, its weight and its output. part: one of them, as Play
  // shows them one after the other.
  ask(row, part) {
    const step = stepNamed(this.opened());
    const all = ['scores', 'weights', 'mixed', 'output'].filter((id) => this.flow.nodes.has(id));
    const ids = step ? [ofQuery(step) ? this.placeIn({}).id : 'weights'] : all;
    this.point({ id: ids[part] ?? 'weights', row });
    return ids.length;
  }

  point(place, byKey) {
    const { id, row, col } = this.subject;
    if (id === place.id && row === place.row && col === place.col) return;
    this.subject = place;
    this.choose();
    if (byKey) this.act.say(this.parts.written.textContent);
  }

  // Completes the subject, writes about it, and marks it and what belongs to it.
  choose() {
    const { state, answer, subject } = this;
    if (!this.matrixOf(stepOf(subject.id))) Object.assign(subject, { id: 'weights', row: 0, col: undefined });
    const matrix = this.matrixOf(stepOf(subject.id));
    const row = Math.min(subject.row, matrix.rows - 1);
    const largest = (weights) => weights.reduce((best, weight, at) => (Math.abs(weight) > Math.abs(weights[best]) ? at : best), 0);
    const step = stepNamed(stepOf(subject.id));
    const products = step.name === 'products';
    const col = Math.min(subject.col ?? largest(rowOf(step.cols === 'key' ? this.matrixOf('weights') : matrix, row)), matrix.cols - 1);
    this.subject = { id: subject.id, row, col };
    const last = answer.queries - 1;
    const asked = ofQuery(step) ? row : step.rows === 'key' && !products ? answer.wordOf(row) : undefined;
    this.query = Math.min(asked ?? this.query, last);
    if (step.cols === 'key' || products) this.key = products ? row : col;
    if (this.key >= answer.keys) this.key = 0;
    if (answer.asked !== this.query) {
      answer.asked = this.query;
      if (this.opened() === 'products') this.renderSingle(stepNamed('products'));
    }
    const now = { subject: this.subject, query: this.query, key: this.key };
    if (!this.kept) this.writeAbout({ subject: { id: 'weights', row: last, col: 0 }, query: last, key: 0 });
    this.writeAbout(now);
    const weights = rowOf(this.matrixOf('weights'), this.query);
    const one = rangeOf(state.range, answer.keys) === 'one' && !isSigned('weights', answer.summary.options);
    const most = one ? 1 : weights.reduce((top, weight) => Math.max(top, Math.abs(weight)), 0) || 1;
    this.words.tint({ row: this.query, weights, most, locked: state.row === this.query });
    this.mark();
  }

  explained() {
    const { answer, state, query: row } = this;
    const mask = this.maskOf('weights', state.head);
    return {
      query: elide(answer.query(row), LABEL),
      row: rowOf(this.matrixOf('weights'), row),
      mask: mask?.subarray(row * answer.keys, (row + 1) * answer.keys),
      keyLabel: (col) => elide(answer.key(col), LABEL),
      entropy: this.entropyOf(state.head)?.[row],
      locked: state.row === row,
    };
  }

  // Returns the sentence about the row of the subject, or about the state.
  sentence() {
    const { answer, state } = this;
    if (this.opened() !== 'states') return sentenceOf(this.explained());
    return answer.own.sayStep(state.batch, state.head, Math.min(state.position ?? Infinity, answer.queries - 1));
  }

  get arithmetic() {
    const { batch, head } = this.state ?? {};
    return this.answer ? found(this.answer, { batch, head, row: this.query, col: this.key }) : null;
  }

  // Writes about a subject. The first one after a change of the width is the last weight of the first key, because its sentence is long.
  writeAbout(what) {
    const { answer, parts, state } = Object.assign(this, what);
    const mean = state.mean && this.opened() !== 'flow' && answer.mean?.[state.batch];
    const way = (this.way = wayOf(answer, { batch: state.batch, head: state.head, mean }, what.subject, answer.body));
    parts.written.replaceChildren();
    const line = make('p', 'written-line', parts.written);
    make('b', '', line, way.title);
    for (const [text, kind] of way.parts) make('span', kind ?? '', line, text);
    // The words say nothing about a number of X, K, V or of what a model has learnt.
    const said = ofQuery(stepNamed(stepOf(what.subject.id))) || this.opened() === 'states';
    make('p', 'written-row', parts.written, said && parts.explanation.hidden ? this.sentence() : '');
    this.writeLegend();
    if (answer.own?.drawWay && stepNamed(stepOf(this.subject.id)).cols === 'key')
      answer.own.drawWay(make('div', 'way', parts.written), this.arithmetic);
    this.keepRoom(Math.max(this.kept, parts.written.offsetHeight));
    if (!parts.explanation.hidden) drawExplanation(parts.explanation, this.explained());
  }

  // Keeps so many pixels for what is written: as many as the longest sentence so far, so that the picture stays where it is.
  keepRoom(height) {
    if (height !== this.kept) this.parts.written.style.setProperty('--kept', `${height}px`);
    this.kept = height;
  }

  writeLegend() {
    if (this.opened() !== 'flow') return;
    const legend = make('p', 'written-legend', this.parts.written);
    for (const [kind, text] of Object.entries({ row: 'row', col: 'column', cell: 'this number', next: 'goes next' }))
      make('span', `mark-${kind}`, legend, text);
  }

  mark() {
    const { subject, state, way } = this;
    for (const { flow } of [this, ...this.sheets]) flow.mark({ subject, from: way.from, to: way.to });
    this.source?.classList.remove('mark-before');
    const other = way.source !== undefined && way.source !== state.head;
    this.source = other ? this.heads.root.querySelector(`[data-head="${way.source}"][data-batch="${state.batch}"]`) : null;
    this.source?.classList.add('mark-before');
    if (this.single.hidden) return;
    const step = stepNamed(this.opened());
    const marks = { rows: [], cols: [], cell: null, locked: ofQuery(step) ? state.row : null };
    if (stepOf(subject.id) === step.name) marks.cell = { row: subject.row, col: subject.col };
    else {
      const places = [...way.from, ...way.to].filter(({ id }) => stepOf(id) === step.name);
      for (const { row, col } of places) {
        if (row !== undefined && col !== undefined) marks.subject = { row, col };
        else if (row !== undefined) marks.rows.push(row);
        else marks.cols.push(col);
      }
      if (step.name === 'products') marks.rows.push(this.key);
      else if (!places.length && step.cols === 'key' && stepNamed(stepOf(subject.id)).cols === 'key') marks.subject = subject;
    }
    for (const { figure, pane } of this.panes) if (!pane.hidden) figure.mark(marks);
  }

  // ---------------------------------------------------------------- the pointer and the keys in one step

  placeIn({ row, col }) {
    const name = this.opened();
    const { projected } = this.answer.summary;
    return { id: name.length === 1 && !projected && name !== 'X' ? name.toLowerCase() : name, row, col };
  }

  pointIn(pane, cell, event) {
    if (event.pointerType === 'touch') return;
    if (!cell) return hideTooltip();
    this.point(this.placeIn(cell));
    this.tell(pane, cell, event);
  }

  facts(pane, cell) {
    const { matrix } = pane.figure.given;
    const step = stepNamed(this.opened());
    const weights = step.name === 'weights' ? matrix : this.matrixOf('weights');
    return factsOf(step, cell, { answer: this.answer, batch: this.state.batch, head: pane.head, matrix, weights });
  }

  tell(pane, cell, event) {
    const { title, entries } = this.facts(pane, cell);
    showTooltip(title, entries, event, pane.figure.rectOf(cell));
  }

  click(pane, cell, event) {
    const step = stepNamed(this.opened());
    if (this.state.editMask && step.cols === 'key') return this.act.toggleMask(cell.row, cell.col);
    if (ofQuery(step)) this.act.lock(this.state.row === cell.row ? null : cell.row);
    if (event?.pointerType !== 'touch') return;
    this.point(this.placeIn(cell));
    this.tell(pane, cell, event);
  }

  keydown(pane, event) {
    const { figure } = pane;
    const { rows, cols } = figure.given.matrix;
    const at = figure.marks.cell ?? { row: 0, col: 0 };
    const cell = movedCell(figure.marks.cell, event, figure.given.matrix);
    if (cell) {
      this.point(this.placeIn(cell));
      figure.reveal(cell);
      this.tell(pane, cell, {});
      const { title, entries } = this.facts(pane, cell);
      const shown = entries.slice(stepNamed(this.opened()).cols === 'key' ? 2 : 0);
      this.act.say(`${title}: ${shown.map((entry) => entry.slice(0, 2).join(' ')).join(', ')}`);
    } else if (event.key === 'Enter' || event.key === ' ') this.click(pane, at);
    else if ('+=-'.includes(event.key) && !event.ctrlKey && !event.metaKey && figure.zoomAt(at, event.key !== '-')) {
      const { row0, row1, col0, col1 } = figure.range;
      this.act.say(`rows ${row0} to ${row1 - 1} of ${rows}, columns ${col0} to ${col1 - 1} of ${cols}`);
    } else if (event.key === 'Escape') {
      // If nothing else is to be released, the first Escape hides the numbers. keyboard.js releases the row or goes back to the flow.
      if (!hideTooltip() || this.state.row !== null || this.state.editMask) return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
