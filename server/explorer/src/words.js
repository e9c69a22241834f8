// words.js writes the words of an answer as a sentence. The words are tinted by the weights of one word, the query. The pointer or the
// focus on a word makes it the query; a click keeps it.
import { make } from './dom.js';
import { moveAlong } from './keyboard.js';

const MOST = 256; // words

export class Words {
  // on: {point(row), lock(row)}
  constructor(root, on) {
    Object.assign(this, { root, on });
    // Calls does(row) if an event is one of a word.
    const withRow = (does) => (event) =>
      event.pointerType !== 'touch' && this.rowOf(event.target) !== null && does(this.rowOf(event.target));
    root.addEventListener('pointerover', withRow(on.point));
    root.addEventListener('focusin', withRow(on.point));
    root.addEventListener('click', ({ target }) => this.rowOf(target) !== null && on.lock(this.rowOf(target)));
    root.addEventListener('keydown', (event) => {
      const to = moveAlong(this.queries, event);
      if (to) for (const word of this.queries) word.tabIndex = word === to ? 0 : -1; // Tab reaches only one of them
    });
  }

  rowOf(target) {
    const row = target.closest?.('[data-word]')?.dataset.word;
    return row === undefined ? null : Number(row);
  }

  // Writes the words of an answer. If the keys are not the queries, they are a second line.
  show(answer) {
    const own = answer.isSelf();
    const count = Math.max(answer.queries, answer.keys);
    this.root.replaceChildren();
    [this.queries, this.keys] = [[], []];
    if (count > MOST) {
      this.root.textContent = `${answer.queries} queries and ${answer.keys} keys are too many to write here.`;
      return;
    }
    const line = (name, length, label, tag) => {
      const made = make('p', 'words-line', this.root);
      if (name) make('span', 'words-name', made, name);
      const words = Array.from({ length }, (_, at) => make(tag, 'word', null, label(at)));
      made.append(...words.flatMap((word) => [word, ' ']));
      return words;
    };
    this.queries = line(own ? '' : 'queries', answer.queries, (at) => (own ? answer.word(at) : answer.query(at)), 'button');
    this.queries.forEach((word, at) => Object.assign(word, { type: 'button', tabIndex: at ? -1 : 0 }).setAttribute('data-word', at));
    this.keys = own ? this.queries : line('keys', answer.keys, (at) => answer.key(at), 'span');
  }

  // Tints the keys. row: the query. weights: its weights. most: the weight of the strongest tint. locked: whether the query is kept.
  tint({ row, weights, most, locked }) {
    this.keys.forEach((word, key) => word.style.setProperty('--weight', Math.min(Math.abs(weights[key]) / most, 1).toFixed(3)));
    this.queries.forEach((word, at) => {
      word.classList.toggle('asks', at === row);
      word.setAttribute('aria-pressed', String(at === row && locked));
    });
  }
}
