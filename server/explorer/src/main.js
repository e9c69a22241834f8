// main.js asks the server through the public API, has the answer shown, and binds the controls of the explorer. Everything that the user
// does becomes a change of the state (state.js). The address of the page follows the state.
import { fromHash, toHash } from './address.js';
import { Answer } from './answer.js';
import { changes } from './changes.js';
import { createClient } from './client.js';
import { SEQUENTIAL } from './colour.js';
import { setControls, setCode } from './controls.js';
import { allDone, defer, setAtOnce } from './defer.js';
import { copyText, make, makeButton } from './dom.js';
import { save } from './download.js';
import { createEditor } from './editor.js';
import { ALL, EXAMPLES, find, MODEL, OWN, PRONOUN, requestText } from './examples.js';
import { Figure } from './figure.js';
import { parse, withMember } from './jsontext.js';
import { listenToKeyboard } from './keyboard.js';
import { drawBar, makeRange } from './legend.js';
import { formatBytes, formatNumber } from './numbers.js';
import { createOptions } from './options.js';
import { createPlayer } from './player.js';
import { createProblemBox } from './problem.js';
import { hasHeld, isSoftmax, pathAfter, pathFor, PATHS, shapeOf } from './request.js';
import { carried } from './rules.js';
import { createSaveMenu } from './savemenu.js';
import { bodyText, formatJSON } from './snippets.js';
import { FRESH, shownState, state } from './state.js';
import { Stage } from './stage.js';
import { STEPS } from './steps.js';
import { colours, createTheme } from './theme.js';
import { createTour } from './tour.js';
import { hideTooltip, showTooltip } from './tooltip.js';

/* global LAYERS_NAME, COMPARE_NAME, LINEAR_NAME, CURVE_NAME, LINES_NAME, STORYVIEW_NAME */
const TYPING = 300; // milliseconds from the last key to the request
const LATE = 250; // milliseconds; if the answer to another example takes longer, the old one is hidden
const SMALL = 1_000_000; // characters; the page parses only requests that are shorter than this before it sends them
const $ = (id) => document.getElementById(id);
const load = (name) => import(new URL(name, import.meta.url)); // resolves to a script that is loaded when it is needed
state.base = new URL('.', location.href.split('#')[0]).href;

// With ?embed=STEP, the page shows this one figure alone, for a frame in another page.
const embed = new URLSearchParams(location.search).get('embed');
const framed = embed === 'flow' || STEPS.some(({ name }) => name === embed);
if (framed) {
  document.body.dataset.embed = embed;
  document.querySelector('h1').className = 'unseen';
}

window.explorer = Object.freeze({
  // A copy of the last request and of its answer.
  get result() {
    if (!state.answer) return null;
    const { summary, sent, answer, status, tokens } = state.answer.reply;
    return structuredClone({ path: summary.path, request: sent, answer, status, tokens });
  },
  // The numbers of a step for a head and a batch item, as {rows, cols, data}.
  matrix: (name, head = 0, batch = 0) => structuredClone(state.answer?.matrix(name, batch, head) ?? null),
  // What is shown of stored layers: {name, layers: [{name, weights}], rollouts, words}; weights are matrices as [batch][head].
  get layers() {
    return state.layers?.shown() ?? null;
  },
  // The words, the weights and the next words of the trained model, or null.
  get story() {
    return state.story?.then((story) => structuredClone(story.said())) ?? null;
  },
  // What is compared: {name, worst, difference}, or null.
  get comparison() {
    return state.compared?.shown() ?? null;
  },
  // The arithmetic of the cell that is shown below the steps.
  get arithmetic() {
    return structuredClone(stage.arithmetic);
  },
  get state() {
    return shownState();
  },
});

function showStatus(kind, text) {
  $('status').dataset.state = kind;
  $('status').textContent = text;
}

// Tells the user something that is no problem of the request.
const notice = (title, detail) => problem.notice({ title, detail });

const say = (text) => ($('say').textContent = text);

const client = createClient(state.base, {
  progress({ phase, received, total, sending }) {
    const bar = $('progress');
    if (phase === 'computing') {
      bar.removeAttribute('value');
      bar.hidden = sending < 100_000;
      showStatus('busy', 'The server computes');
    } else if (phase === 'receiving') {
      bar.hidden = false;
      if (total) bar.value = received / total;
      showStatus('busy', `Receiving ${formatBytes(received)}${total ? ` of ${formatBytes(total)}` : ''}`);
    } else {
      bar.removeAttribute('value');
      showStatus('busy', 'The page reads the answer');
    }
  },
  wait(seconds, cause) {
    showStatus('busy', `The server is busy (${cause?.detail ?? '503'}). The page asks again in ${seconds} s`);
  },
});

