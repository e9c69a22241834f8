// The explorer. It holds the state of the page, asks the server through the public API, and has the answer shown. Whatever the user does
// becomes a change of the state here, and the address follows the state.
import { Answer } from './answer.js';
import { changes } from './changes.js';
import { createClient } from './client.js';
import { copyText } from './clipboard.js';
import { rangeOf, SEQUENTIAL } from './colour.js';
import { createCurve } from './curve.js';
import { save } from './download.js';
import { createEditor } from './editor.js';
import { EXAMPLES, find, OWN, textOf } from './examples.js';
import { parse, withMember } from './jsontext.js';
import { listen as listenKeys } from './keys.js';
import { bytes, show } from './numbers.js';
import { createOptions } from './options.js';
import { isSoftmax, pathAfter, pathFor, PATHS } from './request.js';
import { bodyText, inFile, snippet } from './snippets.js';
import { allDone } from './soon.js';
import { fromHash, toHash } from './state.js';
import { createTheme } from './theme.js';
import { View } from './view.js';

const TYPING = 300; // milliseconds after the last key until a request is sent
const SMALL = 1_000_000; // characters; a request of fewer is parsed before it is sent
const NO_OBJECT = '(the request is not a JSON object)';
const $ = (id) => document.getElementById(id);
const base = new URL('.', location.href.split('#')[0]).href;

// The state of a page that nobody has changed.
const FRESH = { head: 0, compare: null, mean: false, batch: 0, row: null, threshold: 0, mass: false, lines: false, every: false };
const state = { ...FRESH, palette: 'viridis', range: null, log: false, numbers: false, editMask: false, dark: false };

let answer = null;
let summary = null;
let sent = null;
let locked = false; // the server has asked for a key
let timer = 0;
let asked = 0; // how often the server was asked
let language = 'curl';
let curve = null;
const drafts = new Map(); // variants that have been edited: {path, text, labels}
const latest = new Map(); // for each example, the variant that was shown last

const explorer = {
  // A copy of what was asked last and of what came back.
  get result() {
    if (!answer) return null;
    const { reply } = answer;
    return structuredClone({
      path: reply.summary.path,
      request: reply.sent,
      answer: reply.answer,
      status: reply.status,
      tokens: reply.tokens,
    });
  },
  // The numbers of a step, for a batch item and a head: {rows, cols, data}.
  matrix: (name, head = 0, batch = 0) => structuredClone(answer?.matrix(name, batch, head) ?? null),
  get state() {
    return structuredClone(state);
  },
};
window.explorer = Object.freeze(explorer);

const status = (kind, text) => {
  $('status').dataset.state = kind;
  $('status').textContent = text;
};

const client = createClient(base, {
  progress({ phase, received, total, sending }) {
    const bar = $('progress');
    if (phase === 'computing') {
      bar.removeAttribute('value');
      bar.hidden = sending < 100_000;
      status('busy', 'The server computes');
    } else if (phase === 'receiving') {
      bar.hidden = false;
      if (total) bar.value = received / total;
      status('busy', `Receiving ${bytes(received)}${total ? ` of ${bytes(total)}` : ''}`);
    } else {
      bar.removeAttribute('value');
      status('busy', 'The page reads the answer');
    }
  },
  wait(seconds, cause) {
    status('busy', `The server is busy (${cause?.detail ?? '503'}). The page asks again in ${seconds} s`);
  },
});

const view = new View(
  { root: $('steps'), film: $('film'), strip: $('heads'), lines: $('lines'), reading: $('reading') },
  {
    lock: (row) => look({ row }),
    head: (head) => look({ head, mean: false, compare: head === state.compare ? null : state.compare }, true),
    compare: (head) => look({ compare: head === state.head ? null : head, mean: false }, true),
    mean: () => toggleMean(),
    toggleMask,
    picture: (what) => client.picture(what),
    tell: (title, detail) => notice(title, detail),
    say: (text) => ($('say').textContent = text),
  },
);
const options = createOptions($('options'), (key, value) => edit(withMember(state.text, key, value, key === 'dtype'), true));
const editor = createEditor(
  { area: $('request'), marks: $('marks'), note: $('request-note'), file: $('file'), drop: document.body },
  (text, whole) => own(text, whole),
);
const theme = createTheme($('theme'), (dark) => {
  state.dark = dark;
  if (answer) view.render(state);
});

// ---------------------------------------------------------------- asking

