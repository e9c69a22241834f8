// wordcolumn.js has the columns of words of lines.js. A column makes the buttons of the words that are in view, and removes the others.
import { make, makeWith } from './dom.js';
import { weightText } from './pairs.js';

export const ROW = 26; // pixels; the height of a word
export const HEAD_COLOURS = 8;

// side: query or key. label: the name of the column for screen readers.
export class Column {
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

  // Marks the word that is shown alone, and writes the weights beside each word. weightsOf(index) returns {head, weight, part, masked} for
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
      bars.replaceChildren(
        ...open.map(({ head, part }) => {
          const bar = make('span', `lines-bar lines-head-${head % HEAD_COLOURS}`);
          bar.style.width = `${Math.round(part * 100)}%`;
          return bar;
        }),
      );
    }
  }
}
