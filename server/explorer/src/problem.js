// problem.js shows what went wrong, in a box that stays in sight.
import { make, makeButton, makeWith } from './dom.js';

// Makes the box. `result` is marked as stale while the problem is one of the request; `panel` has the editor. The buttons of the box call
// editor.reveal(), compute() and askKey().
export function createProblemBox({ box, result, panel }, { editor, compute, askKey, openDrawer }) {
  let unsolved = null; // the problem of the request, which a notice may cover

  // Shows a problem of the request, {title, detail, pointer, offset, index, status, again, unread}, or removes the last one (null). The
  // editor marks it in the text. again: whether asking again may help. unread: whether the text may become a request.
  function show(found) {
    unsolved = found;
    result.classList.toggle('stale', found !== null);
    write(found, editor.setProblem(found));
  }

  function write(found, where) {
    box.hidden = !found;
    box.replaceChildren();
    if (!found) return;
    const place = document.createElement('p');
    const act = (title, does, more) => place.append(' ', makeButton(null, title, does, more));
    if (found.pointer !== undefined) makeWith('code', place, { textContent: found.pointer || 'the whole request', id: 'problem-pointer' });
    if (where) act(`Show ${where}`, () => (openDrawer(true), (panel.open = true), editor.reveal()), { id: 'problem-show' });
    if (found.unread) act('Make a request of it', editor.convert);
    if (found.again) act('Try again', compute);
    if (found.status === 401) act('Enter a key', askKey);
    if (found !== unsolved) act('Close', () => show(unsolved));
    make('h2', '', box, found.title);
    make('p', '', box, found.detail);
    if (place.childNodes.length) box.append(place);
  }
  // notice() shows a problem that is not one of the request, {title, detail}. The next answer removes it, and so does its button.
  return { show, notice: (found) => write(found, null), close: () => show(unsolved) };
}
