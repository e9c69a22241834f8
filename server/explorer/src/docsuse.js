// docsuse.js is what docs.js loads when a reader of the reference uses it: the search, the requests in other languages, and sending them.
import { copyText, make, makeWith } from './dom.js';
import template from './parts/request.go.txt';
import { formatJSON, snippet } from './snippets.js';

const MOST = 12; // results that the search shows

// Returns a program in Go. A line of the template that ends with the comment "body" or "key" is only for a request that has one.
function go({ url, body, key }) {
  const lines = template.split('\n').map((line) => /^(.*?)(?: \/\/ (body|key))?$/.exec(line));
  const program = lines.filter(([, , needs]) => !needs || { body, key }[needs]).map(([, line]) => line).join('\n'); // prettier-ignore
  const text = /[`\r]/.test(body) ? JSON.stringify(body) : `\`${body}\``;
  const given = { METHOD: body ? '"POST"' : '"GET"', URL: `"${url}"`, READER: body ? 'body' : 'nil', BODY: text };
  return program.replace(/\b(METHOD|URL|READER|BODY)\b/g, (name) => given[name]);
}

// Returns the code that sends a request and prints the answer. request: {base, path, body, code}; code is that for curl. key:
// whether the code sends the key in the environment variable ATTENTIOND_KEY.
export function code(language, request) {
  const url = request.base + request.path;
  if (language === 'go') return go({ ...request, url });
  if (language === 'curl') return request.code + (request.key ? ' -H "Authorization: Bearer $ATTENTIOND_KEY"' : '');
  return snippet(language, request);
}

export const copy = (pre, button) => copyText(pre.textContent, button);

function readable(text) {
  try {
    return formatJSON(JSON.parse(text));
  } catch {
    return text;
  }
}

// Asks for a key, and calls use(key). The page keeps it in its memory only.
function askKey(place, use) {
  const form = make('form', 'bar', place);
  const label = make('label', '', form, 'This service wants an API key: ');
  const input = makeWith('input', label, { type: 'password', autocomplete: 'off', required: true, pattern: '[\\x21-\\x7e]+' });
  makeWith('button', form, { textContent: 'Use it' });
  form.addEventListener('submit', (event) => (event.preventDefault(), use(input.value)));
  input.focus();
}

// Sends a request, and shows the answer under it in place of the one that the page has. key: {value, wanted}. again() writes the code of all
// requests again.
export async function run(request, base, key, again) {
  const { path, body, shown } = request;
  const headers = { ...(body && { 'Content-Type': 'application/json' }), ...(key.value && { Authorization: `Bearer ${key.value}` }) };
  const begin = performance.now();
  let said = 'The service does not answer.';
  let text = '';
  try {
    const response = await fetch(base + path, { method: body ? 'POST' : 'GET', headers, body });
    text = await response.text();
    said = `${response.status} ${response.statusText}, ${(performance.now() - begin).toFixed(1)} ms`;
  } catch {
    // There is no answer.
  }
  if (!request.live) {
    const written = shown.nextElementSibling;
    if (written?.matches('.answer')) written.hidden = true;
    request.live = makeWith('div', null, { className: 'live' });
    shown.after(request.live);
    makeWith('p', request.live, { role: 'status' });
  }
  const [status, ...before] = request.live.children;
  before.forEach((part) => part.remove());
  status.textContent = said;
  if (text) makeWith('pre', request.live, { className: 'answer', textContent: readable(text), tabIndex: 0 });
  if (!said.startsWith('401 ')) return;
  key.wanted = true;
  again();
  askKey(request.live, (value) => {
    key.value = value;
    run(request, base, key, again);
  });
}

// The text of a heading without the note beside it.
const titleOf = ({ childNodes }) =>
  Array.from(childNodes, ({ nodeName, textContent }) => (nodeName === 'SMALL' ? '' : textContent))
    .join('')
    .trim();

// Gives an anchor to each heading of an example, each folded part and each key that has none. It begins with that of the part before it.
let part = '';
for (const element of document.querySelectorAll('main :is([id], h4, summary, tr + tr th)')) {
  if (element.id && !element.closest('th')) part = element.id;
  if (element.id || element.querySelector('[id]')) continue;
  const name = `${part}-${titleOf(element).replace(/[^\w.]+/g, '-')}`;
  element.id = document.getElementById(name) ? `${name}-result` : name;
}

// Returns the text of a part of the page, with a space between its paragraphs.
const textOf = (part) =>
  (part.querySelector('p, li') ? [...part.children].map(textOf).join(' ') : part.textContent).replace(/\s+/g, ' ').trim();

// Returns the text and the code of an entry: the other cells of its row, or what stands under it up to the next heading, without folds and
// tables. Those of an example are found with its path.
function textsOf(element) {
  const row = element.closest('tr');
  if (row) return [[...row.cells].slice(1).reverse().map(textOf).filter(Boolean).join(' · '), ''];
  if (element.tagName === 'H4') return ['', ''];
  const parts = [];
  for (let part = element.nextElementSibling; part && !part.matches('h2, h3'); part = part.nextElementSibling) parts.push(part);
  const all = (kind) => parts.filter((part) => part.matches(kind)).map(textOf);
  const summary = element.querySelector('b ~ small')?.textContent ?? '';
  const texts = all('p, ul').filter((text) => !text.startsWith('Errors: '));
  return [[summary, ...texts].join(' ').trim(), all('pre').join(' ')];
}

// Returns what can be found, in the order of the page: {element, label, place, about, code, name, text, leads}. place: the parts around it.
// leads: whether it is a chapter or a path.
function entries() {
  const found = [];
  let [chapter, path] = ['', ''];
  for (const element of document.querySelectorAll('main :is(h2, h3, h4, summary, th, th span)[id]')) {
    const label = titleOf(element);
    const isPath = Boolean(element.querySelector('b'));
    if (element.tagName === 'H2') [chapter, path] = [label, ''];
    if (isPath) path = label;
    const around = [];
    for (let fold = element; (fold = fold.closest('details')); fold = fold.parentNode)
      if (fold.firstElementChild !== element) around.unshift(titleOf(fold.firstElementChild));
    const place = [path || chapter, ...around].filter((name, i) => name !== label && (i === 0 || name !== path)).join(' › ');
    const [about, code] = textsOf(element);
    const text = `${place} ${about}`.toLowerCase();
    found.push({ element, label, about, code, place, name: label.toLowerCase(), text, leads: isPath || element.tagName === 'H2' });
  }
  return found;
}

// Returns a function that says how well an entry has a word in lower case. 0 is not at all. The whole word in the name is the best, then its
// beginning, a word within the name of a key, and last any part of a text or of code.
function ranker(word) {
  const quoted = word.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  const between = (before, after) => new RegExp(`(?<![\\p{L}\\p{N}${before}])${quoted}${after}`, 'u');
  const [key, begins, whole] = [between('_', '(?![\\p{L}\\p{N}_])'), between('_', ''), between('', '(?![\\p{L}\\p{N}])')];
  return ({ name, text, code }) => {
    if (key.test(name)) return 5;
    if (begins.test(name)) return 4;
    if (whole.test(name) || whole.test(text)) return 3;
    if (name.includes(word) || begins.test(text)) return 2;
    return text.includes(word) || code.toLowerCase().includes(word) ? 1 : 0;
  };
}

// How well an entry fits a query of words. 0 is not at all. An entry with more of the words comes first, then one with the whole phrase. A
// chapter or a path comes before a key that has the words in a similar way.
function fit(entry, query, rankers) {
  const points = rankers.map((rank) => rank(entry)).filter(Boolean);
  const sum = points.reduce((a, b) => a + b, 0);
  const isPhrase = rankers.length > 1 && `${entry.name}\n${entry.text}`.includes(query);
  const more = (entry.leads ? 1.5 : 0) + (entry.name === query ? 0.4 : 0) + (isPhrase ? 2 : 0);
  return sum && points.length * 100 + sum / rankers.length + more;
}

// Returns the part of the text of an entry, or of its code, that has a query or a word of it.
function excerpt({ about, code }, query, words) {
  const all = `${about} ${code}`.trim();
  const at = [query, ...words].map((part) => all.toLowerCase().indexOf(part)).find((place) => place >= 0) ?? 0;
  const begin = at < 60 ? 0 : all.lastIndexOf(' ', at - 30) + 1;
  return `${begin ? '… ' : ''}${all.slice(begin, begin + 90)}${begin + 90 < all.length ? '…' : ''}`;
}

// Searches while a reader types in the field. show(element) shows a place of the page.
export function search(input, show) {
  const known = entries();
  const list = makeWith('ul', input.parentNode, { id: 'found', role: 'listbox', ariaLabel: 'Found', hidden: true });
  const note = makeWith('p', input.parentNode, { className: 'unseen', role: 'status' });
  let chosen = 0;
  let best = []; // what is shown: [points, entry]
  for (const [name, value] of Object.entries({ role: 'combobox', 'aria-controls': 'found', 'aria-autocomplete': 'list' }))
    input.setAttribute(name, value);

  function choose(number) {
    const options = [...list.children];
    chosen = (number + options.length) % options.length || 0;
    options.forEach((option, i) => (option.ariaSelected = i === chosen));
    options[chosen]?.scrollIntoView({ block: 'nearest' });
    input.setAttribute('aria-activedescendant', options[chosen]?.id ?? '');
  }

  function close() {
    list.hidden = true;
    input.ariaExpanded = false;
    input.removeAttribute('aria-activedescendant');
  }

  function go({ element }) {
    close();
    input.blur();
    location.hash = element.id;
    show(element);
    if (element.tagName !== 'SUMMARY') element.tabIndex = -1;
    element.focus({ preventScroll: true });
    note.className = 'unseen';
  }

  function find() {
    const query = input.value.trim().toLowerCase().replace(/\s+/g, ' ');
    const words = query.split(' ').filter(Boolean);
    const rankers = words.map(ranker);
    const fitting = known.map((entry) => [fit(entry, query, rankers), entry]).filter(([points]) => points);
    best = fitting.sort(([a], [b]) => b - a).slice(0, MOST);
    list.replaceChildren();
    for (const [i, [, entry]] of best.entries()) {
      const option = makeWith('li', list, { id: `found-${i}`, role: 'option' });
      make('b', '', option, entry.label);
      make('small', '', option, entry.place);
      make('span', '', option, excerpt(entry, query, words));
      option.addEventListener('pointerdown', (event) => (event.preventDefault(), go(entry)));
    }
    list.hidden = !best.length;
    input.ariaExpanded = best.length > 0;
    note.className = query && !best.length ? '' : 'unseen';
    note.textContent = !query ? '' : best.length ? `${fitting.length} found` : `Nothing is found for “${input.value.trim()}”.`;
    choose(0);
  }

  find();
  input.addEventListener('input', find);
  input.addEventListener('focus', find);
  input.addEventListener('blur', close);
  input.addEventListener('keydown', (event) => {
    const { key } = event;
    if (key === 'ArrowDown') choose(chosen + 1);
    else if (key === 'ArrowUp') choose(chosen - 1);
    else if (key === 'Enter' && best.length) go(best[chosen][1]);
    else if (key === 'Escape') input.blur();
    else return;
    event.preventDefault();
  });
}
