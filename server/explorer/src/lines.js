// lines.js shows attention as lines between two columns of words, with the queries on the left and the keys on the right. A line is
// stronger if its weight is larger. When the pointer is on a word, only the lines of this word are shown, with their weights as numbers and
// bars. A click locks the word.
//
// Words and lines are made only for the rows that are in view, so that 1024 words cost as much as 30. figurecolours.css has the colours of
// the heads. pairs.js chooses the pairs.
import { make, makeSVG, makeWith } from './dom.js';
import { toSVG } from './download.js';
import { choosePairs, makeHead, weightText } from './pairs.js';

const ROW = 26; // pixels; the height of a word
const HEAD_COLOURS = 8;
const MAX_VIEW = 26 * ROW; // pixels; the view scrolls if it would be higher
const MAX_LINES = 600; // the strongest are shown if there are more
const CLEAR_LINES = 400; // more lines are drawn weaker, so that they do not cover each other

// Gives what belongs to a head its colour, and returns it.
function tint(element, colour) {
  element.style.setProperty('--lines-colour', `var(--head-${colour})`);
  return element;
}

const hundredths = (value) => Math.round(value * 100) / 100;

// Makes a line from the left, at the height y0, to `width`, at the height y1.
function pathOf({ head, query, key, weight, strength, width, y0, y1 }) {
  const d = `M0 ${y0}C${width / 2} ${y0} ${width / 2} ${y1} ${width} ${y1}`;
  const look = { 'stroke-opacity': hundredths(0.06 + 0.86 * strength), 'stroke-width': hundredths(0.6 + 3 * strength) };
  const className = `lines-line${weight < 0 ? ' lines-negative' : ''}`;
  return tint(makeSVG('path', { d, class: className, ...look, 'data-query': query, 'data-key': key }), head);
}

const barOf = ({ colour, part }) =>
  tint(makeWith('span', null, { className: 'lines-bar', style: `width: ${Math.round(part * 100)}%` }), colour);

// A column of words. It makes the buttons of the words that are in view, and removes the others.
// side: query or key. label: the name of the column for screen readers.
class Column {
  constructor(side, label, parent) {
    this.side = side;
    const className = `lines-column lines-${side === 'query' ? 'queries' : 'keys'}`;
    this.root = makeWith('div', parent, { className, role: 'group', ariaLabel: label });
    this.words = new Map();
    this.current = 0;
  }

  make(index) {
    const word = makeWith('button', this.root, { className: 'lines-word', type: 'button' });
    word.dataset[this.side] = index;
    const [label, value, bars] = ['label', 'value', 'bars'].map((name) => make('span', `lines-${name}`, word));
    const made = { word, label, value, bars };
    this.words.set(index, made);
    return made;
  }

  // Shows the words from `first` to before `last` with their labels, moved up by `scrolled` pixels.
  show(first, last, labels, scrolled) {
    const focused = this.root.contains(document.activeElement) ? Number(document.activeElement.dataset[this.side]) : -1;
    for (const [index, { word }] of this.words) {
      if (index >= labels.length || ((index < first || index >= last) && index !== focused)) {
        word.remove();
        this.words.delete(index);
      }
    }
    if (this.current < first || this.current >= last) this.current = focused >= 0 && focused < labels.length ? focused : first;
    for (let index = first; index < last; index++) {
      const { label } = this.words.get(index) ?? this.make(index);
      if (label.textContent !== labels[index]) {
        label.textContent = labels[index];
        label.parentElement.title = `${this.side} ${index}: ${labels[index]}`;
      }
    }
    for (const [index, { word }] of this.words) {
      word.style.transform = `translateY(${index * ROW - scrolled}px)`;
      word.tabIndex = index === this.current ? 0 : -1;
    }
  }

  // Marks the word that is shown alone, and writes the weights beside each word. weightsOf(index) returns {colour, weight, part, masked} for
  // each head; without weightsOf, nothing is written.
  annotate(active, locked, weightsOf) {
    for (const [index, { word, value, bars }] of this.words) {
      word.classList.toggle('lines-active', index === active);
      word.setAttribute('aria-pressed', String(index === locked));
      const weights = weightsOf?.(index) ?? [];
      const open = weights.filter(({ masked }) => !masked);
      const mean = open.reduce((sum, { weight }) => sum + weight, 0) / open.length;
      value.textContent = weights.length === 0 ? '' : open.length === 0 ? 'masked' : weightText(mean);
      value.classList.toggle('lines-masked', weights.length > 0 && open.length === 0);
      bars.replaceChildren(...open.map(barOf));
    }
  }
}

