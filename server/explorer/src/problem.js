// problem.js shows what went wrong, in a box that stays in sight.

function make(tag, textContent, more = {}) {
  return Object.assign(document.createElement(tag), { textContent, ...more });
}

// Makes the box. `result` is marked as stale while the problem is one of the request; `panel` has the editor. The buttons of the box call
// editor.reveal(), compute() and askKey().
export function createProblemBox({ box, result, panel }, { editor, compute, askKey }) {
  // Shows a problem, {title, detail, pointer, offset, index, status, again, unread}, or removes the last one (null). ofRequest: whether the problem is one
  // of the request. The editor marks it in the text then. again: whether asking again may help. unread: whether the text may become a request.
  function show(found, ofRequest = true) {
    const where = editor.setProblem(ofRequest ? found : null);
    box.hidden = !found;
    result.classList.toggle('stale', Boolean(found) && ofRequest);
    box.replaceChildren();
    if (!found) return;
    const place = document.createElement('p');
    const act = (title, does, more) => {
      const button = make('button', title, { type: 'button', ...more });
      button.addEventListener('click', does);
      place.append(' ', button);
    };
    if (found.pointer !== undefined) place.append(make('code', found.pointer || 'the whole request', { id: 'problem-pointer' }));
    if (where) {
      act(`Show ${where}`, () => ((panel.open = true), editor.reveal()), { id: 'problem-show' });
    }
    if (found.unread) act('Make a request of it', editor.convert);
    if (found.again) act('Try again', compute);
    if (found.status === 401) act('Enter a key', askKey);
    if (!ofRequest) act('Close', () => show(null));
    box.append(make('h2', found.title), make('p', found.detail), ...(place.childNodes.length ? [place] : []));
  }
  return { show };
}
