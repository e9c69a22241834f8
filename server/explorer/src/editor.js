// editor.js holds the request as text. The user types it, pastes it anywhere on the page, drops it or opens it from a file. Buttons after the
// note read a pasted text in another way, or undo it. An error is marked in the text. A long text would make the text box slow, so the box
// shows only its beginning; the request is still the whole text.
import { make, makeButton } from './dom.js';
import { indexOfByte, locate, withMember } from './jsontext.js';

/* global FILES_NAME */
const OTHERS = /\.(npy|safetensors)$/i; // names of files that files.js reads; any other file is the text of a request
// The elements that take a pasted text themselves.
const FIELDS = 'textarea, [contenteditable], input:not([type=checkbox], [type=range], [type=file])';
const LONG = 150_000; // characters; a longer text is not shown as a whole

function lineAndColumn(text, index) {
  const before = text.slice(0, index);
  const line = before.split('\n').length;
  return `line ${line}, column ${index - before.lastIndexOf('\n')}`;
}

// Makes the editor. elements: {area, marks, note, file, drop}. onText(text, replaced, labels, path, layers) is called when the user has
// changed the text. replaced: whether the whole text is a new one; labels, a path and other layers (files.js) may come with it. keep() returns a function that brings the present
// request back. onUnreadable(message, index) is called when a text is no request. sentence(words) returns the request for words.
// onRefused(title, detail) is called when a file cannot be opened; the text stays then. onHidden(files) is called with a file of hidden
// states, and onOutputs(files) with the output of a kernel; they are no requests. onTensors(tensors) is called with the matrices that a text
// names and does not have (files.js). onReading(is) says whether a file or a pasted text is being read. isFor(element) says what is dropped or pasted on an element: `request`, `layers` or `comparison`.
export function createEditor(
  { area, marks, note, file, drop },
  { onText, keep, onUnreadable, onRefused, onHidden, onOutputs, onTensors, onReading, isFor, sentence },
) {
  let text = '';
  let place = null;
  let opened = 0; // how many times the text has been replaced, or its replacement has begun

  const offers = make('span');
  note.after(offers);
  note.tabIndex = -1;

  const follow = () => {
    marks.scrollTop = area.scrollTop;
    marks.scrollLeft = area.scrollLeft;
  };

  function mark() {
    if (!place || text.length > LONG) return marks.replaceChildren();
    const found = make('mark', '', null, text.slice(place.start, place.end) || ' ');
    marks.replaceChildren(text.slice(0, place.start), found, `${text.slice(place.end)}\n`);
    follow();
  }

  function tell(words) {
    note.textContent = words;
    offers.replaceChildren();
  }

  // Offers to read a pasted text in other ways (`choices`), and to undo what was done with it or with a file.
  function offer(undo, choices = [], given = '') {
    offers.replaceChildren();
    const button = (title, does) =>
      makeButton(offers, title, () => {
        note.focus();
        undo();
        does();
      });
    for (const as of choices) button(`as ${as}`, () => convert(given, as)).after(' ');
    button('Undo', () => tell('The request from before is here again.'));
  }

  // Takes what was read of a file or of a pasted text (`given`).
  function take(found, given) {
    const undo = keep();
    set(found.text ?? withMember(text, found.key, found.value));
    tell([found.note, note.textContent].filter(Boolean).join(' '));
    onText(text, !found.key, found.labels, found.path, found.layers);
    offer(undo, found.choices, given);
  }

  function set(value) {
    if (value === text) return;
    text = value;
    opened++; // a file or a text that is still being read belongs to the text before
    place = null;
    const long = value.length > LONG;
    area.readOnly = long;
    area.value = long ? `${value.slice(0, 2000)}\n…` : value;
    tell(long ? `${value.length.toLocaleString('en')} characters are too many to edit here. The beginning is shown.` : '');
    mark();
  }

  // Marks the place that a problem document names. Returns the line and the column in words, or null if it names no place.
  function setProblem(problem) {
    const { pointer, index, offset } = problem ?? {};
    const start = index ?? (offset === undefined ? undefined : Math.min(indexOfByte(text, offset), text.length));
    place = (pointer && locate(text, pointer)) || (start === undefined ? null : { start, end: Math.min(text.length, start + 1) });
    area.ariaInvalid = Boolean(problem);
    mark();
    return place && lineAndColumn(text, place.start);
  }

  function reveal() {
    area.focus();
    if (!place) return;
    area.setSelectionRange(place.start, place.end);
    const line = text.slice(0, place.start).split('\n').length - 1;
    area.scrollTop = Math.max(0, line * parseFloat(getComputedStyle(area).lineHeight) - area.clientHeight / 3);
  }

  const load = () => import(new URL(FILES_NAME, import.meta.url));

  // Resolves to what is read, and says so meanwhile. A newer act says what holds then.
  function reading(asked, mine = opened) {
    onReading(true);
    return asked.finally(() => mine === opened && onReading(false));
  }

  async function read(files) {
    if (files.length === 1 && !OTHERS.test(files[0].name)) return asRequest(await files[0].text());
    const { readFiles } = await load();
    return readFiles(files, text);
  }

  // Makes a request of a text. Text that begins like JSON stays as it is.
  async function asRequest(given, as) {
    if (!as && /^\s*(\{|$)/.test(given)) return { text: given };
    const { requestOfText } = await load();
    return requestOfText(given, sentence, { as, present: text }) ?? { text: given };
  }

  // Makes a request of a text that the user has pasted, or of the present text. as: the key that its matrix becomes, or `words`. If this is
  // not possible, the text is shown with a mark at the place of the error.
  async function convert(given, as) {
    const mine = ++opened;
    try {
      const found = await reading(asRequest(given, as));
      if (mine === opened) take({ note: 'The JSON is the request now.', ...found }, given);
    } catch ({ message, index = 0 }) {
      if (mine !== opened) return;
      take({ text: given, choices: ['words'] }, given);
      onUnreadable(message, index);
    }
  }

  // Puts a pasted text in the place of the selection, as JSON if it is a matrix.
  async function insert(given) {
    const mine = ++opened;
    const { requestOfText } = await load();
    if (mine !== opened) return;
    let value;
    try {
      ({ value } = requestOfText(given, sentence, { one: true }) ?? {});
    } catch {
      // The text goes in as it is, and the server says what is wrong.
    }
    area.setRangeText(value ?? given, area.selectionStart, area.selectionEnd, 'end');
    text = area.value;
    place = null;
    mark();
    onText(text, false);
  }

  async function open(chosen) {
    const files = [...chosen];
    if (!files.length) return;
    const mine = ++opened;
    try {
      const found = await reading(read(files));
      if (mine !== opened || !found) return;
      if (found.hidden) return onHidden(files);
      if (found.outputs) return onOutputs(files);
      if (found.tensors) onTensors(found.tensors);
      take(found);
    } catch (error) {
      if (mine === opened) onRefused(`${files.map(({ name }) => name).join(', ')}: not opened`, error.message);
    }
  }

  area.addEventListener('scroll', follow, { passive: true });
  area.addEventListener('input', ({ inputType }) => {
    text = area.value;
    opened++;
    place = null;
    tell('');
    mark();
    onText(text, over && inputType === 'insertFromPaste');
    over = false;
  });
  // Takes files that are pasted or dropped, instead of what the browser itself would do.
  const giveInstead = (event, files) => {
    event.preventDefault();
    ({ layers: onHidden, comparison: onOutputs, request: open })[isFor(event.target)](files);
  };
  // A text that is pasted over the whole text or anywhere else on the page is a new request. A long text is not pasted into the text box.
  let over = false;
  drop.addEventListener('paste', (event) => {
    const inside = event.target === area;
    if (!inside && (event.target.closest(FIELDS) || document.querySelector('dialog[open]') || document.body.dataset.embed)) return;
    const files = [...event.clipboardData.files].filter(({ type }) => !type.startsWith('image/')); // a table may come with its picture
    if (files.length) return giveInstead(event, files);
    const pasted = event.clipboardData.getData('text');
    over = inside && area.value.slice(area.selectionStart, area.selectionEnd).trim() === area.value.trim();
    const json = /^\s*\{/.test(pasted);
    if (inside ? pasted.length <= LONG && (json || (!over && !/\d\s*[.,\]]/.test(pasted))) : !pasted.trim()) return;
    event.preventDefault();
    if (over || !inside || pasted.length > LONG) convert(pasted);
    else if (!area.readOnly) insert(pasted);
    over = false;
  });
  file.addEventListener('change', () => {
    open(file.files);
    file.value = ''; // otherwise the browser reports no change when the user opens the same file again
  });
  // Only files are taken here. The browser itself inserts dragged text into the text box, at the pointer.
  const isFile = (event) => event.dataTransfer.types.includes('Files');
  drop.addEventListener('dragover', (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    drop.classList.add('dropping');
  });
  drop.addEventListener('dragleave', (event) => drop.contains(event.relatedTarget) || drop.classList.remove('dropping'));
  drop.addEventListener('drop', (event) => {
    if (!isFile(event)) return;
    drop.classList.remove('dropping');
    giveInstead(event, [...event.dataTransfer.files]);
  });
  return { set, setProblem, reveal, open, convert: () => convert(text) };
}
