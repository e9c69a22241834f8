// player.js has the slider below the names of the steps, which goes from word to word and shows the state after each: by hand, by the arrow keys,
// or by itself (Play). If the system asks for less movement, nothing moves by itself.
import { makeScale } from './colour.js';
import { make, makeButton, makeWith, setBox } from './dom.js';
import { paintMap, thumbSize } from './thumbs.js';

const PAUSE = 1000; // milliseconds for each word
const THUMB = 40; // pixels; the longer side of a small picture
const MOST = 24; // words; more have no small pictures

// Makes the slider in an empty element. tools: {defer, show(change), point(cell|null)}.
export function createPlayer(root, { defer, show, point }) {
  const still = matchMedia('(prefers-reduced-motion: reduce)');
  const line = make('div', 'player-line', root);
  const button = makeButton(line, 'Play', toggle);
  const slider = makeWith('input', line, { type: 'range', id: 'position', min: 0, step: 1, title: 'Arrow keys go from word to word' });
  slider.ariaLabel = 'The state after a word';
  const word = makeWith('output', line, { className: 'player-word' });
  word.htmlFor = 'position';
  const small = make('div', 'player-thumbs', root);
  small.ariaHidden = true; // the slider does the same
  let timer = 0;
  let now = null; // {answer, state, last}
  let drawn = {}; // what the small pictures show

  const at = () => Math.min(now.state.position ?? Infinity, now.last);

  // Shows the state after a word. What the word asks is shown with it.
  function go(position) {
    show({ position: position === now.last ? null : position });
    point({ query: position });
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    button.textContent = 'Play';
  }

  function next() {
    if (root.hidden || at() === now.last) return stop();
    go(at() + 1);
    timer = setTimeout(next, PAUSE);
  }

  function toggle() {
    if (timer) return stop();
    button.textContent = 'Pause';
    if (at() === now.last) go(0);
    timer = setTimeout(next, PAUSE);
  }

  slider.addEventListener('input', () => {
    stop();
    go(Number(slider.value));
  });
  const settle = () => {
    if (still.matches) stop();
    button.hidden = still.matches;
  };
  still.addEventListener('change', settle);
  settle();

  function drawSmall(states, scale, look) {
    if (drawn.states !== states || drawn.look !== look) {
      drawn = { states, look };
      small.replaceChildren();
      states.forEach((matrix, position) => {
        const place = make('span', 'player-thumb', small);
        const canvas = make('canvas', 'thumb', place);
        setBox(canvas, thumbSize(matrix, THUMB));
        make('small', '', place, now.answer.key(position));
        place.addEventListener('click', () => (stop(), go(position)));
        defer(canvas, () => paintMap(canvas, matrix, scale));
      });
    }
    [...small.children].forEach((place, position) => place.classList.toggle('current', position === at()));
  }

  // Shows the slider if the state is shown. shown: whether it is. Returns whether the slider has come or gone, so that the figures have
  // another height.
  function render(answer, state, shown) {
    const place = answer.place('states', state.batch, state.head);
    const before = root.hidden;
    root.hidden = !place || !shown;
    if (root.hidden) {
      stop();
      return !before;
    }
    const states = answer.matrices.states[place.batch][place.head];
    const other = now?.answer !== answer || before;
    if (other) stop();
    now = { answer, state: { ...state }, last: states.length - 1 };
    const position = at();
    slider.max = now.last;
    slider.value = position;
    const said = [answer.key(position), `word ${position + 1} of ${states.length}`];
    word.replaceChildren('after ', make('b', '', null, said[0]), `, ${said[1]}`);
    slider.ariaValueText = said.join(', ');
    small.hidden = states.length > MOST || Math.max(states[0].rows, states[0].cols) > 64;
    const { palette, log, dark } = state;
    if (!small.hidden) drawSmall(states, makeScale({ ...states[0].reach, signed: true, log, palette, dark }), [palette, log, dark].join());
    if (other && state.row === null) point({ query: position });
    return before;
  }
  return { render };
}