const stage = new Stage(
  {
    ...{ root: $('picture'), words: $('words'), nav: $('steps'), heads: $('heads'), flow: $('flow'), single: $('single') },
    ...{ lines: $('lines'), explanation: $('explanation'), written: $('written'), save: $('save'), story: $('story') },
  },
  {
    lock: (row) => changeView({ row }),
    head: (head, batch) => changeView({ head, batch, mean: false, compare: head === state.compare ? null : state.compare }, true),
    compare: (head, batch) => changeView({ compare: head === state.head ? null : head, batch, mean: false }, true),
    ...{ open: openStep, mean: toggleMean, toggleMask, picture: client.picture, tell: notice, say },
  },
);
const changeOption = (key, value, live) => {
  const text = withMember(state.text, key, value, key === 'dtype');
  if (live) editLive(text);
  else editRequest(text, true);
};
const player = createPlayer($('player'), { defer, show: changeView, stage });
const options = createOptions($('options'), changeOption, () => writeAddress(true));
const editor = createEditor(
  { area: $('request'), marks: $('marks'), note: $('request-note'), file: $('file'), drop: document.body },
  {
    ...{ onText: takeText, keep: keepRequest, onUnreadable: refuseText, onRefused: notice },
    ...{ onHidden: openHidden, onOutputs: openOutputs, onTensors: client.hold, onReading: setOld },
    sentence: (words) => formatJSON({ ...OWN.variants[0].body, text: words }),
    isFor: (element) => (state.layers?.holds(element) ? 'layers' : state.compared?.holds(element) ? 'comparison' : 'request'),
  },
);
const problem = createProblemBox(
  { box: $('problem'), result: $('result'), panel: $('panel-request') },
  { editor, compute, askKey, openDrawer },
);
const theme = createTheme($('theme'), (dark) => {
  state.dark = dark;
  if (state.answer) {
    redraw();
    showOthers();
  }
  state.layers?.render();
});

// ---------------------------------------------------------------- asking

// Computes the request when its user has stopped changing it. The page is busy at once, because it shows no answer to the request yet.
function computeSoon(wait) {
  clearTimeout(state.timer);
  state.asked++;
  $('status').dataset.state = 'busy';
  state.timer = setTimeout(compute, wait);
}