async function compute() {
  const mine = ++asked;
  clearTimeout(timer);
  const { path, text } = state;
  const body = text.length < SMALL && parse(text);
  if (body && typeof body === 'object' && isSoftmax(body)) return elsewhere();
  if (body === undefined && !/^\s*\{/.test(text)) return notJson();
  status('busy', 'The server computes');
  const reply = await client.ask({ path, text });
  if (!reply) return;
  $('progress').hidden = true;
  summary = reply.summary ?? null;
  sent = reply.sent ?? null;
  if (reply.failure || reply.status !== 200) return failed(reply);
  problem(null);
  answer = new Answer(reply, state.labels);
  answer.text = text;
  settle();
  $('options-note').textContent = '';
  options.update(summary, answer.heads);
  controls();
  view.show(answer, state);
  await allDone();
  if (mine === asked) status('done', done(reply));
  if (state.mean) askMean();
}

function done({ timing, milliseconds, bytes: received }) {
  const stage = /(?:^|[\s,])compute;dur=([\d.]+)/.exec(timing ?? '');
  const wide = (text, length) => String(text).padStart(length, '\u2007'); // as wide as a digit
  const inside = stage ? `server ${wide(show(Number(stage[1]), 2), 4)} ms, ` : '';
  return `${answer.queries} × ${answer.keys}: ${inside}total ${wide(Math.round(milliseconds), 3)} ms, ${bytes(received)}`;
}

function failed(reply) {
  $('options-note').textContent = reply.problem && !summary ? NO_OBJECT : '';
  options.update(summary, answer?.heads ?? 1);
  locked ||= reply.status === 401;
  controls();
  if (reply.status === 401) askKey();
  const lost = { title: 'The server cannot be reached', detail: 'Check that it is running. The page still has your request.', again: true };
  const odd = { title: 'The answer cannot be read', detail: reply.failure, again: true };
  const found = reply.unreachable ? lost : reply.failure ? odd : reply.problem;
  problem(found);
  status('error', found.title);
}

// A body for /softmax is not sent. An answer that is still on its way belongs to an older request and is forgotten.
function elsewhere() {
  client.forget();
  $('progress').hidden = true;
  $('options-note').textContent = '';
  const detail = 'This page shows attention. Attention needs X of rank 2 or more, and it takes no axis. Send this body to /softmax.';
  problem({ title: 'This body is for /softmax', detail });
  status('error', 'This body is for /softmax');
}

// A text that does not begin as a request does is not sent.
function notJson() {
  client.forget();
  $('progress').hidden = true;
  summary = sent = null;
  $('options-note').textContent = NO_OBJECT;
  options.update(null, 1);
  controls();
  problem({ title: 'This is not JSON: a request begins with {', detail: 'For a sentence, choose “Your own” and then “a sentence”.' });
  status('error', 'This is not JSON');
}

function make(tag, textContent, more = {}) {
  return Object.assign(document.createElement(tag), { textContent, ...more });
}

// Shows what went wrong, in a box that stays in sight; null removes it. An error of the request is marked in the request's text.
function problem(found, ofRequest = true) {
  const box = $('problem');
  const where = editor.setProblem(ofRequest ? found : null);
  box.hidden = !found;
  $('result').classList.toggle('stale', Boolean(found) && ofRequest);
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
    act(`Show ${where}`, () => (($('panel-request').open = true), editor.reveal()), { id: 'problem-show' });
  }
  if (found.again) act('Try again', compute);
  if (found.status === 401) act('Enter a key', askKey);
  if (!ofRequest) act('Close', () => problem(null));
  box.append(make('h2', found.title), make('p', found.detail), ...(place.childNodes.length ? [place] : []));
}

const notice = (title, detail) => problem({ title, detail }, false);

function askKey() {
  const dialog = $('key-dialog');
  if (dialog.open) return;
  $('key-title').textContent = client.hasKey() ? 'The server does not know this key' : 'This server needs a key';
  $('key').value = '';
  dialog.returnValue = '';
  dialog.showModal();
}

// The server computes the mean over heads: the same request, with mean_over_heads.
async function askMean() {
  const asked = answer;
  const text = withMember(asked.text, 'mean_over_heads', 'true');
  const reply = await client.aside({ path: asked.summary.path, text, results: ['weights'], as: 'mean' });
  if (asked !== answer) return;
  if (!reply.matrices) {
    look({ mean: false });
    return notice('The server has not computed the mean over heads', reply.problem?.detail ?? reply.failure);
  }
  answer.mean = reply.matrices.weights.map(([matrix]) => matrix);
  view.render(state);
}

