// story.js shows the trained model (trained.js) on the stage: the words that the user types, the weights of all heads of both layers, the
// lines of one head, and the most likely next words. A head can be switched off. The page loads this file with the example. The layer of the
// chosen head is the request of the page, so the other views show how its numbers are made.
import { makeScale } from './colour.js';
import { make, makeButton, makeWith } from './dom.js';
import { formatNumber } from './numbers.js';
import { formatJSON } from './snippets.js';
import { paintMap } from './thumbs.js';
import { isStored, loadTrained, requestOf, runTrained, wordsOf } from './trained.js';

const TYPING = 250; // milliseconds from the last key to the computation
const SHOWN = 6; // next words
const MARK = '.'; // between the layer and the head of a head that is off, in the address

// Makes the view in an empty element. tools: {post(path, body), stored(), take(path, text, labels, shown), words, lines(place), tell(title, detail),
// say(text)}. stored() resolves to the stored layers of the server. take() makes a request that of the page; shown: what the
// address keeps. lines(place) resolves to lines in a place.
export async function createStory(root, tools) {
  const model = await loadTrained();
  const stored = isStored(model, await tools.stored());
  let chosen = { layer: 1, head: 0 };
  let off = []; // [[layer, head]]
  let ran = null; // what runTrained() gives
  let whole = null; // the same with all heads
  let asked = 0;
  let timer = 0;
  let lines = null;
  let look = {};
  let locked = null; // the word that is chosen, as in all views: its lines are shown alone

  const label = makeWith('label', root, { className: 'story-text', textContent: 'Words ' });
  const area = makeWith('input', label, { id: 'story-text', autocomplete: 'off', spellcheck: false });
  const note = makeWith('p', root, { className: 'note', role: 'status' });
  const row = make('div', 'story-row', root);
  const heads = makeWith('div', row, { className: 'story-heads', role: 'group', ariaLabel: 'Heads of both layers' });
  const place = make('div', 'story-lines', row);
  const next = make('div', 'story-next', row);
  const known = makeWith('details', root, { className: 'note' });
  makeWith('summary', known, { textContent: `The ${model.words.length} words that the model knows` });
  makeWith('p', known, { textContent: model.words.join(' ') });

  const isOff = (layer, head) => off.some(([l, h]) => l === layer && h === head);

  // Runs the model for the words of the field. chosenRow: the word that is chosen then, or null for the last one.
  async function run(chosenRow = null) {
    const mine = ++asked;
    const { words, unknown, left } = wordsOf(model, area.value);
    const said = [
      unknown.length && `The model leaves out ${unknown.map((word) => `“${word}”`).join(', ')}: it knows only the words below.`,
      left && `It reads ${model.places} words at most; the last ${left} are left out.`,
      !words.length && 'Type words that it knows. Until then, the words before are shown.',
    ];
    note.textContent = said.filter(Boolean).join(' ');
    if (!words.length) return;
    try {
      const all = await runTrained(model, words, tools.post, { stored });
      const part = off.length ? await runTrained(model, words, tools.post, { stored, off }) : all;
      if (mine !== asked) return;
      [whole, ran, locked] = [all, part, chosenRow ?? words.length - 1];
    } catch (error) {
      return mine === asked && tools.tell('The model cannot be computed', error.message);
    }
    await show();
    tools.say(sentence());
  }

  // Makes the layer of the chosen head the request of the page, and draws the model.
  async function show() {
    const { layer, head } = chosen;
    const { X, off: without } = ran.layers[layer];
    const { path, body } = requestOf(model, layer, X, { off: without, stored: false });
    delete body.return;
    // The address keeps these.
    const kept = { words: area.value, layer, head, off: off.map((one) => one.join(MARK)).join(), row: locked };
    await tools.take(path, formatJSON(body), ran.words, kept);
    draw();
  }

  // Returns the place of the word that is chosen.
  const chosenAt = () => locked ?? ran.words.length - 1;

  const percent = (probability) => `${formatNumber(100 * probability, 2)} %`;

  function sentence() {
    const [first, second] = ran.next[chosenAt()];
    const likely = `After “${ran.words[chosenAt()]}”, the model expects ${first.word} (${percent(first.probability)}), then ${second.word} (${percent(second.probability)}).`;
    if (!off.length) return likely;
    const [before] = whole.next[chosenAt()];
    const now = ran.next[chosenAt()].find(({ word }) => word === before.word);
    const names = off.map(([layer, head]) => `head ${head} of layer ${layer}`).join(' and ');
    return `${likely} With all heads it expects ${before.word} (${percent(before.probability)}); without ${names}, ${before.word} has ${percent(now.probability)}. A mask switches a head off: no word may attend to any word in it.`;
  }

  function drawHeads() {
    const scale = makeScale({ lo: 0, hi: 1, signed: false, ...look });
    const focus = document.activeElement?.dataset.story;
    heads.replaceChildren();
    ran.layers.forEach(({ weights }, layer) => {
      const line = make('div', 'story-layer', heads);
      make('span', '', line, `layer ${layer}`);
      weights.forEach((matrix, head) => {
        const one = make('div', 'story-head', line);
        const pressed = layer === chosen.layer && head === chosen.head;
        const choose = () => {
          chosen = { layer, head };
          show();
        };
        const button = makeButton(one, '', choose, { className: 'map', ariaPressed: String(pressed) });
        button.dataset.story = `${layer}.${head}`;
        paintMap(makeWith('canvas', button, { className: 'thumb', ariaHidden: 'true' }), matrix, scale);
        make('span', '', button, `head ${head}`);
        const ariaLabel = `head ${head} of layer ${layer} takes part`;
        const box = makeWith('input', makeWith('label', one), { type: 'checkbox', checked: !isOff(layer, head), ariaLabel });
        box.dataset.story = `switch ${layer}.${head}`;
        box.after(' on');
        box.addEventListener('change', () => {
          off = off.filter(([l, h]) => l !== layer || h !== head);
          if (!box.checked) off.push([layer, head]);
          run(locked);
        });
      });
    });
    if (focus) heads.querySelector(`[data-story="${focus}"]`)?.focus();
  }

  // Puts a word after the one that is chosen, in the place of what stands there.
  function writeOn(word) {
    area.value = [...ran.words.slice(0, chosenAt() + 1), word].join(' ');
    run();
  }

  function drawNext() {
    next.replaceChildren();
    makeWith('p', next, { className: 'lead', textContent: sentence() });
    const list = make('ol', '', next);
    for (const { word, probability } of ran.next[chosenAt()].slice(0, SHOWN)) {
      const item = make('li', '', list);
      makeButton(make('span', '', item), word, () => writeOn(word), { className: 'quiet', title: 'Write on with this word' });
      make('i', '', make('span', 'track', item)).style.width = `${Math.max(1, 100 * probability)}%`;
      make('b', '', item, percent(probability));
    }
  }

  async function draw() {
    drawHeads();
    drawNext();
    lines ??= await tools.lines(place);
    const { layer, head } = chosen;
    const { rows, cols, data } = ran.layers[layer].weights[head];
    const heads = [{ weights: data, name: `layer ${layer}, head ${head}`, index: head }];
    lines.update({ heads, rows, cols, queryLabels: ran.words, keyLabels: ran.words, threshold: 0.1, row: locked });
  }

  area.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(run, TYPING);
  });

  return {
    // Shows the model as the address has it. given: {words, layer, head, off, row, look}; look: {palette, log, dark}.
    async open(given) {
      const none = !wordsOf(model, given.words).words.length;
      area.value = none ? tools.words : given.words;
      chosen = { layer: Math.min(given.layer, model.layers.length - 1), head: Math.min(given.head, model.heads - 1) };
      const pairs = model.layers.flatMap((_, layer) => Array.from({ length: model.heads }, (_, head) => [layer, head]));
      const named = given.off.split(',');
      off = pairs.filter((one) => named.includes(one.join(MARK)));
      look = given.look;
      await run(given.row);
      if (none) note.textContent = 'The model knows none of the words in the address, so these are others.';
    },
    // Follows the page: its colours, and the head and the word that the user has chosen.
    follow({ head, row, ...now }) {
      const same = JSON.stringify(now) === JSON.stringify(look) && head === chosen.head && row === locked;
      look = now;
      if (same || !ran) return;
      chosen.head = head;
      locked = row;
      draw();
    },
    // Returns the words, the weights and what the model expects after the word that is chosen.
    said: () => ({ words: ran?.words, next: ran?.next[chosenAt()].slice(0, SHOWN), layers: ran?.layers.map(({ weights }) => weights) }),
  };
}