class Lines {
  constructor(container, { onHover, onLock }) {
    Object.assign(this, { onHover, onLock });
    this.root = make('div', 'lines', container);
    this.legend = make('ul', 'lines-legend', this.root);
    this.scroll = make('div', 'lines-scroll', this.root);
    this.space = make('div', 'lines-space', this.scroll);
    this.layer = make('div', 'lines-layer', this.space);
    const queries = new Column('query', 'queries', this.layer);
    this.stage = make('div', 'lines-stage', this.layer);
    this.svg = makeSVG('svg', { class: 'lines-svg', 'aria-hidden': 'true', preserveAspectRatio: 'none' }, this.stage);
    this.columns = { query: queries, key: new Column('key', 'keys', this.layer) };
    this.note = make('p', 'lines-note', this.root);
    this.data = null;
    this.pointed = null; // the word that the pointer is on or that has the focus: {side, index}
    this.lockedKey = null;
    this.frame = 0;
    const on = (target, name, does) => target.addEventListener(name, does);
    on(this.scroll, 'scroll', () => this.later());
    on(this.layer, 'pointerover', (event) => this.point(this.wordOf(event.target)));
    on(this.layer, 'pointerleave', () => this.point(null));
    on(this.layer, 'focusin', (event) => {
      const word = this.wordOf(event.target);
      if (!word) return;
      this.columns[word.side].current = word.index;
      this.point(word);
    });
    on(this.layer, 'focusout', () => this.point(null));
    on(this.layer, 'click', (event) => this.lock(this.wordOf(event.target)));
    on(this.root, 'keydown', (event) => this.keydown(event));
    new ResizeObserver(() => this.later()).observe(this.root);
    for (const [event, height] of Object.entries({ beforeprint: 'none', afterprint: '' })) {
      on(window, event, () => {
        this.scroll.style.maxHeight = height; // paper does not scroll
        this.render();
      });
    }
  }

  wordOf(target) {
    const [[side, index] = []] = Object.entries(target.closest?.('.lines-word')?.dataset ?? {});
    return side ? { side, index: Number(index) } : null;
  }

  point(word) {
    if (word?.side === this.pointed?.side && word?.index === this.pointed?.index) return;
    this.pointed = word;
    this.onHover(word && { query: word.side === 'query' ? word.index : null, key: word.side === 'key' ? word.index : null });
    this.later();
  }

  // Locks a word, or releases it. The caller keeps a locked query (`row`); this object keeps a locked key.
  lock(word) {
    if (!this.data || !word) return;
    const { row } = this.data;
    if (word.side === 'query') this.keep(row === word.index ? null : word.index, null);
    else this.keep(null, this.lockedKey === word.index ? null : word.index);
  }

  keep(row, key) {
    this.lockedKey = key;
    if (this.data.row !== row) {
      this.data.row = row;
      this.onLock(row);
    }
    this.later();
  }

  keydown(event) {
    const word = this.wordOf(document.activeElement);
    if (!this.data || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === 'Escape' && (this.data.row !== null || this.lockedKey !== null)) this.keep(null, null);
    else if (word && this.move(word, event.key)) event.preventDefault();
    else return;
    event.stopPropagation();
  }

  // Moves the focus from a word to another one. Returns false if the key does not move it.
  move({ side, index }, key) {
    const lengths = { query: this.data.rows, key: this.data.cols };
    const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    const across = { ArrowLeft: 'query', ArrowRight: 'key' }[key];
    if (!across && !(key in steps)) return false;
    const to = across ?? side;
    const place = Math.max(0, Math.min(lengths[to] - 1, index + (steps[key] ?? 0)));
    this.reveal(place);
    const column = this.columns[to];
    column.current = place;
    this.render();
    column.words.get(place).word.focus({ preventScroll: true });
    return true;
  }