// ---------------------------------------------------------------- the state

// The request has changed by a control. `push` adds a step to the history. Labels and head stay if they fit.
function edit(text, push) {
  if (text === state.text) return;
  state.text = text;
  editor.set(text);
  remember(push);
  clearTimeout(timer);
  timer = setTimeout(compute, push ? 60 : TYPING);
}

// The user has given a text. whole: it was dropped, opened or pasted over all; otherwise the user has typed in it.
function own(text, whole) {
  state.text = text;
  if (whole) {
    Object.assign(state, FRESH, { example: OWN.id, labels: [] });
    options.forget();
    examples();
  }
  const body = parse(text);
  if (body && typeof body === 'object') state.path = whole ? pathFor(body) : pathAfter(state.path, body);
  $('path').value = state.path;
  remember(whole);
  clearTimeout(timer);
  timer = setTimeout(compute, whole ? 0 : TYPING);
}

// Shows an example as the user left it, or else as a link has it (`kept`) or as it was made.
function choose(id, kept = {}, push = true) {
  const { example, variant } = find(id);
  const made = { path: variant.path, text: textOf(variant), labels: example.labels ?? [] };
  Object.assign(state, FRESH, made, push && drafts.get(variant.id), kept, { example: variant.id });
  editor.set(state.text);
  options.forget();
  examples();
  if (push) remember(true);
  else annotate(true);
  return compute();
}

const resume = (id) => choose(latest.get(id) ?? id);

function edited() {
  const { example, variant } = find(state.example);
  return state.text !== textOf(variant) || state.path !== variant.path || String(state.labels) !== String(example.labels ?? []);
}

// The note of an example is about the example as it was made. An edited one says what was edited, and offers the way back.
function annotate(arrived = false) {
  const { example, variant } = find(state.example);
  const { path, text, labels } = state;
  const other = edited();
  latest.set(example.id, variant.id);
  if (other) drafts.set(variant.id, { path, text, labels });
  else if (!arrived) drafts.delete(variant.id);
  const own = example === OWN;
  const body = other && !own ? parse(text) : null;
  $('look').textContent = body === undefined ? '' : (body && changes({ path, body }, variant)) || variant.look || example.look;
  $('back').hidden = !other;
  $('back').textContent = 'Undo the changes';
}

// The view has changed, and not the request.
function look(change, push = false) {
  Object.assign(state, change);
  if (answer) {
    settle();
    controls();
    view.render(state);
  }
  remember(push);
}

function toggleMean() {
  look({ mean: !state.mean, compare: null }, true);
  if (state.mean && !answer.mean) askMean();
}

// Keeps the chosen batch item, heads and row within the answer.
function settle() {
  const heads = answer.matrices.weights[0].length;
  const clamp = (x, count) => Math.min(x, count - 1);
  state.batch = clamp(state.batch, answer.batch);
  state.head = clamp(state.head, heads);
  if (state.compare !== null && (state.compare >= heads || state.compare === state.head)) state.compare = null;
  if (heads < 2) state.mean = false;
  if (state.row !== null && state.row >= answer.queries) state.row = null;
}

let remembering = Promise.resolve();

