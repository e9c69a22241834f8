// view.js shows the steps on the page. It makes their articles once, fills them with an answer, and marks the cell that the pointer is on
// in all of them. main.js tells it what to show (an Answer and the state), and it tells main.js what the user does. It sends no request.
import { drawBars, barsWidth } from './bars.js';
import { css, makeScale, position, rangeOf } from './colour.js';
import { createSaveMenu } from './savemenu.js';
import { Figure } from './figure.js';
import { share } from './geometry.js';
import { createLines } from './lines.js';
import { createTable, formatNumber } from './numbers.js';
import { drawExplanation } from './explanation.js';
import { defer } from './defer.js';
import { formulaOf, GROUPS, STEPS, textOf, titleOf } from './steps.js';
import { drawThumb, thumbSize } from './thumbs.js';
import { hideTooltip, showTooltip } from './tooltip.js';

const GAP = 36; // pixels between the figures of a row, as in steps.css
const EXPLANATION = 264; // pixels; the width of the text beside the weights, as in explanation.css
const THUMB = 46; // pixels; the longer side of a small picture
const ENTROPY = 'entropy, nats';

function make(tag, className, parent, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

// Returns the colours of the theme that figures take.
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const names = { ink: '--ink-soft', paper: '--paper', hatch: '--hatch', bar: '--bar', track: '--track' };
  return Object.fromEntries(Object.entries(names).map(([name, property]) => [name, read(property)]));
}

// Makes the legend of a matrix: its smallest and its largest number, and between them a bar with the colours.
export function makeLegend({ lo, hi }, scale) {
  const stops = Array.from({ length: 17 }, (_, i) => css(scale.table, position(scale, lo + ((hi - lo) * i) / 16)));
  const legend = make('span', 'legend');
  const bar = make('span', 'bar');
  bar.style.background = `linear-gradient(90deg, ${stops})`;
  legend.append(make('span', 'low', null, formatNumber(lo, 3)), bar, make('span', 'high', null, formatNumber(hi, 3)));
  return legend;
}

export class View {
  // elements: the places of the steps (root), of the small pictures of steps (film) and of heads (strip), of the lines, and of the text.
  // act: the functions that view.js calls: {lock(row|null), head(h), compare(h), mean(), toggleMask(row, col), tell(title, detail),
  // say(text), picture({name, batch, head, mask, scale, part, side})}
  constructor({ root, film, strip, lines, explanation }, act) {
    Object.assign(this, { root, film, strip, act });
    this.parts = { lines, explanation };
    this.steps = new Map();
    this.hover = null;
    this.lines = null;
    this.headings = Object.keys(GROUPS).map((group) => [group, this.makeGroup(group)]);
    const weights = this.steps.get('weights');
    weights.panes.before(...document.querySelectorAll('[data-place="weights"]'));
    const both = make('div', 'weigh');
    weights.panes.before(both);
    both.append(lines, weights.panes, explanation);
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
    const lines = () => (step.name === 'weights' && this.state.lines ? this.lines.picture() : null);
    parts.foot = this.makeFoot(article, () => ({ ...this.saved(step, parts.figures[0]), lines: lines() }));
    parts.figures.push(this.makePane(step, panes));
    if (step.name === 'weights') parts.figures.push(this.makePane(step, panes));
    this.steps.set(step.name, parts);
  }

  // Makes the line below figures: their shape and colours, and a menu that saves chosen().
  makeFoot(parent, chosen) {
    const foot = make('footer', '', parent);
    const meta = make('p', 'meta', foot);
    return { foot, meta, menu: createSaveMenu(foot, chosen, this.act.tell) };
  }

  // Returns the line below a pane. If two heads stand side by side, each pane has its own line.
  footOf(parts, pane) {
    if (!this.beside() || this.state.lines) return parts.foot;
    pane.foot ??= this.makeFoot(pane.pane, () => this.saved(parts.step, pane));
    return pane.foot;
  }

  // Returns whether two heads stand side by side.
  beside() {
    return this.state.compare !== null && !this.state.mean;
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
    this.answer = answer;
    this.hover = null;
    this.render(state);
  }

