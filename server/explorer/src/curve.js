// curve.js draws the softmax curve at the end of notebook 001: softmax of np.arange(-5, 5, 0.1), computed by POST /softmax, as SVG with
// axes. A slider sets the temperature, which divides the values before softmax. A dashed line is the curve of the notebook, at temperature
// 1. The module sends its requests with the function `post` of its caller; it knows neither the address of the server nor the API key.
import { make, makeButton, makeSVG, makeWith } from './dom.js';
import { downloadPNG, save, toSVG } from './download.js';

const HEIGHT = 300; // pixels, as all lengths
const [LEFT, RIGHT, TOP, BOTTOM] = [64, 16, 14, 44]; // around the axes
const WAIT_MS = 60; // milliseconds from the last move of the slider to the request

// The values are those of np.arange(-5, 5, 0.1) to the last bit. NumPy takes the difference of the first two values as the step.
export const VALUES = Array.from({ length: 100 }, (_, i) => -5 + i * (-5 + 0.1 - -5));

// Returns the temperature at a place of the slider (-1 to 1): 0.1 to 10 in two digits, and 1 in the middle.
export const temperatureAt = (place) => Number((10 ** place).toPrecision(2));

export const requestFor = (temperature) => ({ X: VALUES.map((x) => x / temperature), dtype: 'float64' });

// Returns four to eight round numbers with equal steps. The first is 0, and the last is at least `max`.
export function ticks(max) {
  const power = 10 ** Math.floor(Math.log10(max));
  const step = [0.1, 0.2, 0.5, 1].map((part) => part * power * 2).find((size) => max / size <= 6);
  return Array.from({ length: Math.ceil(max / step - 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

export class Curve {
  // Makes the curve in `container` and asks the server for it. post(path, body) resolves to the parsed answer.
  constructor(container, post) {
    this.post = post;
    this.root = make('div', 'curve', container);
    this.svg = makeSVG('svg', { class: 'curve-plot', height: HEIGHT, role: 'img' }, this.root);
    const controls = make('div', 'curve-controls', this.root);
    const label = make('label', '', controls, 'temperature');
    this.slider = makeWith('input', label, { type: 'range', min: -1, max: 1, step: 0.02, value: 0 });
    this.shown = make('output', '', label);
    this.readout = make('span', 'curve-readout', controls);
    const files = make('span', 'curve-save', controls);
    const ariaLabel = (format) => ({ ariaLabel: `Save the curve as ${format}` });
    makeButton(files, 'SVG', () => save('softmax.svg', 'image/svg+xml', toSVG(this.svg).text), ariaLabel('SVG'));
    makeButton(files, 'PNG', () => downloadPNG(toSVG(this.svg), 'softmax'), ariaLabel('PNG'));
    this.values = this.reference = null;
    this.asked = 0;
    this.slider.addEventListener('input', () => {
      this.shown.textContent = this.temperature();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), WAIT_MS);
    });
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => this.point(null));
    new ResizeObserver(() => this.values && this.show()).observe(this.root);
    this.ask();
  }

  temperature() {
    return temperatureAt(Number(this.slider.value));
  }

  // Asks for the curve. An answer to an earlier request is dropped.
  async ask() {
    const mine = ++this.asked;
    const temperature = this.temperature();
    this.shown.textContent = temperature;
    this.root.dataset.state = 'busy';
    try {
      const { output } = await this.post('/softmax', requestFor(temperature));
      if (mine !== this.asked) return;
      this.values = output;
      if (temperature === 1) this.reference = output;
      this.root.dataset.temperature = temperature;
      this.root.dataset.state = 'done';
      this.show();
    } catch (error) {
      if (mine !== this.asked) return;
      this.root.dataset.state = 'error';
      this.readout.textContent = error.message;
    }
  }

  placeX(x) {
    return LEFT + ((x + 5) / 10) * (this.width - LEFT - RIGHT);
  }

  placeY(y) {
    return HEIGHT - BOTTOM - (y / this.top) * (HEIGHT - TOP - BOTTOM);
  }

  path(values) {
    const point = (y, i) => `${this.placeX(VALUES[i]).toFixed(2)} ${this.placeY(Math.min(y, this.top)).toFixed(2)}`;
    return `M${values.map(point).join('L')}`;
  }

  show() {
    const max = Math.max(...this.values);
    const marks = ticks(max);
    this.top = marks.at(-1);
    this.width = Math.max(240, this.root.clientWidth);
    this.svg.replaceChildren();
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${HEIGHT}`);
    const rise = `${this.values[0].toPrecision(3)} to ${max.toPrecision(3)}`;
    this.svg.ariaLabel = `Softmax of 100 values from −5 to 4.9 at temperature ${this.root.dataset.temperature}: it rises from ${rise}`;
    this.drawAxes(marks);
    if (this.reference && this.reference !== this.values)
      makeSVG('path', { class: 'curve-reference', d: this.path(this.reference) }, this.svg);
    makeSVG('path', { class: 'curve-line', d: this.path(this.values) }, this.svg);
    this.point(null);
  }

  drawAxes(marks) {
    const right = this.width - RIGHT;
    const bottom = HEIGHT - BOTTOM;
    for (const mark of marks) {
      const y = this.placeY(mark);
      makeSVG('line', { class: 'curve-grid', x1: LEFT, x2: right, y1: y, y2: y }, this.svg);
      makeSVG('text', { class: 'curve-tick', x: LEFT - 8, y: y + 4, 'text-anchor': 'end' }, this.svg, mark);
    }
    for (let mark = -4; mark <= 4; mark += 2) {
      const x = this.placeX(mark);
      const name = String(mark).replace('-', '−');
      makeSVG('line', { class: 'curve-grid', x1: x, x2: x, y1: TOP, y2: bottom }, this.svg);
      makeSVG('text', { class: 'curve-tick', x, y: bottom + 18, 'text-anchor': 'middle' }, this.svg, name);
    }
    const centre = { class: 'curve-title', 'text-anchor': 'middle' };
    makeSVG('text', { ...centre, x: (LEFT + right) / 2, y: HEIGHT - 6 }, this.svg, 'input value');
    makeSVG('text', { ...centre, transform: `translate(12 ${(TOP + bottom) / 2}) rotate(-90)` }, this.svg, 'probability');
    makeSVG('path', { class: 'curve-axis', d: `M${LEFT} ${TOP}V${bottom}H${right}` }, this.svg);
  }

  // Writes the value at the pointer, or the sum and the largest value if the pointer is not on the curve.
  point(event) {
    if (!this.values) return;
    this.dot?.remove();
    if (!event) {
      const sum = this.values.reduce((total, y) => total + y, 0);
      this.readout.textContent = `sum ${sum.toFixed(6)}, largest ${Math.max(...this.values).toFixed(6)}`;
      return;
    }
    const box = this.svg.getBoundingClientRect();
    const x = (((event.clientX - box.left) / box.width) * this.width - LEFT) / (this.width - LEFT - RIGHT);
    const at = Math.max(0, Math.min(VALUES.length - 1, Math.round(x * 100)));
    const place = { cx: this.placeX(VALUES[at]), cy: this.placeY(this.values[at]) };
    this.dot = makeSVG('circle', { class: 'curve-dot', r: 5, ...place }, this.svg);
    this.readout.textContent = `softmax at ${VALUES[at].toFixed(1).replace('-', '−')} is ${this.values[at].toPrecision(4)}`;
  }
}