function remember(push) {
  annotate();
  remembering = remembering.then(async () => {
    const whole = edited();
    const hash = await toHash(state, whole);
    const tooLong = whole && !/[#&]request=/.test(hash);
    $('no-link').hidden = !tooLong;
    $('copy-link').disabled = tooLong;
    if (hash === location.hash) return;
    history[push ? 'pushState' : 'replaceState'](null, '', hash);
  });
}

async function arrive() {
  const { broken, example, ...kept } = await fromHash(location.hash);
  const { palette, range = null, log, numbers } = kept;
  Object.assign(state, { palette: SEQUENTIAL.includes(palette) ? palette : 'viridis', range, log, numbers });
  await choose(example ?? EXAMPLES[0].id, { ...kept, palette: state.palette }, false);
  const detail = 'The page cannot read the request in the link. It shows the example that the request came from.';
  if (broken) notice('This link is damaged', detail);
}

function toggleMask(row, col) {
  const mask = parse(state.text)?.mask;
  const fits = Array.isArray(mask) && mask.length === answer.queries && mask[0].length === answer.keys && !Array.isArray(mask[0][0]);
  const rows = fits ? mask : Array.from({ length: answer.queries }, () => new Array(answer.keys).fill(1));
  const word = typeof rows[row][col] === 'boolean';
  rows[row][col] = word ? !rows[row][col] : 1 - rows[row][col];
  const all = rows.every((line) => line.every(Boolean));
  edit(withMember(state.text, 'mask', all ? undefined : `[\n    ${rows.map((line) => JSON.stringify(line)).join(',\n    ')}\n  ]`), true);
}

// ---------------------------------------------------------------- controls

function choice(title, pressed, data) {
  const button = Object.assign(document.createElement('button'), { type: 'button', textContent: title });
  button.setAttribute('aria-pressed', String(pressed));
  Object.assign(button.dataset, data);
  return button;
}

function examples() {
  const { example, variant } = find(state.example);
  const focus = document.activeElement?.dataset.example ?? document.activeElement?.dataset.variant;
  $('examples').replaceChildren(
    ...[...EXAMPLES, OWN].map((one) => {
      const button = choice('', one === example, { example: one.id });
      const number = Object.assign(document.createElement('span'), { textContent: one === OWN ? '+' : one.id, className: 'id' });
      button.append(number, one.title);
      button.addEventListener('click', () => resume(one.id));
      return button;
    }),
  );
  $('variants').replaceChildren(
    ...(example.variants.length > 1 ? example.variants : []).map((one) => {
      const button = choice(one.title, one === variant, { variant: one.id });
      button.addEventListener('click', () => choose(one.id));
      return button;
    }),
  );
  if (focus) document.querySelector(`[data-example="${focus}"], [data-variant="${focus}"]`)?.focus();
}

function fillSelect(select, values, chosen) {
  select.replaceChildren(...values.map(([value, label]) => new Option(label, value)));
  select.value = chosen;
}

// Sets the controls outside of the view to the state and the last answer.
function controls() {
  const heads = answer ? answer.matrices.weights[0].length : 1;
  $('path').value = state.path;
  $('log').checked = state.log;
  $('numbers').checked = state.numbers;
  $('palette').value = state.palette;
  $('range').value = rangeOf(state.range, answer?.keys ?? 0);
  $('range').disabled = summary?.options.normalization === 'none';
  $('batch-box').hidden = !answer || answer.batch < 2;
  if (answer)
    fillSelect(
      $('batch'),
      Array.from({ length: answer.batch }, (_, at) => [at, at]),
      state.batch,
    );
  $('compare-box').hidden = heads < 2 || state.mean;
  const others = Array.from({ length: heads }, (_, at) => [at, `head ${at}`]).filter(([at]) => at !== state.head);
  fillSelect($('compare'), [['', 'nothing'], ...others], state.compare ?? '');
  $('as-map').setAttribute('aria-pressed', String(!state.lines));
  $('as-lines').setAttribute('aria-pressed', String(state.lines));
  $('line-tools').hidden = !state.lines;
  $('every-box').hidden = heads < 2;
  $('every').checked = state.every;
  $('threshold').value = state.threshold;
  $('line-mode').value = state.mass ? 'mass' : 'weight';
  $('threshold-value').textContent = state.mass ? `${Math.round(state.threshold * 100)} %` : state.threshold.toFixed(2);
  $('mask-edit').setAttribute('aria-pressed', String(state.editMask));
  $('mask-clear').hidden = !summary?.shapes.mask;
  document.body.classList.toggle('editing-mask', state.editMask);
  $('sentence-box').hidden = !summary?.words;
  const text = summary?.options.text ?? summary?.options.tokens?.join(' ');
  if (summary?.words && document.activeElement !== $('sentence')) $('sentence').value = text;
  if (document.activeElement !== $('labels')) $('labels').value = (state.labels ?? []).join(', ');
  code();
}

function code() {
  const request = { base, path: state.path, body: sent ?? state.text, key: locked };
  $('code').textContent = snippet(language, request);
  $('save-body').hidden = !inFile(request.body);
}

function bind() {
  const on = (id, event, does) => $(id).addEventListener(event, () => does($(id)));
  fillSelect(
    $('path'),
    PATHS.map((path) => [path, path]),
    state.path,
  );
  on('path', 'change', ({ value }) => {
    state.path = value;
    remember(true);
    compute();
  });
  on('log', 'change', ({ checked }) => look({ log: checked }));
  on('numbers', 'change', ({ checked }) => look({ numbers: checked }));
  on('palette', 'change', ({ value }) => look({ palette: value }));
  on('range', 'change', ({ value }) => look({ range: value }));
  on('batch', 'change', ({ value }) => look({ batch: Number(value) }));
  on('compare', 'change', ({ value }) => look({ compare: value === '' ? null : Number(value) }, true));
  on('as-map', 'click', () => look({ lines: false }));
  on('as-lines', 'click', () => look({ lines: true }));
  on('every', 'change', ({ checked }) => look({ every: checked }));
  on('line-mode', 'change', ({ value }) => look({ mass: value === 'mass', threshold: value === 'mass' ? 0.9 : 0 }));
  on('threshold', 'input', ({ value }) => look({ threshold: Number(value) }));
  on('back', 'click', () => {
    drafts.delete(state.example);
    choose(state.example);
  });
  on('mask-edit', 'click', () => look({ editMask: !state.editMask }));
  on('mask-clear', 'click', () => edit(withMember(state.text, 'mask', undefined), true));
  on('sentence', 'input', ({ value }) =>
    edit(withMember(withMember(state.text, 'tokens', undefined), 'text', JSON.stringify(value)), false),
  );
  on('labels', 'input', ({ value }) => {
    state.labels = value
      .split(',')
      .map((label) => label.trim())
      .filter(Boolean);
    remember(false);
    answer?.relabel(state.labels);
    if (answer) view.show(answer, state);
  });
  on('copy', 'click', (button) => copy($('code').textContent, button));
  on('copy-link', 'click', (button) => copy(location.href, button));
  on('save-body', 'click', () => save('body.json', 'application/json', bodyText(sent ?? state.text)));
  on('save-request', 'click', () => save('request.json', 'application/json', state.text));
  // The address holds the state of the page, so this link must not change it.
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    $('result').focus();
  });
  on('keys', 'click', () => $('help').showModal());
  on('key-dialog', 'close', (dialog) => {
    if (dialog.returnValue !== 'use' || !$('key').value) return;
    client.setKey($('key').value);
    $('key').value = '';
    compute();
    curve?.ask();
  });
  for (const button of $('languages').children) {
    button.addEventListener('click', () => {
      language = button.dataset.language;
      for (const one of $('languages').children) one.setAttribute('aria-pressed', String(one === button));
      code();
    });
  }
}