  resized() {
    const width = this.root.clientWidth;
    if (!this.answer || width === this.width) return;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.render(this.state));
  }

  // Draws all steps for the present answer.
  render(state) {
    this.state = state;
    this.width = this.root.clientWidth;
    this.colours = colours();
    const { answer } = this;
    for (const { step, article } of this.steps.values()) article.hidden = !answer.matrix(step.name, state.batch, state.head);
    for (const parts of this.steps.values()) {
      if (!parts.article.hidden && parts.step.name !== 'weights') this.fill(parts, parts.figures[0], state.head);
    }
    for (const section of this.root.querySelectorAll('.group')) section.hidden = !section.querySelector('.step:not([hidden])');
    for (const [group, heading] of this.headings) heading.textContent = titleOf(group, answer.summary);
    this.renderWeights();
    this.renderStrip();
    this.renderFilm();
    this.mark();
  }

  // Returns the scale of colours of a matrix. Two heads side by side share a scale.
  scaleOf(name, matrix) {
    const { state, answer } = this;
    const beside = name === 'weights' && this.beside();
    const both = beside ? [state.head, state.compare].map((head) => answer.matrix(name, state.batch, head)) : [matrix];
    const signed = name !== 'weights' || answer.summary.options.normalization === 'none';
    const { palette, log, dark } = state;
    const lo = Math.min(...both.map((one) => one.lo));
    const fixed = !signed && rangeOf(state.range, answer.keys) === 'one';
    const hi = fixed ? 1 : Math.max(...both.map((one) => one.hi));
    return makeScale({ lo, hi, signed, log, palette, dark });
  }

  // Returns the width for a figure of a step, so that the figures of its group share the width of the page.
  share(step) {
    const { answer, state } = this;
    const row = STEPS.filter(({ name, group }) => group === step.group && !this.steps.get(name).article.hidden);
    const wide = ({ name, rows }) => ({ ...answer.matrix(name, state.batch, state.head), rowLabels: answer.label(rows) });
    return share(row.map(wide), this.width, GAP);
  }

  // Fills a pane of a step. matrix, mask and name are those of the mean over heads; otherwise they are those of the head.
  fill(parts, pane, head, { width = this.share(parts.step), matrix, mask, most, name = parts.step.name } = {}) {
    const { answer, state } = this;
    const { step } = parts;
    const { batch } = state;
    const shown = matrix ?? answer.matrix(step.name, batch, head);
    const hatched = mask ?? (step.name === 'weights' ? answer.maskOfWeights(batch, head) : null);
    const scale = this.scaleOf(step.name, shown);
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
      masked: hatched ? answer.matrix('masked_scores', batch, head).masked : shown.masked,
      rowLabels,
      colLabels,
      scale,
      width,
      most,
      colours: this.colours,
      label: `${step.title}: ${shown.rows} × ${shown.cols}, ${range}. Arrow keys move, Enter keeps a row.`,
      picture: (picked, part, side) => this.act.picture({ name, ...place, mask: maskName, scale: picked, part, side }),
    });
    this.describe(parts, pane, shown, scale);
    this.writeNumbers(parts, pane, { matrix: shown, mask: hatched, rowLabels, colLabels });
  }

  // Writes the formula and the text of a step, and the line below its figure.
  describe(parts, pane, matrix, scale) {
    const { step, formula, text } = parts;
    if (this.state.lines && pane !== parts.figures[0]) return;
    const { meta, menu } = step.name === 'weights' ? this.footOf(parts, pane) : parts.foot;
    const { statistics, summary } = this.answer;
    formula.innerHTML = formulaOf(step, summary);
    text.textContent = textOf(step, summary);
    menu.name(step.name === 'weights' && this.beside() ? `${step.title}, head ${pane.head}` : step.title);
    const variance = statistics?.variance[step.name];
    meta.replaceChildren(
      make('span', 'shape', null, `${matrix.rows} × ${matrix.cols}`),
      makeLegend(matrix, scale),
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
    const wide = this.width >= 760 && !two;
    const panes = two ? 2 : 1;
    const room = this.width - (wide ? EXPLANATION + GAP : 0) - (panes - 1) * GAP;
    const narrow = this.width < 520;
    const matrixOf = (head) => mean || answer.matrix('weights', state.batch, head);
    second.pane.hidden = !two;
    parts.article.classList.toggle('as-lines', state.lines);
    parts.article.classList.toggle('beside', two);
    parts.foot.foot.hidden = two && !state.lines;
    for (const { foot } of parts.figures) if (foot) foot.foot.hidden = !two || state.lines;
    const shown = [[first, state.head], ...(two ? [[second, state.compare]] : [])];
    const largest = Math.max(...shown.map(([, head]) => matrixOf(head).hi));
    for (const [pane, head] of shown) {
      pane.head = head;
      const bars = narrow ? [] : this.barColumns(pane, matrixOf(head), largest);
      const fits = room / panes - barsWidth(bars) >= 200;
      const width = Math.min((fits ? room / panes : this.width) - barsWidth(bars), 640);
      pane.title.textContent = two ? `head ${head}` : mean ? `mean of ${answer.heads} heads` : answer.heads > 1 ? `head ${head}` : '';
      const more = mean ? { matrix: mean, mask: answer.commonMask(state.batch) ?? undefined, name: 'mean' } : {};
      this.fill(parts, pane, head, { width, most: 64, ...more });
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
    this.parts.lines.hidden = !state.lines;
    if (!state.lines) return;
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

  // Draws the choice of heads as small pictures.
  renderStrip() {
    const { state, answer, strip } = this;
    const heads = answer.matrices.weights[0].length;
    strip.hidden = heads < 2;
    if (heads < 2) return strip.replaceChildren();
    const most = 24;
    const list = [];
    for (let head = 0; head < Math.min(heads, most); head++) list.push(this.headButton(head));
    const mean = Object.assign(make('button', 'head', null), { type: 'button' });
    mean.dataset.head = 'mean';
    make('span', 'mean-sign', mean, 'x̄');
    make('span', '', mean, 'mean');
    mean.setAttribute('aria-pressed', String(Boolean(state.mean)));
    mean.addEventListener('click', () => this.act.mean());
    list.push(mean);
    const focus = strip.contains(document.activeElement) ? document.activeElement.dataset.head : null;
    strip.replaceChildren(...list);
    if (focus !== null) strip.querySelector(`[data-head="${focus}"]`)?.focus();
  }

  headButton(head) {
    const { state, answer } = this;
    const title = 'Shift and a click show this head beside the other';
    const button = Object.assign(make('button', 'head', null), { type: 'button', title });
    button.dataset.head = head;
    const matrix = answer.matrix('weights', state.batch, head);
    const canvas = make('canvas', 'thumb', button);
    const { width, height } = thumbSize(matrix, THUMB);
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    canvas.setAttribute('aria-hidden', 'true');
    this.thumb(canvas, 'weights', head);
    make('span', '', button, `head ${head}`);
    const pressed = !state.mean && (head === state.head || head === state.compare);
    button.setAttribute('aria-pressed', String(pressed));
    button.addEventListener('click', (event) => (event.shiftKey ? this.act.compare(head) : this.act.head(head)));
    return button;
  }

  thumb(canvas, name, head) {
    const { state, answer } = this;
    const matrix = answer.matrix(name, state.batch, head);
    const mask = name === 'weights' ? answer.maskOfWeights(state.batch, head) : null;
    const scale = this.scaleOf(name, matrix);
    const place = answer.place(name, state.batch, head);
    const maskName = mask ? 'masked_scores' : null;
    const picture = (part, side) => this.act.picture({ name, ...place, mask: maskName, scale, part, side });
    defer(canvas, () => drawThumb(canvas, matrix, mask, scale, picture));
  }

  // Draws all steps as small pictures. Each of them leads to its step.
  renderFilm() {
    const { state, film } = this;
    film.replaceChildren();
    let last = null;
    for (const { step, article } of this.steps.values()) {
      if (article.hidden) continue;
      if (last) make('span', last === step.group ? 'with' : 'then', film).setAttribute('aria-hidden', 'true');
      last = step.group;
      const button = Object.assign(make('button', 'frame', film), { type: 'button' });
      button.dataset.frame = step.name;
      const canvas = make('canvas', 'thumb', button);
      const { width, height } = thumbSize(this.answer.matrix(step.name, state.batch, state.head), THUMB);
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      canvas.setAttribute('aria-hidden', 'true');
      this.thumb(canvas, step.name, state.head);
      make('span', '', button, step.name === 'X' ? 'X' : 'QKV'.includes(step.name) ? step.name : step.title);
      button.addEventListener('click', () => {
        article.scrollIntoView({ block: 'start' });
        article.querySelector('.figure').focus({ preventScroll: true });
      });
    }
  }

  // Returns the indices of the query and the key that a cell of a step belongs to, as far as it has them: {step, row, col, query, key}.
  meaning(step, { row, col }) {
    const found = { step: step.name, row, col };
    if (step.rows === 'query' || step.rows === 'both') found.query = row;
    if (step.rows === 'key' || step.rows === 'both') found.key = row;
    if (step.cols === 'key') found.key = col;
    return found;
  }

  point(step, pane, cell, event) {
    if (event.pointerType === 'touch') return;
    if (!cell) {
      hideTooltip();
      this.setHover(null);
      return;
    }
    const same = this.hover?.step === step.name && this.hover.row === cell.row && this.hover.col === cell.col;
    if (!same) this.setHover(this.meaning(step, cell));
    this.tell(step, pane, cell, event);
  }

  paneOf(step, pane) {
    return this.steps.get(step.name).figures.find((one) => one.pane === pane);
  }

  // Returns the numbers of a cell, as {title, entries}; each entry is [name, value, strong].
  facts(step, pane, { row, col }) {
    const { answer, state } = this;
    const { head, figure } = this.paneOf(step, pane);
    const value = (name) => {
      const matrix = answer.matrix(name, state.batch, head);
      return matrix ? formatNumber(matrix.data[row * matrix.cols + col]) : '–';
    };
    if (step.cols !== 'key') {
      const { matrix } = figure.given;
      const own = formatNumber(matrix.data[row * matrix.cols + col]);
      return { title: `${answer.label(step.rows)(row)}, column ${col}`, entries: [[step.title, own, true]] };
    }
    const shown = this.steps.get('weights').figures.find((one) => one.head === head)?.figure.given.matrix;
    const weights = step.name === 'weights' ? figure.given.matrix : (shown ?? answer.matrix('weights', state.batch, head));
    const weight = weights.data[row * weights.cols + col];
    const masked = answer.mask(state.batch, head)?.[row * answer.keys + col] === 1;
    const rest = weights.data.subarray(row * weights.cols, (row + 1) * weights.cols);
    const rank = 1 + rest.reduce((count, other) => count + (other > weight), 0);
    const entries = [
      ['query', answer.query(row)],
      ['key', answer.key(col)],
      ['weight', masked ? 'masked' : formatNumber(weight), true],
      ['score', value('scores')],
      ['scaled', value('scaled_scores')],
      ['masked', value('masked_scores')],
      ...(masked ? [] : [['rank in row', `${rank} of ${rest.length}`]]),
    ];
    return { title: `${answer.query(row)} → ${answer.key(col)}`, entries };
  }

  tell(step, pane, cell, event) {
    const { title, entries } = this.facts(step, pane, cell);
    showTooltip(title, entries, event);
  }

  setHover(hover) {
    if (hover === this.hover) return;
    this.hover = hover;
    this.mark();
  }

  // Marks the cell that the pointer is on, and the locked row, in all steps.
  mark() {
    const { hover, state, answer } = this;
    for (const { step, article, figures } of this.steps.values()) {
      if (article.hidden) continue;
      const marks = { rows: [], cols: [], cell: null, locked: step.rows === 'query' || step.rows === 'both' ? state.row : null };
      if (hover) {
        const { query, key } = hover;
        const rows = { query: [query], key: [key], both: [query, key] }[step.rows];
        marks.rows = [...new Set(rows.filter((row) => row !== undefined))];
        if (step.cols === 'key') {
          if (query !== undefined && key !== undefined && hover.step !== 'X') marks.cell = { row: query, col: key };
          else if (key !== undefined && query === undefined) marks.cols = [key];
        } else if (hover.step === step.name) {
          marks.cell = { row: hover.row, col: hover.col };
        }
      }
      for (const { figure, pane } of figures) if (!pane.hidden) figure.mark(marks);
    }
    const row = state.row ?? hover?.query ?? null;
    this.explain(row !== null && row < answer.queries ? row : null);
  }

  explain(row) {
    if (row === null) return drawExplanation(this.parts.explanation, null);
    const { answer, state } = this;
    const [pane] = this.steps.get('weights').figures;
    const { matrix, mask } = pane.figure.given;
    const part = (all) => all?.subarray(row * matrix.cols, (row + 1) * matrix.cols);
    const keyLabel = (col) => answer.key(col);
    drawExplanation(this.parts.explanation, {
      query: answer.query(row),
      row: part(matrix.data),
      mask: part(mask),
      keyLabel,
      entropy: this.entropyOf(pane)?.[row],
      locked: state.row === row,
    });
  }

  click(step, pane, cell, event) {
    if (this.state.editMask && step.cols === 'key') return this.act.toggleMask(cell.row, cell.col);
    const { query } = this.meaning(step, cell);
    if (query !== undefined) this.act.lock(this.state.row === query ? null : query);
    if (event?.pointerType === 'touch') {
      this.setHover(this.meaning(step, cell));
      this.tell(step, pane, cell, event);
    }
  }

  keydown(step, pane, event) {
    const { figure } = this.paneOf(step, pane);
    const { rows, cols } = figure.given.matrix;
    const at = this.hover?.step === step.name ? this.hover : { row: 0, col: 0, fresh: true };
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in moves && !event.altKey && !event.ctrlKey && !event.metaKey) {
      const [down, right] = at.fresh ? [0, 0] : moves[event.key];
      const within = (x, count) => Math.min(Math.max(x, 0), count - 1);
      const cell = { row: within(at.row + down, rows), col: within(at.col + right, cols) };
      this.setHover(this.meaning(step, cell));
      figure.reveal(cell);
      this.tell(step, pane, cell, figure.placeOf(cell));
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