async function compute() {
  const mine = ++state.asked;
  clearTimeout(state.timer);
  const { path, text } = state;
  const described = describe();
  const body = text.length < SMALL && parse(text);
  if (body && typeof body === 'object' && isSoftmax(body)) {
    $('options-note').textContent = '';
    const detail = 'This page shows attention. Attention needs X of rank 2 or more, and it takes no axis. Send this body to /softmax.';
    return refuse({ title: 'This body is for /softmax', detail });
  }
  if (body === undefined && !/^\s*\{/.test(text)) return refuseText();
  showStatus('busy', 'The server computes');
  const reply = await client.ask({ path, text });
  if (!reply) return;
  $('progress').hidden = true;
  // The answer is shown when it is drawn, so that nothing of the last one moves in sight.
  function status(kind, text) {
    showNew();
    if (mine === state.asked) showStatus(kind, text);
  }
  if (reply.failure) return status('error', failed(reply));
  state.summary = reply.summary ?? null;
  state.sent = reply.sent ?? null;
  if (reply.problem) return status('error', failed(reply));
  const { columns = null } = find(state.example).example;
  const answer = Object.assign(new Answer(reply, state.labels), { text, described, body: body || null, columns });
  if (answer.later) {
    const linear = await load(LINEAR_NAME).catch(({ message }) => showStatus('error', failed({ failure: message })));
    if (mine !== state.asked && !state.live) return;
    if (!linear) return showNew();
    linear.understand(answer, reply.sent);
  }
  problem.show(null);
  state.answer = answer;
  clampToAnswer();
  tellLabels();
  showOptions();
  try {
    stage.show(state.answer, state);
    describeExample(true);
    showOthers();
    await allDone();
  } catch (error) {
    return status('error', failed({ failure: error.message }));
  }
  const { queries, keys } = answer;
  status('done', `${queries} ${queries === 1 ? 'query' : 'queries'}, ${keys} ${keys === 1 ? 'key' : 'keys'}`);
  $('took').textContent = tookText(reply);
  openExpected(answer);
  if (state.mean) askMean();
}

const tellLabels = () => ($('labels-note').textContent = state.answer?.unfit ?? '');

function showOptions() {
  const { answer, summary } = state;
  $('options-note').textContent = summary ? '' : '(the request is not a JSON object)';
  options.update(summary, { keys: answer?.keys ?? 1, d: answer?.matrix('Q', 0, 0)?.cols ?? 1, heads: answer?.heads ?? 1 });
  setControls();
}

function tookText({ timing, milliseconds, bytes: received }) {
  const stage = /(?:^|[\s,])compute;dur=([\d.]+)/.exec(timing ?? '');
  const inside = stage ? `server ${formatNumber(Number(stage[1]), 2)} ms, ` : '';
  return `${inside}total ${Math.round(milliseconds)} ms, ${formatBytes(received)}`;
}

// Shows why the page has no answer, and returns it in a few words.
function failed(reply) {
  state.needsKey ||= reply.status === 401;
  if (reply.problem) showOptions();
  else setControls();
  if (reply.status === 401) askKey();
  const lost = { title: 'The server cannot be reached', detail: 'Check that it is running. The page still has your request.', again: true };
  const odd = { title: 'The answer cannot be read', detail: reply.failure, again: true };
  const found = reply.unreachable ? lost : reply.failure ? odd : reply.problem;
  problem.show(found);
  $('took').textContent = '';
  return found.title;
}

// Says why the page does not send the request. If an answer is still on its way, it belongs to an older request, and the page drops it.
function refuse(found, status = found.title) {
  clearTimeout(state.timer);
  showNew();
  client.forget();
  $('progress').hidden = true;
  problem.show(found);
  showStatus('error', status);
}

// The page does not send a text that begins like no request. message, index: what is wrong, and where, if it is known.
function refuseText(message, index) {
  state.summary = state.sent = null;
  showOptions();
  const detail = message ?? 'The page can make a request of words, of a table or CSV, and of matrices as Python prints them.';
  refuse({ title: 'This is not JSON: a request begins with {', detail, index, unread: !message }, 'This is not JSON');
}

function askKey() {
  const dialog = $('key-dialog');
  if (dialog.open) return;
  $('key-title').textContent = client.hasKey() ? 'The server does not know this key' : 'This server needs a key';
  $('key').value = '';
  dialog.returnValue = '';
  dialog.showModal();
}

// Asks the server for the mean over heads, by the same request with mean_over_heads.
async function askMean() {
  const asked = state.answer;
  const text = withMember(asked.text, 'mean_over_heads', 'true');
  const reply = await client.aside({ path: asked.summary.path, text, results: ['weights'], as: 'mean' });
  if (asked !== state.answer) return;
  if (!reply.matrices) {
    changeView({ mean: false });
    return notice('The server has not computed the mean over heads', reply.problem?.detail ?? reply.failure);
  }
  state.answer.mean = reply.matrices.weights.map(([matrix]) => matrix);
  redraw();
}

function showOthers() {
  state.compared?.render(state.answer, state);
  if (state.example === MODEL.id) state.story?.then((story) => story.follow({ ...lookOf(), head: state.head, row: state.row }));
  if (player.render(state.answer, state, stage.opened())) redraw();
}

// Shows the same words and matrices, as the user has edited them, by the rule of another variant.
function changeRule(variant) {
  const { text, labels, step, head, batch, row, position, lines, threshold, mass } = state;
  const other = edited();
  state.drafts.delete(variant.id);
  if (other) state.drafts.set(variant.id, { path: variant.path, text: carried(text, variant, state.stash), labels });
  else state.stash.clear();
  choose(variant.id, { step, head, batch, row, position, lines, threshold, mass });
}

// ---------------------------------------------------------------- comparing

// Resolves to the comparison, or to null if there is no answer or if it cannot be loaded. The first call loads it.
async function comparison() {
  if (!state.answer) return null;
  if (!state.compared) {
    const loaded = await load(COMPARE_NAME).catch(({ message }) => notice('Compare cannot be loaded', message));
    if (!loaded) return null;
    state.compared ??= loaded.createCompare($('comparison'), {
      ...{ Figure, createSaveMenu, drawBar, makeRange, colours, defer, showTooltip, hideTooltip },
      ...{ judge: client.judge, show: changeView, say, tell: notice, close: problem.close, opened: openOutputs, keep: keepAnswer },
      request: editor.open,
      point: (cell) => stage.setHover(cell),
      aside: (is) => $('result').classList.toggle('comparing', !is),
      closed: () => {
        $('result').classList.remove('comparing');
        $('compare-open').hidden = false;
        redraw();
      },
    });
  }
  $('compare-open').hidden = true;
  return state.compared;
}

// Keeps the present answer as A, so that later answers are compared with it.
async function keepAnswer() {
  const compared = await comparison();
  if (!compared) return;
  compared.keep(state.answer);
  openDrawer(true); // the user changes the request there
  changeView({});
}

// Compares the present answer with the output of the user's own kernel. own: whether the file has the present request.
async function openOutputs(files, own = false) {
  const compared = await comparison();
  await compared?.open(files, state.answer, state, own);
}

async function openExpected({ text, body }) {
  const keys = Object.keys(body ?? {}).filter((key) => /^expected\b/.test(key));
  const expected = JSON.stringify(keys.map((key) => body[key]));
  if (expected === state.expected) return;
  state.expected = expected;
  if (body?.expected) openOutputs([new File([JSON.stringify({ expected: body.expected })], 'expected.json')], true);
  else if (keys.length) openOutputs([new File([await client.body(text)], 'expected.safetensors')], true);
}

// ---------------------------------------------------------------- stored layers

// Returns all pages of the list of stored layers, or null.
async function listLayers() {
  const listed = { layers: [], refused: [] };
  for (let path = '/layers?limit=1000'; path;) {
    const page = await client.get(path);
    if (!page) return null;
    listed.layers.push(...page.layers);
    listed.refused.push(...page.refused);
    path = page.next && `/layers?limit=1000&after=${encodeURIComponent(page.next)}`;
  }
  return listed;
}

async function findLayers() {
  if (state.layers || (state.needsKey && !client.hasKey())) return;
  const listed = await listLayers();
  if (!listed || state.layers || listed.layers.length + listed.refused.length === 0) return;
  const { createLayers } = await load(LAYERS_NAME);
  state.layers ??= createLayers($('layers'), listed, state, {
    ...{ Stage, createSaveMenu, drawBar, colours, defer, allDone, showTooltip, hideTooltip, say, stored: client.stored, tell: notice },
    show: (change) => changeView(change, true),
    copy: (button) => copyWith(location.href, button),
    captured(files) {
      $('result').scrollIntoView();
      editor.open(files);
    },
  });
  $('to-layers').hidden = false;
}

function showLayers() {
  $('layers').scrollIntoView();
  $('layers').focus({ preventScroll: true });
}

// Takes files of hidden states, which are for stored layers.
function openHidden(files) {
  const detail =
    'The file has hidden states for the layers of a model. The operator of the server names the folder of models with --layers.';
  if (!state.layers) return notice('This server has no stored layers', detail);
  showLayers();
  state.layers.open(files);
}

const isShown = () => state.answer?.text === state.text;
const tour = createTour($('tour'), $('tour-open'), {
  async begin() {
    const ready = () => state.example === PRONOUN.id && !edited() && isShown();
    if (!$('comparison').hidden) state.compared?.close();
    if (!ready()) {
      state.drafts.delete(PRONOUN.id);
      await choose(PRONOUN.id);
    }
    return ready();
  },
  async change(make) {
    const changes = make(parse(state.text));
    state.text = Object.entries(changes).reduce((text, [key, value]) => withMember(text, key, JSON.stringify(value)), state.text);
    state.path = pathAfter(state.path, parse(state.text));
    editor.set(state.text);
    writeAddress(false);
    await compute();
    return isShown();
  },
  show(cell, asking) {
    if (state.step !== 'flow' || state.mean || state.row !== null) changeView({ step: 'flow', row: null, mean: false });
    document.body.classList.add('touring');
    document.body.classList.toggle('asking', asking);
    stage.point(cell);
    stage.reveal(cell.id, $('tour').offsetHeight);
  },
  leave: () => document.body.classList.remove('touring', 'asking'),
  answer: () => state.answer,
});

// ---------------------------------------------------------------- changes of the state

// Changes the request as a control says. Labels and head stay if they fit. push: whether the history of the browser gets a step.
function editRequest(text, push) {
  if (text === state.text) return;
  tour.leave();
  state.text = text;
  editor.set(text);
  writeAddress(push);
  computeSoon(push ? 60 : TYPING);
}

// Changes the request while the user moves a slider. The next request is sent when the last one has been answered, so that there is always
// a result to see.
async function editLive(text) {
  if (text === state.text) return;
  tour.leave();
  state.text = text;
  editor.set(text);
  describeExample();
  if (state.live) return;
  state.live = true;
  try {
    for (let sent = null; sent !== state.text;) {
      sent = state.text;
      const mine = state.asked + 1;
      await compute();
      if (mine !== state.asked) break; // another change has sent a later request
    }
  } finally {
    state.live = false;
  }
}

// Takes the text that the user gives. replaced: the user has dropped it, opened it or pasted it over the whole text. Otherwise the user
// has typed in the text.
function takeText(text, replaced, labels = [], path = undefined, captured = null) {
  tour.leave();
  state.text = text;
  if (replaced) {
    state.expected = '[]'; // a file may have other numbers than a file of the same name before
    state.compared?.forget();
    Object.assign(state, FRESH, { example: OWN.id, labels, captured });
    options.forget();
    drawExamples();
    setOld(true);
  }
  const body = parse(text);
  if (body && typeof body === 'object') state.path = replaced ? (path ?? pathFor(body)) : pathAfter(state.path, body);
  $('path').value = state.path;
  writeAddress(replaced);
  computeSoon(replaced ? 0 : TYPING);
}

// Shows another layer of a captured file: the one that was chosen last.
async function takeCaptured(at) {
  const { captured } = state;
  captured.asked = at;
  const found = await captured.request(at).catch(({ message }) => {
    $('layer').value = captured.at;
    notice('The layer cannot be read', message);
  });
  if (!found || captured !== state.captured || captured.asked !== at) return;
  const { text, tensors, labels, note } = found;
  captured.at = at;
  state.compared?.forget();
  client.hold(tensors);
  tour.leave();
  Object.assign(state, { text, labels });
  editor.set(text);
  $('request-note').textContent = note;
  writeAddress(false);
  computeSoon(0);
}

// Returns a function that brings the present request back, with what the user made of the others.
function keepRequest() {
  const before = shownState();
  delete before.dark;
  const others = Object.fromEntries(['drafts', 'latest', 'stash'].map((name) => [name, new Map(state[name])]));
  return () => {
    Object.assign(state, others);
    choose(before.example, before);
  };
}

// Shows an example as the user left it. If the page opens at a link, it shows the example as the link has it (`kept`) and adds no step to
// the history (`push` is false).
function choose(id, kept = {}, push = true) {
  const { example, variant } = find(id);
  const made = { path: variant.path, text: requestText(variant), labels: example.labels ?? [], row: example.row ?? null, captured: null };
  const own = { ...(push && state.drafts.get(variant.id)), ...kept };
  tour.leave();
  Object.assign(state, FRESH, made, own, { example: variant.id });
  editor.set(state.text);
  $('sentence-box').hidden = !('text' in variant.body);
  options.forget();
  drawExamples();
  if (push) writeAddress(true);
  else describeExample(true);
  if (state.answer) hideOld();
  return example === MODEL ? openModel(own) : compute();
}

// Shows the trained model. own: what the user or the address has made of it. A request in it is an edited one.
async function openModel(own) {
  Object.assign(state, { step: 'model', words: MODEL.words }, own);
  try {
    const { createStory } = await load(STORYVIEW_NAME);
    state.story ??= createStory($('story'), {
      ...{ post: client.post, take: takeLayer, words: MODEL.words, tell: notice, say },
      stored: async () => (await client.get('/layers?limit=1000'))?.layers ?? [],
      lines: async (place) =>
        (await load(LINES_NAME)).createLines(place, { onHover: (word) => stage.setHover(word), onLock: (row) => changeView({ row }) }),
    });
    const { words, layer, head, off, unseen, row } = state;
    await (await state.story).open({ words, layer, head, off, unseen, row, look: lookOf() });
    if (own.text === undefined || find(state.example).example !== MODEL) return;
    Object.assign(state, { path: own.path, labels: own.labels });
    editRequest(own.text, false);
  } catch ({ message }) {
    state.story = null;
    showNew();
    notice('The model cannot be loaded', message);
    showStatus('error', 'The model cannot be loaded');
  }
}

const lookOf = () => ({ palette: state.palette, log: state.log, dark: state.dark });

// Makes a layer of the trained model the request. It is then what the example is, so it counts as not edited.
async function takeLayer(path, text, labels, shown) {
  if (find(state.example).example !== MODEL) return; // the user has chosen another example meanwhile
  Object.assign(MODEL, { labels });
  Object.assign(MODEL.variants[0], { text, body: parse(text) });
  Object.assign(state, { path, text, labels, ...shown, example: MODEL.id });
  editor.set(text);
  $('request-note').textContent = '';
  writeAddress(false);
  await compute();
  stage.setHover({ query: state.row ?? labels.length - 1 });
}

// Hides the answer to the last example if the next one takes long, because its numbers are not those of the example that is named now.
function hideOld() {
  clearTimeout(state.hiding);
  state.hiding = setTimeout(() => {
    state.focus = document.activeElement;
    $('result').classList.add('waiting');
  }, LATE);
}

// Dims the picture while it is older than what the user has pasted or dropped.
function setOld(is) {
  $('result').classList.toggle('old', is);
}

function showNew() {
  clearTimeout(state.hiding);
  setOld(false);
  if (!$('result').classList.contains('waiting')) return;
  $('result').classList.remove('waiting');
  if (document.activeElement === document.body) state.focus?.focus({ preventScroll: true });
}

const resume = (id) => choose(state.latest.get(id) ?? id);

function edited() {
  const { example, variant } = find(state.example);
  return state.text !== requestText(variant) || state.path !== variant.path || String(state.labels) !== String(example.labels ?? []);
}

function describe() {
  const { example, variant } = find(state.example);
  const name = example === OWN ? 'your request' : (example.name ?? `notebook ${example.id}`);
  return [name, example.variants.length > 1 && variant.title, edited() && 'edited'].filter(Boolean).join(', ');
}

// Writes the note of the example. If the user has edited the request, the note says what was edited, and a button undoes it.
// arrived: the page shows the request of its address. An unchanged request then removes no draft.
function describeExample(arrived = false) {
  const { example, variant } = find(state.example);
  const { path, text, labels, words, layer, off, unseen, captured } = state;
  const other = edited();
  state.latest.set(example.id, variant.id);
  if (other || example === MODEL)
    state.drafts.set(variant.id, { ...(other && { path, text, labels, captured }), ...(words && { words, layer, off, unseen }) });
  else if (!arrived) state.drafts.delete(variant.id);
  const own = example === OWN;
  const body = other && !own ? parse(text) : null;
  const drawn = !own || text.includes('"random"'); // the note of a sentence says that its numbers are random
  const note = captured?.look ?? (drawn && variant.look ? variant.look : example.look);
  const known = () => (typeof note !== 'function' ? note : isShown() ? note(state.answer) : '');
  const told = body === undefined ? '' : (body && changes({ path, body }, variant, example.name && 'example')) || known();
  // A finger cannot point without touching, and nobody points on paper.
  const touches = matchMedia('(pointer: coarse)').matches;
  if (stage.printing) $('look').textContent = told.replace(/ Point at [^.]*\./, '');
  else $('look').textContent = touches ? told.replace('Point at', 'Touch').replace('point at', 'touch') : told;
  $('back').hidden = !other;
}

// Changes how the answer is shown. The request stays.
function changeView(change, push = false) {
  Object.assign(state, change);
  if (state.answer) {
    redraw();
    setControls();
    showOthers();
  }
  state.layers?.render();
  writeAddress(push);
}

// Opens a step in the place of the one that was open. name: a step, `flow` or `lines`.
function openStep(name) {
  const lines = name === 'lines';
  changeView({ step: lines ? 'weights' : name, lines, mean: state.mean && name !== 'flow' }, true);
}

function openNext(places) {
  if (!state.answer) return;
  const names = stage.views();
  openStep(names[(names.indexOf(stage.opened()) + places + names.length) % names.length]);
}

function toggleMean() {
  changeView({ mean: !state.mean, compare: null, step: ['flow', 'model'].includes(state.step) ? 'weights' : state.step }, true);
  if (state.mean && !state.answer.mean) askMean();
}

// Draws the present answer again. While the page waits, the state may be that of the next one.
function redraw() {
  clampToAnswer();
  stage.render(state);
}

function clampToAnswer() {
  const heads = state.answer.matrices.weights[0].length;
  const clamp = (x, count) => Math.min(x, count - 1);
  state.batch = clamp(state.batch, state.answer.batch);
  state.head = clamp(state.head, heads);
  if (state.compare !== null && (state.compare >= heads || state.compare === state.head)) state.compare = null;
  if (heads < 2 || state.step === 'flow') state.mean = false;
  if (state.row !== null && state.row >= state.answer.queries) state.row = null;
  if (state.position >= state.answer.queries - 1) state.position = null;
}

// Writes the state into the address. Each change waits for the one before it, because packing a request takes time.
function writeAddress(push) {
  describeExample();
  state.written = state.written.then(async () => {
    const changed = edited();
    const hash = await toHash(state, changed);
    const tooLong = changed && !/[#&]request=/.test(hash);
    $('no-link').hidden = !tooLong;
    $('copy-link').disabled = tooLong;
    if (hash === location.hash) return;
    history[push ? 'pushState' : 'replaceState'](null, '', hash);
  });
}

async function readAddress() {
  const mine = ++state.read;
  const { broken, example, ...kept } = await fromHash(location.hash);
  if (mine !== state.read) return;
  tour.leave();
  const { palette, range = null, log, numbers, model = null, map = null } = kept;
  Object.assign(state, { palette: SEQUENTIAL.includes(palette) ? palette : 'viridis', range, log, numbers, model, map });
  state.layers?.render();
  await choose(example ?? EXAMPLES[0].id, { ...kept, palette: state.palette, ...(framed && { step: embed }) }, false);
  const detail = 'The page cannot read the request in the link. It shows the example that the request came from.';
  if (broken) notice('This link is damaged', detail);
}

function toggleMask(row, col) {
  const { queries, keys } = state.answer;
  const mask = parse(state.text)?.mask ?? null;
  if (mask && (!Array.isArray(mask) || String(shapeOf(mask)) !== String([queries, keys]))) {
    const detail = `A click changes a mask of ${queries} × ${keys}. Change this one in the request, or clear it.`;
    return notice('The mask of this request has another shape', detail);
  }
  const rows = mask ?? Array.from({ length: queries }, () => new Array(keys).fill(1));
  const word = typeof rows[row][col] === 'boolean';
  rows[row][col] = word ? !rows[row][col] : 1 - rows[row][col];
  const all = rows.every((line) => line.every(Boolean));
  const written = all ? undefined : `[\n    ${rows.map((line) => JSON.stringify(line)).join(',\n    ')}\n  ]`;
  editRequest(withMember(state.text, 'mask', written), true);
}

function openDrawer(open) {
  $('drawer').hidden = !open;
  $('drawer-open').ariaExpanded = open;
  if (open && matchMedia('(max-width: 900px)').matches) $('drawer').scrollIntoView();
}

// ---------------------------------------------------------------- controls

function choice(place, title, pressed, data, does) {
  const button = makeButton($(place), title, does, { ariaPressed: pressed });
  Object.assign(button.dataset, data);
  return button;
}

function drawExamples() {
  const { example, variant } = find(state.example);
  const focus = document.activeElement?.dataset.example ?? document.activeElement?.dataset.variant;
  $('examples').replaceChildren();
  for (const one of ALL) {
    const button = choice('examples', '', one === example, { example: one.id }, () => resume(one.id));
    make('span', 'id', button, one === OWN ? '+' : /^\d/.test(one.id) ? one.id : '');
    button.append(one.title);
  }
  $('variants').replaceChildren();
  for (const one of example.variants.length > 1 ? example.variants : [])
    choice('variants', one.title, one === variant, { variant: one.id }, () => (example.rules ? changeRule(one) : choose(one.id)));
  requestAnimationFrame(() => {
    const current = document.querySelector('#examples [aria-pressed="true"]');
    $('examples').scrollLeft = current.offsetLeft - $('examples').offsetLeft - 16;
  });
  const { names, at } = state.captured ?? { names: new Map() };
  $('layer').replaceChildren(...Array.from(names, ([number, name]) => new Option(`${number} ${name}`, number)));
  $('layer').value = at;
  $('layer-box').hidden = names.size < 2;
  if (focus) document.querySelector(`[data-example="${focus}"], [data-variant="${focus}"]`)?.focus();
}

// Saves a request. One with matrices of files becomes a file of tensors, which can be opened here and sent by other programs.
async function saveRequest(name, text) {
  if (hasHeld(text)) save('request.safetensors', 'application/vnd.safetensors', await client.body(text));
  else save(name, 'application/json', text);
}

const copyWith = async (text, button) =>
  say((await copyText(text, button)) ? 'Copied' : 'Not copied. The text is selected: press Ctrl+C or ⌘C.');

const CAUSAL = [undefined, 'true', '"bottom_right"'];

const on = (id, event, does) => $(id).addEventListener(event, () => does($(id)));
$('path').append(...PATHS.map((path) => new Option(path)));
on('path', 'change', ({ value }) => {
  state.path = value;
  writeAddress(true);
  compute();
});
for (const name of ['log', 'numbers', 'every']) on(name, 'change', ({ checked }) => changeView({ [name]: checked }));
for (const name of ['palette', 'range']) on(name, 'change', ({ value }) => changeView({ [name]: value }));
on('layer', 'change', ({ value }) => takeCaptured(Number(value)));
on('compare', 'change', ({ value }) => changeView({ compare: value === '' ? null : Number(value) }, true));
on('drawer-open', 'click', () => openDrawer($('drawer').hidden));
on('line-mode', 'change', ({ value }) => changeView({ mass: value === 'mass', threshold: value === 'mass' ? 0.9 : 0 }));
on('threshold', 'input', ({ value }) => changeView({ threshold: Number(value) }));
on('back', 'click', () => {
  state.drafts.delete(state.example);
  choose(state.example);
});
on('compare-open', 'click', keepAnswer);
on('mask-edit', 'click', () => changeView({ editMask: !state.editMask }));
on('mask-clear', 'click', () => editRequest(withMember(state.text, 'mask', undefined), true));
on('sentence', 'input', ({ value }) =>
  editRequest(withMember(withMember(state.text, 'tokens', undefined), 'text', JSON.stringify(value)), false),
);
on('labels', 'input', ({ value }) => {
  state.labels = value.split(',').map((label) => label.trim()).filter(Boolean); // prettier-ignore
  writeAddress(false);
  state.answer?.relabel(state.labels);
  tellLabels();
  if (!state.answer) return;
  stage.show(state.answer, state);
  showOthers();
});
on('copy', 'click', (button) => copyWith($('code').textContent, button));
on('copy-link', 'click', (button) => copyWith(location.href, button));
on('save-body', 'click', () => saveRequest('body.json', bodyText(state.sent ?? state.text)));
on('save-request', 'click', () => saveRequest('request.json', state.text));
// The hash of the address holds the state of the page, so this link must not change the hash.
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  $('result').focus();
});
on('to-layers', 'click', showLayers);
on('shortcuts', 'click', () => $('help').showModal());
on('key-dialog', 'close', (dialog) => {
  if (dialog.returnValue !== 'use' || !$('key').value) return;
  client.setKey($('key').value);
  $('key').value = '';
  compute();
  findLayers();
  state.curve?.ask();
});
$('languages').addEventListener('click', ({ target }) => {
  state.language = target.dataset.language ?? state.language;
  setCode();
});
const shortcuts = {
  '?': () => $('help').showModal(),
  '[': () => state.answer && changeView({ head: Math.max(0, state.head - 1), mean: false }, true),
  ']': () => state.answer && changeView({ head: state.head + 1, mean: false }, true),
  m: () => state.answer?.matrices.weights[0].length > 1 && toggleMean(),
  ',': () => openNext(-1),
  '.': () => openNext(1),
  a: () => openStep('flow'),
  l: () => !state.answer?.later && openStep(state.lines ? 'weights' : 'lines'),
  o: () => openDrawer($('drawer').hidden),
  n: () => changeView({ numbers: !state.numbers }),
  g: () => changeView({ log: !state.log }),
  t: () => theme.next(),
  c() {
    if (state.summary?.options.update) return; // without softmax, no word sees a later one
    const causal = state.summary?.options.causal;
    const at = CAUSAL.indexOf(causal ? JSON.stringify(causal) : undefined);
    editRequest(withMember(state.text, 'causal', CAUSAL[(at + 1) % CAUSAL.length]), true);
  },
  Escape: () => (state.row === null && !state.editMask && !framed ? openStep('flow') : changeView({ row: null, editMask: false })),
  ...Object.fromEntries(EXAMPLES.map(({ id }, at) => [String(at), () => resume(id)])),
};
listenToKeyboard(framed ? { Escape: shortcuts.Escape } : shortcuts, $('shortcuts-on'));
window.addEventListener('popstate', readAddress);
for (const event of ['beforeprint', 'afterprint']) {
  window.addEventListener(event, () => {
    const printing = event === 'beforeprint';
    setAtOnce(printing);
    stage.printing = printing;
    theme.print(printing);
    describeExample(true);
  });
}
// The curve sends a request of its own, so it is made when it comes into sight.
const watcher = new IntersectionObserver(async ([entry]) => {
  if (!entry.isIntersecting) return;
  watcher.disconnect();
  const { Curve } = await load(CURVE_NAME);
  state.curve = new Curve($('curve'), client.post);
});
watcher.observe($('curve'));
// The script and the first request are two tasks, so that the browser can draw between them.
setTimeout(async () => {
  await readAddress();
  if (!framed) findLayers();
  const steps = ['flow', ...STEPS.map(({ name }) => name)].join(', ');
  if (framed && state.answer && stage.opened() !== embed) notice(`The answer has no ${embed} to show`, 'The figure shows the weights.');
  if (embed !== null && !framed) notice(`There is no step ${embed} to embed`, `The address has ?embed=${embed}. The steps are ${steps}.`);
});
if (!framed) tour.offer();
