// heads.js shows all heads as a grid of small maps, from which the user chooses one. Batch items are the rows. The maps can be sorted, and
// a head can be found by its number. Maps are painted when they come into sight.
import { fill, make, makeWith, setBox } from './dom.js';
import { moveAlong } from './keyboard.js';
import { formatNumber } from './numbers.js';
import markup from './parts/heads.html';
import { thumbSize } from './paint.js';

const THUMB = 24; // pixels; the longer side of a small map
const FEW = 12; // heads; more of them can be searched and sorted
const MOST = 4096; // maps; if there are more, only the heads of the chosen batch item are here

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Returns how far a head looks: the mean over queries of the distance to the keys, weighted. past: how many keys stand before those of the
// queries.
function distanceOf({ rows, cols, data }, past) {
  return data.reduce((sum, weight, at) => sum + Math.abs(weight * (Math.floor(at / cols) + past - (at % cols))), 0) / rows;
}

// The orders of heads. Each is a function of an answer, a batch item and a head; the head with the smallest number comes first.
const ORDERS = {
  index: (answer, batch, head) => head,
  entropy: (answer, batch, head) => mean(answer.entropy(batch, head).filter(Number.isFinite)),
  distance: (answer, batch, head) => distanceOf(answer.matrix('weights', batch, head), answer.past),
};

export class Heads {
  // on: {choose(head, batch), compare(head, batch), mean(), paint(canvas, batch, head)}
  constructor(root, on) {
    Object.assign(this, { root, on, ...fill(root, markup) });
    this.order.addEventListener('change', () => this.build());
    this.search.addEventListener('input', () => this.find());
    this.search.addEventListener('keydown', (event) => {
      const found = this.grid.querySelector('.head:not([hidden], [data-head="mean"])');
      if (event.key === 'Enter' && found) found.click();
    });
    const seen = (entries) => {
      for (const { target, isIntersecting } of entries) target.entry.seen = isIntersecting;
      this.paintSeen();
    };
    this.watcher = new IntersectionObserver(seen, { root: this.grid, rootMargin: '100px' });
    this.grid.addEventListener('keydown', (event) => moveAlong([...this.grid.querySelectorAll('.head:not([hidden])')], event));
  }

  // Shows the heads of an answer. look: what the colours depend on, as a text.
  show(answer, state, look) {
    const heads = answer.matrices.weights[0].length;
    this.root.hidden = heads < 2 && answer.batch < 2;
    this.state = state;
    if (this.root.hidden) return;
    const all = heads * answer.batch <= MOST;
    const { rows, cols } = answer.matrix('weights', 0, 0);
    const spread = Boolean(answer.entropy(0, heads - 1));
    const shown = [heads, answer.batch, rows, cols, spread, all ? '' : state.batch].join();
    const other = this.answer !== answer;
    this.answer = answer;
    this.look = look;
    if (this.shown !== shown || (other && this.order.value !== 'index')) {
      const orders = Object.keys(ORDERS).filter((name) => name !== 'entropy' || spread);
      const chosen = orders.includes(this.order.value) ? this.order.value : 'index';
      this.order.replaceChildren(...orders.map((name) => new Option(name)));
      this.order.value = chosen;
      this.tools.hidden = heads <= FEW && answer.batch < 2;
      this.items = all ? [...Array(answer.batch).keys()] : [state.batch];
      this.build();
    }
    this.shown = shown;
    this.press();
    this.paintSeen();
  }

  build() {
    const { answer, grid } = this;
    const heads = answer.matrices.weights[0].length;
    const number = ORDERS[this.order.value];
    const keys = Array.from({ length: heads }, (_, head) => mean(this.items.map((batch) => number(answer, batch, head))));
    const order = keys.map((_, head) => head).sort((a, b) => keys[a] - keys[b] || a - b);
    const left = this.items.length < answer.batch ? ` Here is item ${this.items[0]}.` : '';
    this.note.textContent = `${heads} head${heads > 1 ? 's' : ''}${answer.batch > 1 ? ` of ${answer.batch} batch items` : ''}.${left}`;
    this.watcher.disconnect();
    this.buttons = [];
    grid.replaceChildren();
    for (const batch of this.items) {
      const row = make('div', 'heads-row', grid);
      if (answer.batch > 1) make('span', 'heads-item', row, `item ${batch}`);
      for (const head of order) this.makeButton(row, head, batch, this.order.value === 'index' ? null : keys[head]);
    }
    if (heads > 1) this.makeMean();
    this.find();
    this.press();
  }

  makeButton(row, head, batch, key) {
    const title = 'Click to show this head. Hold Shift and click to show it beside the other one.';
    const onclick = ({ shiftKey }) => (shiftKey ? this.on.compare(head, batch) : this.on.choose(head, batch));
    const button = makeWith('button', row, { className: 'head', type: 'button', title, onclick });
    Object.assign(button.dataset, { head, batch });
    const canvas = makeWith('canvas', button, { className: 'thumb', ariaHidden: 'true' });
    setBox(canvas, thumbSize(this.answer.matrix('weights', batch, head), THUMB));
    make('span', '', button, `head ${head}`);
    if (key !== null) make('small', '', button, formatNumber(key, 3));
    button.entry = { button, canvas, head, batch, seen: false, matrix: null };
    this.buttons.push(button.entry);
    this.watcher.observe(button);
  }

  makeMean() {
    this.meanButton = makeWith('button', this.grid.lastChild, { className: 'head', type: 'button', onclick: () => this.on.mean() });
    this.meanButton.dataset.head = 'mean';
    make('span', 'mean-sign', this.meanButton, 'x̄');
    make('span', '', this.meanButton, 'mean');
  }

  press() {
    const { state, buttons } = this;
    const chosen = ({ head, batch }) => !state.mean && batch === state.batch && (head === state.head || head === state.compare);
    const current = buttons.find(({ head, batch }) => batch === state.batch && head === state.head);
    for (const one of buttons) Object.assign(one.button, { ariaPressed: String(chosen(one)), tabIndex: one === current ? 0 : -1 });
    if (this.meanButton) this.meanButton.ariaPressed = String(Boolean(state.mean));
  }

  // Paints the maps in sight whose matrix or colours have changed.
  paintSeen() {
    const { answer, look } = this;
    for (const one of this.buttons.filter(({ seen }) => seen)) {
      const matrix = answer.matrix('weights', one.batch, one.head);
      if (one.matrix === matrix && one.look === look) continue;
      Object.assign(one, { matrix, look });
      this.on.paint(one.canvas, one.batch, one.head);
    }
  }

  find() {
    const wanted = this.search.value.trim();
    for (const { button, head } of this.buttons) button.hidden = !String(head).startsWith(wanted);
    if (this.meanButton) this.meanButton.hidden = wanted !== '';
  }
}
