// editor.js holds the request as text. The user types it, pastes it, drops it or opens it from a file. An error is marked in it. A long
// text would make the text box slow, so the box shows only its beginning; the request is still the whole text.
import { indexOfByte, locate, withMember } from './jsontext.js';

/* global FILES_NAME */
const OTHERS = /\.(npy|safetensors)$/i; // names of files that files.js reads; any other file is the text of a request
const LONG = 150_000; // characters; a longer text is not shown as a whole

function lineAndColumn(text, index) {
  const before = text.slice(0, index);
  const line = before.split('\n').length;
  return `line ${line}, column ${index - before.lastIndexOf('\n')}`;
}

// Makes the editor. elements: {area, marks, note, file, drop}. base: the URL that the paths of the API follow. onText(text, replaced) is
// called when the user has changed the text. replaced: whether the whole text is a new one; labels may come with it. onUnreadable(message,
// index) is called when a text is no request. sentence(words) returns the request for words. onRefused(title, detail) is called when a file
// cannot be opened; the text stays then. onHidden(files) is called with a file of hidden states, and onOutputs(files) with the output of a
// kernel; they are no requests. isFor(element) says what is dropped on an element: `request`, `layers` or `comparison`.
export function createEditor(
  { area, marks, note, file, drop },
  base,
  { onText, onUnreadable, onRefused, onHidden, onOutputs, isFor, sentence },
) {
  let text = '';
  let place = null;
  let opened = 0; // how many times the text has been replaced, or its replacement has begun

  const follow = () => {
    marks.scrollTop = area.scrollTop;
    marks.scrollLeft = area.scrollLeft;
  };

  function mark() {
    if (!place || text.length > LONG) {
      marks.replaceChildren();
      return;
    }
    const found = document.createElement('mark');
    found.textContent = text.slice(place.start, place.end) || ' ';
    marks.replaceChildren(text.slice(0, place.start), found, `${text.slice(place.end)}\n`);
    follow();
  }

  function set(value) {
    if (value === text) return;
    text = value;
    opened++; // a file or a text that is still being read belongs to the text before
    place = null;
    const long = value.length > LONG;
    area.readOnly = long;
    area.value = long ? `${value.slice(0, 2000)}\n…` : value;
    note.textContent = long ? `${value.length.toLocaleString('en')} characters are too many to edit here. The beginning is shown.` : '';
    mark();
  }

  // Marks the place that a problem document names. Returns the line and the column in words, or null if it names no place.
  function setProblem(problem) {
    place = null;
    if (problem?.pointer) place = locate(text, problem.pointer);
    if (!place && problem?.index !== undefined) {
      place = { start: problem.index, end: problem.index + 1 };
    }
    if (!place && problem?.offset !== undefined) {
      const start = Math.min(indexOfByte(text, problem.offset), text.length);
      place = { start, end: Math.min(text.length, start + 1) };
    }
    area.setAttribute('aria-invalid', problem ? 'true' : 'false');
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

  async function read(files) {
    if (files.length === 1 && !OTHERS.test(files[0].name)) return asRequest(await files[0].text());
    const { readFiles } = await load();
    return readFiles(files, text, base);
  }

  // Makes a request of a text. Text that begins like JSON stays as it is.
  async function asRequest(given) {
    if (/^\s*(\{|$)/.test(given)) return { text: given };
    const { requestOfText } = await load();
    return requestOfText(given, sentence) ?? { text: given };
  }

  // Makes a request of a text that the user has pasted over the whole text, or of the present text. If this is not possible, the text is
  // shown with a mark at the place of the error.
  async function convert(given) {
    const mine = ++opened;
    try {
      const found = await asRequest(given);
      if (mine !== opened) return;
      set(found.text);
      note.textContent = [found.note, note.textContent].filter(Boolean).join(' ');
      onText(text, true, found.labels);
    } catch ({ message, index = 0 }) {
      if (mine !== opened) return;
      set(given);
      onText(given, true);
      onUnreadable(message, index);
    }
  }

  // Puts a pasted text in the place of the selection, as JSON if it is a matrix.
  async function insert(given) {
    const mine = ++opened;
    const { requestOfText } = await load();
    if (mine !== opened) return;
    let value = given;
    try {
      value = requestOfText(given, sentence, true)?.value ?? given;
    } catch {
      // The text goes in as it is, and the server says what is wrong.
    }
    area.setRangeText(value, area.selectionStart, area.selectionEnd, 'end');
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
      const found = await read(files);
      if (mine !== opened || !found) return;
      if (found.hidden) return onHidden(files);
      set(found.text ?? withMember(text, found.key, found.value));
      note.textContent = [found.note, note.textContent].filter(Boolean).join(' ');
      onText(text, !found.key, found.labels);
    } catch (error) {
      if (mine === opened) onRefused(`${files.map(({ name }) => name).join(', ')}: not opened`, error.message);
    }
  }

  area.addEventListener('scroll', follow, { passive: true });
  area.addEventListener('input', ({ inputType }) => {
    text = area.value;
    opened++;
    place = null;
    note.textContent = '';
    mark();
    onText(text, over && inputType === 'insertFromPaste');
    over = false;
  });
  // A text that is pasted over the whole text is a new request. A long text is not pasted into the text box.
  let over = false;
  area.addEventListener('paste', (event) => {
    const { files } = event.clipboardData;
    if (OTHERS.test(files[0]?.name)) {
      event.preventDefault();
      open(files);
      return;
    }
    const pasted = event.clipboardData.getData('text');
    over = area.value.slice(area.selectionStart, area.selectionEnd).trim() === area.value.trim();
    const json = /^\s*\{/.test(pasted);
    if (pasted.length <= LONG && (json || (!over && !/\d\s*[.,\]]/.test(pasted)))) return;
    event.preventDefault();
    if (over || pasted.length > LONG) convert(pasted);
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
    event.preventDefault();
    drop.classList.remove('dropping');
    const files = [...event.dataTransfer.files];
    ({ layers: onHidden, comparison: onOutputs, request: open })[isFor(event.target)](files);
  });
  return { set, setProblem, reveal, convert: () => convert(text) };
}
