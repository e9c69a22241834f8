// player.js has Play, which goes from query to query by itself, and, where the state of attention without softmax is shown, the slider that
// goes from word to word and shows the state after each. If the system asks for less movement, nothing moves by itself.
import { makeScale } from './colour.js';
import { fill, make, setBox } from './dom.js';
import markup from './parts/player.html';
import { paintMap, thumbSize } from './paint.js';

const PAUSE = 1000; // milliseconds for each part of a query
const THUMB = 40; // pixels; the longer side of a small picture
const MOST = 24; // words; more have no small pictures

// Makes the player in an empty element. tools: {defer, show(change), stage}.
export function createPlayer(root, { defer, show, stage }) {
  const { button, slider, word, small } = fill(root, markup); // the slider does the same as the small pictures
  let timer = 0;
  let now = null; // {answer, state, view, states, last}
  let ahead = [0, 0]; // the query and its part that Play shows next
  let drawn = {}; // what the small pictures show

  const at = () => (now.states ? Math.min(now.state.position ?? Infinity, now.last) : stage.query);

  // Makes a query the subject, and shows the state after it.
  function go(row, part) {
    if (now.states && row !== at()) show({ position: row === now.last ? null : row });
    ahead = stage.ask(row, part) > part + 1 ? [row, part + 1] : [row + 1, 0];
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    button.textContent = 'Play';
  }

  function next() {
    if (ahead[0] > now.last) return stop();
    timer = setTimeout(next, PAUSE);
    go(...ahead);
  }

  function toggle() {
    if (timer) return stop();
    button.textContent = 'Pause';
    ahead = [at() === now.last ? 0 : at(), 0];
    next();
  }

  // While it plays, the pointer points at nothing, and a click or a key stops it.
  function acted(event) {
    if (!timer || root.contains(event.target)) return;
    if (event.type.startsWith('pointer')) event.stopPropagation();
    else stop();
  }

  for (const type of ['pointermove', 'pointerover', 'click', 'keydown']) document.addEventListener(type, acted, true);
  button.addEventListener('click', toggle);
  slider.addEventListener('input', () => {
    stop();
    go(Number(slider.value));
  });
  matchMedia('(prefers-reduced-motion: reduce)').addEventListener('change', stop); // the style hides the button then

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

  // Shows what an answer needs in a view, the name of a step or `flow`: Play if it has several queries, and the slider if the state is shown.
  // Returns whether the slider has come or gone, so that the figures have another height.
  function render(answer, state, view) {
    const place = ['states', 'flow'].includes(view) && answer.place('states', state.batch, state.head);
    const states = place ? answer.matrices.states[place.batch][place.head] : null;
    const before = Boolean(now?.states);
    const other = now?.answer !== answer || !before;
    if (other || now.view !== view) stop();
    now = { answer, state: { ...state }, view, states, last: answer.queries - 1 };
    root.hidden = view === 'model' || (!states && answer.queries < 2);
    root.dataset.of = states ? 'states' : 'queries';
    for (const one of [slider, word, small]) one.hidden = !states;
    if (!states) return before;
    const position = at();
    slider.max = now.last;
    slider.value = position;
    const said = [answer.key(position), `word ${position + 1} of ${states.length}`];
    word.replaceChildren('after ', make('b', '', null, said[0]), `, ${said[1]}`);
    slider.ariaValueText = said.join(', ');
    small.hidden = states.length > MOST || Math.max(states[0].rows, states[0].cols) > 64;
    const { palette, log, dark } = state;
    if (!small.hidden) drawSmall(states, makeScale({ ...states[0].reach, signed: true, log, palette, dark }), [palette, log, dark].join());
    if (other && state.row === null) stage.ask(position);
    return !before;
  }
  return { render };
}
