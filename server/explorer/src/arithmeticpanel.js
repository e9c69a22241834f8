// arithmeticpanel.js shows the arithmetic of one cell at the lower edge of the window, where it stays in sight: two strips for q and k,
// their products, the way from the score to the weight, and the part of the output.
import { largestOf } from './arithmetic.js';
import { makeScale } from './colour.js';
import { make } from './dom.js';
import { wholeRange } from './geometry.js';
import { formatNumber } from './numbers.js';
import { CanvasSurface, paintCells } from './paint.js';

const CELL = { height: 19, most: 52 }; // pixels; the height of a cell, and its greatest width
const MOST = 256; // columns of a strip
const SPOKEN = 16; // numbers of a strip that a screen reader is told

// A block of strips that have the same columns, with a line below them about the column that the pointer is on.
class Strips {
  constructor(parent, className, say) {
    this.root = make('div', `strips ${className}`, parent);
    this.names = make('div', 'strip-names', this.root);
    this.canvas = make('canvas', '', this.root);
    Object.assign(this.canvas, { tabIndex: 0 });
    this.canvas.setAttribute('role', 'img');
    this.line = make('p', 'strip-line', this.root);
    this.say = say;
    this.column = null;
    this.canvas.addEventListener('pointermove', (event) => this.point(Math.floor((event.offsetX / this.canvas.clientWidth) * this.cols)));
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('blur', () => this.point(null));
    this.canvas.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      this.point(this.column === null ? 0 : this.column + step);
      this.say(this.line.textContent);
      event.preventDefault();
      event.stopPropagation();
    });
  }

  point(column) {
    this.column = column === null ? null : Math.min(Math.max(column, 0), this.cols - 1);
    this.paint();
  }

  // rows: [{name, values, scale}]. tell(column, pointed) returns the line about a column; column is null if the pointer is on none.
  show({ rows, tell, most }) {
    const count = rows[0].values.length;
    Object.assign(this, { rows, tell, cols: Math.min(count, MOST), count });
    this.width = Math.min(CELL.most * this.cols, most);
    if (this.column !== null && this.column >= this.cols) this.column = null;
    this.names.replaceChildren(...rows.map(({ name }) => make('span', '', null, name)));
    Object.assign(this.canvas.style, { width: `${this.width}px`, height: `${rows.length * CELL.height}px` });
    const spoken = rows.map(({ name, values }) => {
      const numbers = Array.from(values.subarray(0, SPOKEN), (value) => formatNumber(value, 3)).join(', ');
      return `${name}: ${numbers}${count > SPOKEN ? `, and ${count - SPOKEN} more` : ''}`;
    });
    this.canvas.setAttribute('aria-label', `${spoken.join('; ')}. Arrow keys go through the columns.`);
    this.paint();
  }

  paint() {
    const { rows, cols, count, column, width, canvas } = this;
    const surface = new CanvasSurface(canvas, { width, height: rows.length * CELL.height }, window.devicePixelRatio);
    const size = { width: width / cols, height: CELL.height, gap: width / cols >= 4 ? 1 : 0 };
    rows.forEach(({ values, scale }, at) => {
      if (at) surface.move(0, CELL.height);
      const matrix = { rows: 1, cols, data: values };
      paintCells(surface, {
        matrix,
        scale,
        range: wholeRange(matrix),
        size,
        numbers: true,
        readable: { width: 32, height: 0 },
        digits: size.width < 44 ? 2 : 3,
      });
    });
    if (column !== null)
      surface.outline(
        column * size.width,
        -(rows.length - 1) * CELL.height,
        size.width - size.gap,
        rows.length * CELL.height - 1,
        getComputedStyle(canvas).getPropertyValue('--mark'),
      );
    this.line.textContent = `${this.tell(column)}${count > cols ? ` The first ${cols} of ${count} columns are here.` : ''}`;
  }
}

// Makes the panel. say(text) tells a screen reader.
export class ArithmeticPanel {
  constructor(root, say) {
    this.root = root;
    this.title = Object.assign(make('button', 'quiet arithmetic-title', root), { type: 'button' });
    const body = make('div', 'arithmetic-body', root);
    this.keys = new Strips(body, 'strips-keys', say);
    const middle = make('div', 'chain-place', body);
    this.chain = make('ol', 'chain', middle);
    this.way = make('div', 'way', middle);
    this.values = new Strips(body, 'strips-values', say);
    this.body = body;
    this.open(!matchMedia('(max-width: 900px)').matches);
    this.title.addEventListener('click', () => this.open(!this.opened));
  }

  // Shows the strips, or only the way from the score to the weight.
  open(opened) {
    this.opened = opened;
    this.title.setAttribute('aria-expanded', String(opened));
    this.body.classList.toggle('closed', !opened);
    if (!opened || !this.given) return;
    this.measure();
    this.show(this.given);
  }

  link(what, value, strong) {
    const item = make('li', strong ? 'strong' : '', this.chain);
    make('span', 'what', item, what);
    if (value !== null) make('b', '', item, formatNumber(value, 4));
  }

