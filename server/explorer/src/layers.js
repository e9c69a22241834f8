// layers.js shows stored layers: the list of them, and, for hidden states that the user gives, the weights of all heads of all layers as a
// grid of small maps, and one layer with all its matrices. The page loads it only if the server has stored layers. Parts of the page that
// exist once, such as the tooltip, are given to it (`tools`).
import { fill, makeWith } from './dom.js';
import { createGrid } from './grid.js';
import { isSpecial, layerRequest, linesOf, readHiddenStates, weightsRequest } from './hiddenstates.js';
import { answerOfLayer, answerOfRollout, pick, withoutWords } from './layeranswer.js';
import { formatBytes } from './numbers.js';
import markup from './parts/layers.html';
import { fail, shapeText } from './tensortext.js';

const MOST_WEIGHTS = 10_000_000; // numbers of an answer; more would take the memory of a small machine
const LONGEST_WAIT = 30; // seconds

const counted = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;
const span = (numbers) => [...new Set([Math.min(...numbers), Math.max(...numbers)])].join(' to ');

// Returns the first parts of the names of layers, which end before a number, if they differ. A model with an encoder and a decoder has two.
function stemsOf(layers) {
  const stems = [...new Set(layers.map(({ name }) => name.replace(/\.\d+(\..*)?$/, '')))];
  return stems.length > 1 ? stems.filter((stem) => layers.some(({ name }) => name.startsWith(`${stem}.`))) : [];
}

function drawModel(parent, model, layers) {
  const details = makeWith('details', parent, { className: 'model' });
  details.dataset.model = model;
  const [{ family, file }] = layers;
  const [heads, sizes] = ['heads', 'd_model'].map((key) => span(layers.map((layer) => layer[key])));
  const textContent = ` ${family}: ${counted(layers.length, 'layer')} of ${heads} heads, d_model ${sizes}, in ${file}`;
  makeWith('small', makeWith('summary', details, { textContent: model }), { textContent });
  const region = makeWith('div', details, { className: 'numbers', tabIndex: 0, role: 'region', ariaLabel: `Layers of ${model}` });
  const table = makeWith('table', region);
  const titles = table.createTHead().insertRow();
  for (const title of ['layer', 'heads', 'd_model', 'd_k', 'type', 'size']) makeWith('th', titles, { textContent: title, scope: 'col' });
  const body = table.createTBody();
  for (const { name, bytes, ...layer } of layers) {
    const row = body.insertRow();
    makeWith('th', row, { textContent: name, scope: 'row' });
    for (const text of [layer.heads, layer.d_model, layer.d_k, layer.dtype, formatBytes(bytes)]) makeWith('td', row, { textContent: text });
  }
}

function drawRefused(parent, refused) {
  if (!refused.length) return;
  const details = makeWith('details', parent, { className: 'model refused', open: refused.length < 4 });
  makeWith('summary', details, { textContent: `Not served: ${refused.length}` });
  const list = makeWith('ul', details);
  for (const { name, model, reason } of refused)
    makeWith('li', list).append(makeWith('code', null, { textContent: name ?? model }), `: ${reason}`);
}

