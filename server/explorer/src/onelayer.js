// onelayer.js shows one head of a stored layer, or the rollout, on a stage of its own: large, as lines, with the row in words, with all
// matrices of the layer, and with what each number is made of.
import { fill } from './dom.js';
import { measured } from './matrices.js';
import markup from './parts/onelayer.html';
import { meanOf } from './rollout.js';
import { FRESH } from './state.js';

// Makes the stage. root: its element, still empty. tools: as in layers.js. on: {choose(head, batch), close()}.
export function createOneLayer(root, { Stage, tell, say }, on) {
  let answer = null;
  let state = null;
  const view = { ...FRESH, step: 'weights' };
  let look = {};

  const parts = fill(root, markup);
  const stage = new Stage(parts, {
    ...{ tell, say, head: on.choose, toggleMask() {} },
    lock: (row) => change({ row }),
    open: (name) => change(name === 'lines' ? { step: 'weights', lines: true } : { step: name, lines: false }),
    compare: (head) => change({ compare: head === state.head ? null : head, mean: false }),
    mean() {
      answer.mean ??= answer.matrices.weights.map((all) => measured(meanOf(all)));
      change({ mean: !view.mean, compare: null });
    },
  });
  for (const field of root.querySelectorAll('[id]')) field.removeAttribute('id'); // the first stage of the page has them

  // Draws the answer after a change of the view. The rollout, and weights alone, have no other steps.
  function change(what, other = false) {
    Object.assign(view, what);
    state = { ...look, ...view, ...(answer.matrices.scores ? {} : { step: 'weights' }) };
    if (other) stage.show(answer, state);
    else stage.render(state);
  }

  // The keys of the page do the same here while the focus is here.
  const keys = {
    Escape: () => (view.row === null ? on.close() : change({ row: null })),
    '[': () => on.choose(Math.max(view.head - 1, 0), view.batch),
    ']': () => on.choose(Math.min(view.head + 1, answer.heads - 1), view.batch),
    a: () => change({ step: 'flow', lines: false }),
    l: () => change({ step: 'weights', lines: !view.lines }),
  };
  root.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !answer || !(event.key in keys)) return;
    if (event.key !== 'Escape' && !document.getElementById('shortcuts-on').checked) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });

  return {
    // Shows an answer. given: how the page shows weights, as its state has it.
    show(shown, head, batch, given) {
      const other = shown !== answer;
      answer = shown;
      look = given;
      if (other) Object.assign(view, { row: view.row < answer.queries ? view.row : null, mean: false, compare: null });
      change({ head, batch, mean: view.mean && head === view.head, compare: head === view.compare ? null : view.compare }, other);
    },
    focus: () => (state.step === 'flow' || state.lines ? parts.nav.firstChild : stage.panes[0].figure.root).focus({ preventScroll: true }),
  };
}
