// film.js shows all steps as small pictures in a row, which stays in sight. Each of them opens its step; the last one opens all steps.
import { make } from './dom.js';
import { thumbSize } from './thumbs.js';

const THUMB = 34; // pixels; the longer side of a small picture

export class Film {
  // on: {open(name), paint(canvas, name)}. The name of all steps together is `all`.
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.frames = new Map();
    this.drawn = '';
  }

  frame(name, title) {
    const button = Object.assign(make('button', 'frame', this.root), { type: 'button' });
    button.dataset.frame = name;
    const canvas = name === 'all' ? make('span', 'all-sign', button, '⋯') : make('canvas', 'thumb', button);
    canvas.setAttribute('aria-hidden', 'true');
    make('span', '', button, title);
    button.addEventListener('click', () => this.on.open(name));
    this.frames.set(name, { button, canvas, matrix: null });
  }

  // Shows the steps [{name, group, title, matrix}]. current: the name of the open step. look: what the colours depend on.
  show(steps, current, look) {
    const names = steps.map(({ name }) => name).join();
    if (names !== this.drawn) this.build(steps);
    this.drawn = names;
    for (const { name, matrix } of steps) {
      const frame = this.frames.get(name);
      if (frame.matrix === matrix && frame.look === look) continue;
      Object.assign(frame, { matrix, look });
      const { width, height } = thumbSize(matrix, THUMB);
      Object.assign(frame.canvas.style, { width: `${width}px`, height: `${height}px` });
      this.on.paint(frame.canvas, name);
    }
    if (current !== this.current) requestAnimationFrame(() => this.reveal(current));
    this.current = current;
    for (const [name, { button }] of this.frames) {
      if (name === current) button.setAttribute('aria-current', 'step');
      else button.removeAttribute('aria-current');
    }
  }

  build(steps) {
    this.root.replaceChildren();
    this.frames.clear();
    let last = null;
    for (const { name, group, title } of steps) {
      if (last) make('span', last === group ? 'with' : 'then', this.root).setAttribute('aria-hidden', 'true');
      last = group;
      this.frame(name, 'QKV'.includes(name) ? name : title);
    }
    this.frame('all', 'All steps');
    this.current = null;
  }

  // Brings the frame of a step into sight, if the row is scrolled.
  reveal(name) {
    const { button } = this.frames.get(name) ?? {};
    if (!button || this.root.scrollWidth <= this.root.clientWidth) return;
    this.root.scrollLeft = button.offsetLeft - (this.root.clientWidth - button.offsetWidth) / 2;
  }
}