// Makes the section. section: its element, which is still empty. listed: the answer to GET /layers. state: how the page shows weights, and
// which map is large: {model, map}. tools: as in grid.js, and {stored(path, request), show(change), captured(files)}: show() changes the
// state, and captured() takes a captured file.
export function createLayers(section, listed, state, tools) {
  const models = new Map();
  for (const layer of listed.layers) models.set(layer.model, [...(models.get(layer.model) ?? []), layer]);
  const names = new Set(listed.layers.map(({ name }) => name));
  let asked = 0; // how many files the user has given
  let file = null;
  let shown = null; // {name, layers, rollouts, words, found}
  let answers = new Map(); // the answers of layers and of the rollout, by their rows in the grid; null as long as one is computed
  let laid = null; // what the grid shows: {item, kept, layers, rollout, label}
  let hidden = false; // whether words such as [CLS] are hidden

  const { list, given, input, target, batchBox, batch, status, problem, view } = fill(section, markup);
  for (const [model, layers] of models) drawModel(list, model, layers);
  drawRefused(list, listed.refused);

  given.hidden = !models.size;
  // The hidden states may belong to a model, to a part of it, or to a single layer.
  for (const [model, layers] of models) {
    const parts = [...stemsOf(layers), ...layers.map(({ name }) => name)];
    const whole = new Option(`${model}, ${counted(layers.length, 'layer')}`, model);
    makeWith('optgroup', target, { label: model }).append(whole, ...parts.map((name) => new Option(name)));
  }
  const grid = createGrid(view, tools, {
    open(row, col, item) {
      batch.value = item;
      tools.show({ model: shown.name, map: row === shown.layers.length ? 'rollout' : `${row}.${col}` });
    },
    close: () => tools.show({ model: null, map: null }),
    hide(whether) {
      hidden = whether;
      render();
    },
  });

  function refuse(title, detail) {
    status.textContent = '';
    problem.hidden = false;
    problem.replaceChildren(makeWith('h3', null, { textContent: title }), makeWith('p', null, { textContent: detail }));
  }

  // Chooses what the hidden states belong to, if the file says it.
  function chooseTarget({ model }) {
    if (model === null) return;
    const known = [...target.options].some(({ value }) => value === model);
    if (!known && !listed.layers.some(({ name }) => name.startsWith(`${model}.`)))
      fail(`The file is for the model ${model}, and this server has no such model. It has ${[...models.keys()].join(', ')}.`);
    if (!known) target.append(new Option(model));
    target.value = model;
  }

  // Throws an Error if the hidden states do not fit to what they are for, or need too many weights.
  function check({ X }) {
    const layers = listed.layers.filter(({ name, model }) => [name, model].includes(target.value) || name.startsWith(`${target.value}.`));
    if (X.shape.length === 2 && layers.length === 1) target.value = layers[0].name;
    if (X.shape.length === 2 && !names.has(target.value)) fail(`X (${shapeText(X.shape)}) is for one layer. Choose this layer.`);
    const n = X.shape.at(-2);
    const heads = layers.reduce((sum, layer) => sum + layer.heads, 0);
    const items = X.shape.slice(names.has(target.value) ? 0 : 1, -2).reduce((a, b) => a * b, 1);
    const weights = heads * items * n * n;
    if (weights <= MOST_WEIGHTS) return;
    const each = `${counted(heads, 'head')} of ${n} × ${n} weights${items > 1 ? ` for ${items} batch items` : ''}`;
    const most = `The page takes at most ${MOST_WEIGHTS / 1e6} million. Use a shorter text.`;
    fail(`${each} are ${(weights / 1e6).toPrecision(3)} million numbers. ${most}`);
  }

  // Sends a request, and repeats it while the server is busy. Resolves to null if it is refused, or if the user has given another file.
  async function ask(name, request, mine) {
    for (const before = status.textContent; ;) {
      const reply = await tools.stored(`/layers/${encodeURIComponent(name)}/attention`, request);
      if (mine !== asked) return null;
      const { retryAfter, problem: why, failure, unreachable } = reply;
      if (!retryAfter) {
        status.textContent = before;
        if (!why && !failure) return reply;
        refuse(why?.title ?? (unreachable ? 'The server cannot be reached' : 'The answer cannot be read'), why?.detail ?? failure);
        return null;
      }
      const seconds = Math.min(retryAfter, LONGEST_WAIT);
      status.textContent = `The server is busy (${why.detail}). The page asks again in ${seconds} s`;
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      if (mine !== asked) return null;
    }
  }

  // Asks for the weights of a file's hidden states and shows them. fresh: whether the file may choose what it is for.
  async function compute(fresh) {
    const mine = ++asked;
    problem.hidden = true;
    status.textContent = 'The page reads the file';
    try {
      const found = await readHiddenStates(file);
      if (mine !== asked) return;
      if (found.captured) {
        status.textContent = '';
        tools.captured([file]);
        return (file = null);
      }
      if (fresh) chooseTarget(found);
      check(found);
      status.textContent = 'The server computes';
      const reply = await ask(target.value, weightsRequest(found, names.has(target.value)), mine);
      if (reply) show(found, reply);
    } catch (error) {
      if (mine === asked) refuse(`${file.name}: not opened`, error.message);
    }
  }

  function show(found, reply) {
    const layers = reply.layers.map(({ name, weights }) => ({ name: name ?? target.value, weights }));
    // A rollout goes through all layers of a model, and the service leaves out those that it refuses.
    const missing = listed.refused.filter(({ name }) => name?.startsWith(`${target.value}.`)).length;
    const rollouts = missing ? reply.rollouts.map(() => null) : reply.rollouts;
    shown = { name: target.value, layers, rollouts, words: found.words, found };
    const items = layers[0].weights.length;
    batchBox.hidden = items === 1;
    batch.replaceChildren(...Array.from({ length: items }, (_, at) => new Option(at)));
    const heads = span(layers.map(({ weights }) => weights[0].length));
    const { rows } = layers[0].weights[0][0];
    status.textContent =
      `${file.name} for ${target.value}: ${counted(layers.length, 'layer')} × ${heads} heads, ${counted(rows, 'word')}, ` +
      `${Math.round(reply.milliseconds)} ms, ${formatBytes(reply.bytes)}.${found.note}` +
      (missing ? ` ${counted(missing, 'layer')} of this model ${missing > 1 ? 'are' : 'is'} refused: there is no rollout.` : '');
    answers = new Map();
    laid = null;
    render();
  }

  // Asks for all results of a layer. If they are too many, its weights are all that is shown.
  async function fetchAnswer(row) {
    const { name, layers, found, rollouts } = shown;
    const mine = asked;
    const { weights } = layers[row] ?? {};
    const labels = found.words ?? Array.from({ length: found.X.shape.at(-2) }, (_, at) => String(at));
    const keep = (answer) => answers.set(row, Object.assign(answer, { of: `-${layers[row]?.name ?? `${name}-rollout`}` }));
    if (!weights) return keep(answerOfRollout(layers, rollouts, labels));
    if (weights.flat().reduce((sum, { data }) => sum + 4 * data.length, 0) > MOST_WEIGHTS)
      return keep(answerOfLayer({ matrices: { weights } }, labels));
    answers.set(row, null);
    problem.hidden = true;
    const entry = listed.layers.find((one) => one.name === layers[row].name);
    const reply = await ask(entry.name, layerRequest(found, names.has(name) ? null : row, entry), mine);
    if (reply) keep(answerOfLayer(reply, labels));
    else if (mine === asked) answers.delete(row); // so that the user can try again
    if (reply) render();
  }

  // Returns the answer of a row of the grid, without the words that are hidden, or null if it has not come.
  function answerOf(row) {
    if (!answers.has(row)) fetchAnswer(row);
    const answer = answers.get(row);
    return answer && laid.kept ? (answer.short ??= withoutWords(answer, laid.kept)) : answer;
  }

  function open(files) {
    if (files.length !== 1) return files.length && refuse('Not opened', 'Open one file.');
    [file] = files;
    return compute(true);
  }

  // Returns what the grid shows of a batch item. The words that are hidden have no rows and no columns.
  function lay(item, special) {
    const { words, layers, rollouts } = shown;
    const kept = hidden && special.length ? Array.from(words.keys()).filter((at) => !isSpecial(words[at])) : null;
    const part = (matrix) => (kept && matrix ? pick(matrix, kept, kept) : matrix);
    const label = (at) => words?.[kept ? kept[at] : at] ?? String(at);
    const lines = linesOf(layers.map(({ name }) => name.slice(listed.layers.find((one) => one.name === name).model.length)));
    const heads = layers.map(({ name, weights }, row) => ({ line: lines[row], name, heads: weights[item].map(part) }));
    return { item, kept, layers: heads, rollout: part(rollouts[item]), label };
  }

  function render() {
    if (!shown) return;
    const { palette, log, range, dark, numbers, threshold, mass, every, model, map } = state;
    const { words, layers, name } = shown;
    const [{ rows, cols }] = layers[0].weights[0];
    const found = rows === cols && words?.some((word) => !isSpecial(word)) ? [...new Set(words.filter(isSpecial))] : [];
    const item = Number(batch.value);
    if (laid?.item !== item || Boolean(laid.kept) !== (hidden && found.length > 0)) laid = lay(item, found);
    const [row, col] = map === 'rollout' ? [layers.length, 0] : (map ?? '').split('.').map(Number);
    const isOpen = model === name && (layers[row] || (laid.rollout && row === layers.length));
    grid.show({
      ...{ name, layers: laid.layers, rollout: laid.rollout, label: laid.label, batch: item },
      look: { palette, log, range: range ?? (laid.kept ? 'largest' : null), dark, numbers, threshold, mass, every },
      ...{ special: found.join(' and '), hidden: Boolean(laid.kept), open: isOpen ? { row, col } : null },
      note: 'The link leads to this layer and this head. It has no hidden states: whoever opens it opens the file again.',
      answer: isOpen ? answerOf(row) : null,
    });
  }

  input.addEventListener('change', () => {
    open(input.files);
    input.value = ''; // otherwise the browser reports no change when the user opens the same file again
  });
  target.addEventListener('change', () => file && compute(false));
  batch.addEventListener('change', render);
  section.hidden = false;
  if (state.map !== null) {
    const known = [...target.options].some(({ value }) => value === state.model);
    if (known) target.value = state.model;
    const then = known ? 'Open the file with its hidden states, which are not in the link.' : 'This server has no such model.';
    status.textContent = `The link leads to ${state.map === 'rollout' ? 'the rollout' : `head ${state.map}`} of ${state.model}. ${then}`;
    section.scrollIntoView();
  }
  return {
    open,
    render,
    // Whether a file that is dropped on this element is for the section.
    holds: (element) => section.contains(element),
    shown: () => shown && structuredClone({ ...shown, found: null }),
  };
}