  reveal(index) {
    const top = index * ROW;
    const { scrollTop, clientHeight } = this.scroll;
    if (top < scrollTop) this.scroll.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.scroll.scrollTop = top + ROW - clientHeight;
  }

  // Returns the word whose lines are shown alone, as {side, index, locked}, or null.
  active() {
    if (this.data.row !== null) return { side: 'query', index: this.data.row, locked: true };
    if (this.lockedKey !== null) return { side: 'key', index: this.lockedKey, locked: true };
    return this.pointed;
  }

  update(given) {
    const { rows, cols, threshold, mode, row } = given;
    const before = this.data;
    const same = before && before.rows === rows && before.cols === cols;
    const heads = given.heads.map(({ weights, masked, name, index }) => {
      const old = same && before.heads.find((head) => head.weights === weights && head.masked === masked);
      return Object.assign(old || makeHead(weights, masked), { name, colour: index % HEAD_COLOURS });
    });
    if (before && (before.threshold !== threshold || before.mode !== mode)) heads.forEach((head) => head.cuts.clear());
    this.data = { ...given, heads };
    if (!same) this.lockedKey = this.pointed = null;
    this.space.style.height = `${Math.max(rows, cols) * ROW}px`;
    this.scroll.style.height = `${Math.min(Math.max(rows, cols) * ROW, MAX_VIEW)}px`;
    if (row !== null && row !== before?.row) this.reveal(row);
    this.legend.hidden = heads.length < 2;
    this.legend.replaceChildren(...heads.map(({ colour, name }) => tint(make('li', '', null, name), colour)));
    this.later();
  }

  later() {
    this.frame ||= requestAnimationFrame(() => this.render());
  }