async function copy(text, button) {
  button.dataset.label ??= button.textContent;
  const copied = await copyText(text, button);
  button.textContent = copied ? 'Copied' : 'Not copied';
  $('say').textContent = copied ? 'Copied' : 'Not copied. The text is selected: press Ctrl+C or ⌘C.';
  setTimeout(() => (button.textContent = button.dataset.label), 1500);
}

// The curve sends a request of its own when it comes into sight.
function watchCurve() {
  const watcher = new IntersectionObserver(
    ([entry]) => {
      if (!entry.isIntersecting) return;
      watcher.disconnect();
      curve = createCurve($('curve'), { post: client.post });
    },
    { rootMargin: '300px' },
  );
  watcher.observe($('curve'));
}

const CAUSAL = [undefined, 'true', '"bottom_right"'];

bind();
listenKeys({
  '?': () => $('help').showModal(),
  '[': () => answer && look({ head: Math.max(0, state.head - 1), mean: false }, true),
  ']': () => answer && look({ head: state.head + 1, mean: false }, true),
  m: () => answer?.matrices.weights[0].length > 1 && toggleMean(),
  l: () => look({ lines: !state.lines }),
  n: () => look({ numbers: !state.numbers }),
  g: () => look({ log: !state.log }),
  t: () => theme.next(),
  c() {
    const causal = summary?.options.causal;
    const at = CAUSAL.indexOf(causal ? JSON.stringify(causal) : undefined);
    edit(withMember(state.text, 'causal', CAUSAL[(at + 1) % CAUSAL.length]), true);
  },
  Escape: () => look({ row: null, editMask: false }),
  ...Object.fromEntries(EXAMPLES.map(({ id }, at) => [String(at), () => resume(id)])),
});
if (matchMedia('(max-width: 900px)').matches) {
  for (const id of ['panel-options', 'panel-request']) $(id).open = false;
}
window.addEventListener('popstate', arrive);
watchCurve();
arrive();