  // Reads the width of the panel. It must be called before the page changes, because reading it later would compute the layout once more.
  measure() {
    this.room = this.body.clientWidth;
  }

  // given: {found, drawWay, query, key, head, dark}. found: what arithmetic() returns. drawWay(place, found) draws what happened between the
  // key and the query, without softmax. query, key: their labels. head: a text, or empty.
  show(given) {
    this.given = given;
    const { found, query, key, head } = given;
    this.root.hidden = false;
    const weight = found.forbidden ? 'masked' : formatNumber(found.weight, 4);
    this.title.replaceChildren(make('b', '', null, `${query} → ${key}`), ` ${head ? `${head}, ` : ''}weight ${weight}`);
    this.showChain(found);
    this.way.replaceChildren();
    this.body.classList.toggle('with-way', Boolean(given.drawWay));
    if (!this.opened) return;
    given.drawWay?.(this.way, found);
    const room = this.room;
    const compact = Math.max(found.q?.length ?? 0, found.v?.length ?? 0) <= 8;
    const half = room < 700 ? room - 64 : compact ? room / 3.4 : room / 2 - 90;
    this.body.classList.toggle('compact', compact);
    this.showKeys(given, half);
    this.showValues(given, half);
  }

  showKeys({ found, dark }, most) {
    const { q, k, products } = found;
    this.keys.root.hidden = !q;
    if (!q) return;
    const scale = (...arrays) =>
      makeScale({ lo: -largest(...arrays), hi: largest(...arrays), signed: true, log: false, palette: '', dark });
    const tell = (column) => {
      const at = column ?? largestOf(products);
      const [a, b, c] = [q[at], k[at], products[at]].map((value) => formatNumber(value, 4));
      return `${column === null ? 'largest product: ' : ''}column ${at}: ${a} × ${b} = ${c}`;
    };
    const rows = [
      { name: 'q', values: q, scale: scale(q, k) },
      { name: 'k', values: k, scale: scale(q, k) },
      { name: 'q × k', values: products, scale: scale(products) },
    ];
    this.keys.show({ rows, tell, most });
  }

  showChain(found) {
    const { d, score, scaled, masked, weight, mean, factor, softcap, added, forbidden, shift, power, total, sinkPower } = found;
    this.chain.replaceChildren();
    if (found.links) return this.showLinks(found);
    this.link(found.q ? 'sum' : 'score', score);
    const times = factor === null ? `× 1/√${d ?? 'd'}` : `× ${formatNumber(factor, 4)}`;
    this.link(softcap === null ? `${times} =` : `${times}, capped at ${formatNumber(softcap, 3)} =`, scaled);
    if (added !== 0) this.link(`+ bias ${formatNumber(added, 3)} =`, masked);
    if (forbidden) this.link('+ mask =', masked);
    if (power !== null) {
      const shifted = `(${formatNumber(masked, 4)} ${shift < 0 ? '+' : '−'} ${formatNumber(Math.abs(shift), 4)})`;
      const exponent = `e^${shift === 0 ? formatNumber(masked, 4) : shifted}`;
      this.link(`${exponent} =`, power);
      const sink = sinkPower === null ? '' : `, with the sink’s ${formatNumber(sinkPower, 3)}`;
      if (total !== 0) this.link(`÷ ${formatNumber(total, 4)}, the row’s sum${sink} =`, weight, true);
      else this.link('all keys of the row are masked: weight', weight, true);
    } else {
      this.link(found.squashed === null ? 'no softmax: weight' : `sigmoid of ${formatNumber(found.squashed, 4)} =`, weight, true);
    }
    if (mean !== null) this.link('mean over heads:', mean);
    if (found.digits !== null) this.link(`the server rounds its numbers to ${found.digits} digits`, null);
    if (found.extra) this.link('bias_K or zero_key adds this key, and the answer has no row for it', null);
    else if (found.v && this.opened) this.link('× v is its part of the output', null);
  }

  // Shows the links that are given: [[what, value, strong]].
  showLinks(found) {
    for (const one of found.links) this.link(...one);
  }

  showValues({ found, dark }, most) {
    const { v, part, output, weight } = found;
    this.values.root.hidden = !v;
    if (!v) return;
    const reach = largest(v, output?.values ?? []);
    const scale = makeScale({ lo: -reach, hi: reach, signed: true, log: false, palette: '', dark });
    const outputs = output ? [[output.mixed ? 'before W_O' : 'output', output.values]] : [];
    const tell = (column) => {
      const at = column ?? largestOf(part);
      const [a, b, c] = [weight, v[at], part[at]].map((value) => formatNumber(value, 4));
      return `column ${at}: ${a} × ${b} = ${c}${output ? `, all keys ${formatNumber(output.values[at], 4)}` : ''}`;
    };
    const rows = [['v', v], ['weight × v', part], ...outputs].map(([title, values]) => ({ name: title, values, scale }));
    this.values.show({ rows, tell, most });
  }
}

// Returns the largest magnitude of arrays.
function largest(...arrays) {
  let most = 0;
  for (const array of arrays) for (const value of array) if (Math.abs(value) > most) most = Math.abs(value);
  return most;
}