  render() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.data || this.root.clientWidth === 0) return;
    const { rows, cols, queryLabels, keyLabels } = this.data;
    const scrolled = this.scroll.scrollTop;
    const height = this.scroll.clientHeight;
    const first = Math.floor(scrolled / ROW);
    const last = Math.ceil((scrolled + height) / ROW);
    this.layer.style.height = `${height}px`;
    this.columns.query.show(Math.min(first, rows), Math.min(last, rows), queryLabels, scrolled);
    this.columns.key.show(Math.min(first, cols), Math.min(last, cols), keyLabels, scrolled);
    this.annotate();
    this.draw(first, last, scrolled, height);
  }

  // Writes the weights beside the words of the other column while one word is shown alone.
  annotate() {
    const active = this.active();
    const { heads, cols } = this.data;
    const max = Math.max(...heads.map((head) => head.max)) || 1;
    const at = (i) =>
      heads.map(({ weights, masked, colour }) => ({ colour, weight: weights[i], part: Math.abs(weights[i]) / max, masked: masked?.[i] }));
    for (const column of Object.values(this.columns)) {
      const own = active?.side === column.side;
      const other = (index) => (active.side === 'query' ? at(active.index * cols + index) : at(index * cols + active.index));
      column.annotate(own ? active.index : -1, own && active.locked ? active.index : -1, active && !own ? other : null);
    }
    this.root.dataset.active = active ? `${active.side}-${active.index}` : '';
  }

  draw(first, last, scrolled, height) {
    const { rows, cols, heads, threshold, mode } = this.data;
    const active = this.active();
    const rule = { cols, threshold, mode, key: active?.side === 'key' ? active.index : null };
    const [from, to] = active?.side === 'query' ? [active.index, active.index + 1] : [Math.min(first, rows), Math.min(last, rows)];
    const { lines, count } = choosePairs(heads, from, to, rule, MAX_LINES);
    const width = this.stage.clientWidth;
    // Many lines at full strength would cover each other.
    const density = Math.max(0.25, Math.min(1, Math.sqrt(CLEAR_LINES / lines.length)));
    for (const line of lines) {
      const [y0, y1] = [line.query, line.key].map((at) => (at + 0.5) * ROW - scrolled);
      Object.assign(line, { width, y0, y1, head: heads[line.head].colour, strength: line.strength * density });
    }
    this.drawn = lines.filter(({ y0, y1 }) => Math.min(y0, y1) < height && Math.max(y0, y1) > 0);
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...this.drawn.map(pathOf));
    const strongest = count > lines.length ? `the ${lines.length} strongest of ` : '';
    const part = active?.side !== 'query' && rows * ROW > height ? ' of the queries in view' : '';
    this.note.textContent = `${strongest}${count} ${count === 1 ? 'line' : 'lines'}${part}`;
  }

  rule() {
    const { mode, threshold, queryLabels, keyLabels } = this.data;
    const active = this.active();
    const word = active && (active.side === 'query' ? queryLabels : keyLabels)[active.index];
    const least = threshold ? `weights of at least ${threshold}` : 'all weights';
    const rule = mode === 'mass' ? `the largest weights that sum to ${Math.round(threshold * 100)} %` : least;
    return `${rule}${active ? ` of the ${active.side} ${word}` : ''}: ${this.note.textContent}`;
  }

  // Writes the legend of a picture below `top`: the colour of each head, and which lines are shown. Returns the height of the legend.
  writeLegend(picture, width, top) {
    let [x, y] = [8, top + ROW / 2];
    const { heads } = this.data;
    for (const { name, colour } of heads) {
      const text = makeSVG('text', { class: 'lines-written' }, picture, name);
      const needed = text.getComputedTextLength() + 44;
      if (x > 8 && x + needed > width) [x, y] = [8, y + ROW];
      text.setAttribute('x', x + 28);
      text.setAttribute('y', y + 5);
      tint(makeSVG('line', { class: 'lines-line', x1: x, x2: x + 22, y1: y, y2: y, 'stroke-width': 3.6 }, picture), colour);
      x += needed;
    }
    makeSVG('text', { class: 'lines-written', x: 8, y: y + ROW + 5 }, picture, this.rule());
    return y + 2 * ROW - top;
  }

  // Returns the lines and words in view, with a legend, as an SVG file on the ground of the page: {text, width, height}. printed: whether the
  // picture is for a paper: in the colours of the light theme on white.
  picture(printed = false) {
    this.render();
    const place = this.layer.getBoundingClientRect();
    const { width } = place;
    const stage = this.stage.getBoundingClientRect();
    const picture = makeSVG('svg', { class: 'lines-picture', width }, this.root);
    const ground = makeSVG('rect', { class: printed ? '' : 'lines-ground', width, ...(printed && { fill: 'white' }) }, picture);
    makeSVG('g', { transform: `translate(${stage.left - place.left} 0)` }, picture).append(...this.drawn.map(pathOf));
    for (const { root, side, words } of Object.values(this.columns)) {
      const column = root.getBoundingClientRect();
      const query = side === 'query';
      const x = (query ? column.right - 8 : column.left + 8) - place.left;
      for (const { word, label, value } of words.values()) {
        const at = word.getBoundingClientRect();
        const y = (at.top + at.bottom) / 2 - place.top + 5;
        const weight = value.textContent && ` ${value.textContent}`;
        const text = query ? `${weight} ${label.textContent}` : `${label.textContent} ${weight}`;
        makeSVG('text', { class: 'lines-written', x, y, 'text-anchor': query ? 'end' : 'start' }, picture, text.trim());
      }
    }
    const height = place.height + this.writeLegend(picture, width, place.height);
    for (const element of [picture, ground]) element.setAttribute('height', height);
    const { dataset } = document.documentElement;
    const { theme } = dataset;
    if (printed) dataset.theme = 'light';
    const file = toSVG(picture);
    if (theme) dataset.theme = theme;
    else delete dataset.theme;
    picture.remove();
    return file;
  }
}

// Makes the lines in `container`. onHover({query, key}) is called when the pointer is on a word; one of the two is null. It is called with
// null when the pointer leaves the words. onLock(row) is called with the locked query, or with null.
//
// update(data) takes {rows, cols, queryLabels, keyLabels, heads: [{weights, masked, name, index}], threshold, mode, row}. masked may be missing.
// Each head has the colour of its index. With mode 'mass', threshold is the part of a row that the fewest keys must hold; with 'weight', it is
// the least weight. The weights are not copied, so changed weights must come in a new array.
export const createLines = (container, callbacks) => new Lines(container, callbacks);
