// docs.js makes the reference at /docs easier to use; the page is complete without it. It opens the parts that an address names.
// It gives each request and command a button that copies it, and each request a choice of languages and a button that sends it. It makes
// the field of the search. What only a reader needs who uses one of them (docsuse.js) is loaded then.
import { keep, kept, makeButton, makeWith } from './dom.js';

/* global DOCSUSE_NAME */
const WRITTEN = 'http://127.0.0.1:8080'; // the address in the page
const LANGUAGES = { curl: 'curl', python: 'Python', javascript: 'JavaScript', go: 'Go' };
const EXPLORED = /^\/(self-|multi-head-|linear-)?attention$/; // the paths that the explorer shows

// The address of the service. Nothing in it means anything to a shell or in a string of a program: escape() also knows the apostrophe.
const base = new URL('.', location.href).href.slice(0, -1).replace(/[^\w.~:/%[\]-]/g, escape);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const use = () => import(new URL(DOCSUSE_NAME, import.meta.url));
const requests = []; // {path, body, code, shown} of each block with a request; shown is the element with its code
let spoken = kept('language') in LANGUAGES ? kept('language') : 'curl';
const key = { value: '', wanted: false }; // the API key, in memory only

function reveal(element) {
  for (let part = element; (part = part.closest('details')); part = part.parentElement) part.open = true;
  element.scrollIntoView();
}

// Shows what the address names. The keys that nothing in the page links to have no anchor before somebody asks for one.
async function revealTarget() {
  const name = decodeURIComponent(location.hash.slice(1));
  if (!name) return;
  if (!document.getElementById(name)) await use();
  const target = document.getElementById(name);
  if (target) reveal(target);
}

function listKeys(place) {
  const names = all('tr + tr th, .keys a + a, .except > :first-child, summary[id]', place.closest('details'));
  place.textContent = names.flatMap((name) => (name === place.parentNode ? [] : name.textContent)).join(' ');
}

async function speak(language) {
  spoken = language;
  const writer = language === 'curl' && !key.wanted ? null : await use();
  for (const request of language === spoken ? requests : []) {
    request.shown.textContent = writer ? writer.code(language, { ...request, base, key: key.wanted }) : request.code;
    request.bar.querySelector(`[value=${language}]`).checked = true;
  }
}

// Makes the bar of a request or a command: for a request its languages, a link and a button that sends it, and a button that copies it.
function makeBar(pre, number) {
  const code = pre.textContent.replaceAll(WRITTEN, base);
  if (!/^(curl|git|import)/.test(code)) return;
  const bar = makeWith('div', null, { className: 'bar' });
  pre.before(bar);
  pre.textContent = code;
  const [, address, body] = /^curl (\S+)(?: -d '(.*)')?$/s.exec(code) ?? [];
  if (address) {
    const request = { code, bar, shown: pre, path: address.slice(base.length), body: body?.replaceAll(`'\\''`, `'`) };
    requests.push(request);
    const languages = makeWith('div', bar, { role: 'radiogroup', ariaLabel: 'Language' });
    for (const [value, name] of Object.entries(LANGUAGES)) {
      const label = makeWith('label', languages);
      const radio = makeWith('input', label, { type: 'radio', name: `language-${number}`, value, checked: value === 'curl' });
      label.append(name);
      radio.addEventListener('change', () => (keep('language', value), speak(value)));
    }
    if (EXPLORED.test(request.path)) {
      const href = `./#example=own-matrices&path=${request.path}&body=${encodeURIComponent(request.body)}`;
      makeWith('a', bar, { href, textContent: 'Open in the explorer' });
    }
    makeButton(bar, 'Run', async () => (await use()).run(request, base, key, () => speak(spoken)));
  }
  makeButton(bar, 'Copy', async ({ target }) => (await use()).copy(pre, target));
}

function makeSearch() {
  const input = makeWith('input', document.getElementById('find'), { ariaLabel: 'Search', placeholder: 'Search: press /', type: 'search' });
  input.addEventListener('focus', async () => (await use()).search(input, reveal), { once: true });
  addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea')) return;
    event.preventDefault();
    input.focus();
  });
}

all('summary small:empty').forEach(listKeys);
all('main pre').forEach(makeBar);
makeSearch();
if (spoken !== 'curl') speak(spoken);
addEventListener('hashchange', revealTarget);
addEventListener('click', ({ target }) => {
  if (target.closest('a')?.hash === location.hash) revealTarget(); // the address does not change
});
revealTarget();
