// story.js shows the trained model (trained.js) on the stage: the words that the user types, the weights of all heads of both layers, the
// lines of one head or of all, and the most likely next words. A head can be switched off, and a word can be hidden from the others. The page
// loads this file with the example. The layer of the chosen head is the request of the page, so the other views show how its numbers are made.
import { makeScale } from './colour.js';
import { temperatureAt } from './curve.js';
import { fill, make, makeButton, makeWith } from './dom.js';
import { addBar } from './explanation.js';
import { formatNumber } from './numbers.js';
import ofHead from './parts/head.html';
import shownBy from './parts/samples.json';
import markup from './parts/story.html';
import { formatJSON } from './snippets.js';
import { paintMap } from './paint.js';
import { isStored, loadTrained, nearWords, nextOf, replaceWord, requestOf, runTrained, wordsOf } from './trained.js';

const TYPING = 250; // milliseconds from the last key to the computation
const SHOWN = 6; // next words, and unknown words
const LONGEST = 30; // letters of an unknown word that are shown
const MARK = '.'; // between the layer and the head of a head that is off, in the address

const TENSE = 'All its stories are in the past: it knows “was”, “had” and “did”, but not “is”, “has” and “does”.';

// Makes the view in an empty element. tools: {post(path, body), stored(), take(path, text, labels, shown), words, lines(place), tell(title, detail),
// say(text)}. stored() resolves to the stored layers of the server. take() makes a request that of the page; shown: what the
// address keeps. lines(place) resolves to lines in a place.
export async function createStory(root, tools) {
  const model = await loadTrained();
  const stored = isStored(model, await tools.stored());
  let chosen = { layer: 1, head: 0 };
  let off = []; // [[layer, head]]
  let unseen = null; // the place of the word that is hidden from the others
  let ran = null; // what runTrained() gives
  let whole = null; // the same with all heads and all words
  let asked = 0;
  let timer = 0;
  let lines = null;
  let look = {};
  let locked = null; // the word that is chosen, as in all views: its lines are shown alone

  const { area, note, samples, heads, every, place, lead, list, slider, degree, hidden, count, known } = fill(root, markup);
  for (const one of shownBy) makeButton(samples, model.names[one.layer][one.head], () => open(one), { title: one.text });
  count.textContent = `The ${model.words.length} words that the model knows`;
  known.textContent = [...model.words].sort((a, b) => a.localeCompare(b)).join(' ');

  function tell({ words, unknown, left }) {
    const all = [...new Set(unknown)];
    note.replaceChildren(all.length ? 'The model leaves out what it does not know: ' : '');
    all.slice(0, SHOWN).forEach((word, at) => {
      note.append(at ? ', “' : '“', makeWith('bdi', null, { textContent: word.length > LONGEST ? `${word.slice(0, LONGEST)}…` : word }), '”');
      for (const other of nearWords(model, word))
        makeButton(note, other, () => edited(replaceWord(area.value, word, other)), { title: `Write it in place of “${word}”` });
    });
    const said = [
      all.length && `${all.length > SHOWN ? ` and ${all.length - SHOWN} more` : ''}. ${TENSE}`,
      left && `The model reads ${model.places} words at most; the last ${left} are left out.`,
      !words.length && 'The last sentence that the model knew is still shown.',
    ];
    note.append(said.filter(Boolean).join(' '));
  }

  function edited(text = area.value) {
    if (text !== area.value) area.value = text;
    if (wordsOf(model, area.value).words[unseen] !== ran?.words[unseen]) unseen = null; // another word stands there now
    run();
  }

  // Puts a word behind the last one, and chooses it.
  function writeOn(word) {
    area.value = `${area.value.trimEnd()} ${word}`;
    run(Math.min(ran.words.length, model.places - 1));
  }

  // Shows a sentence in which one can see what a head does.
  async function open({ text, layer, head, word, says }) {
    [area.value, chosen, off, unseen] = [text, { layer, head }, [], null];
    if (await run(wordsOf(model, text).words.lastIndexOf(word))) note.textContent = says;
  }

  // Runs the model for the words of the field. chosenRow: the word that is chosen then, or null for the last one that is no mark. Resolves to
  // true if the page shows them then.
  async function run(chosenRow = null) {
    clearTimeout(timer);
    const mine = ++asked;
    const found = wordsOf(model, area.value);
    const { words } = found;
    tell(found);
    if (!words.length) return;
    if (unseen >= words.length) unseen = null;
    try {
      const all = await runTrained(model, words, tools.post, { stored });
      const part = off.length || unseen !== null ? await runTrained(model, words, tools.post, { stored, off, hidden: unseen }) : all;
      if (mine !== asked) return;
      [whole, ran] = [all, part];
      locked = Math.min(chosenRow ?? Math.max(0, words.findLastIndex((word) => /\w/.test(word))), words.length - 1);
    } catch (error) {
      return mine === asked && tools.tell('The model cannot be computed', error.message);
    }
    await show();
    tools.say(sentence());
    return mine === asked;
  }

  // Makes the layer of the chosen head the request of the page, and draws the model.
  async function show() {
    const { layer, head } = chosen;
    const { X, off: without } = ran.layers[layer];
    const { path, body } = requestOf(model, layer, X, { off: without, hidden: unseen, stored: false });
    delete body.return;
    // The address keeps these.
    const kept = { words: area.value, layer, head, off: off.map((one) => one.join(MARK)).join(), unseen, row: locked };
    await tools.take(path, formatJSON(body), ran.words, kept);
    draw();
  }

  const chosenAt = () => locked ?? ran.words.length - 1;
  const expected = ({ sums }) => nextOf(model, sums[chosenAt()], temperatureAt(Number(slider.value)));
  const percent = (probability) => (probability < 5e-4 ? '≈ 0 %' : `${formatNumber(100 * probability, 2)} %`);

  function sentence() {
    const [first, second] = expected(ran);
    const likely = `After “${ran.words[chosenAt()]}”, the model expects “${first.word}” (${percent(first.probability)}), then “${second.word}” (${percent(second.probability)}).`;
    if (ran === whole) return likely;
    const [before] = expected(whole);
    const now = expected(ran).find(({ word }) => word === before.word);
    const heads = off.map(([layer, head]) => `the head “${model.names[layer][head]}”`);
    const words = unseen === null ? [] : [`the word “${ran.words[unseen]}”`];
    return `${likely} With all heads and words it expects “${before.word}” (${percent(before.probability)}). Without ${[...heads, ...words].join(' and ')}, “${before.word}” has ${percent(now.probability)}.`;
  }

  function drawHeads() {
    const scale = makeScale({ lo: 0, hi: 1, signed: false, ...look });
    const focus = document.activeElement?.dataset.story;
    heads.replaceChildren();
    ran.layers.forEach(({ weights }, layer) => {
      const line = make('div', 'story-layer', heads);
      make('span', '', line, `layer ${layer}`);
      weights.forEach((matrix, head) => {
        const { button, canvas, name, box } = fill(make('div', 'story-head', line), ofHead);
        button.ariaPressed = String(layer === chosen.layer && head === chosen.head);
        button.dataset.story = `${layer}.${head}`;
        button.onclick = () => {
          chosen = { layer, head };
          show();
        };
        paintMap(canvas, matrix, scale);
        name.textContent = model.names[layer][head];
        box.checked = !off.some(([l, h]) => l === layer && h === head);
        box.ariaLabel = `head ${head} of layer ${layer} takes part`;
        box.dataset.story = `switch ${layer}.${head}`;
        box.addEventListener('change', () => {
          off = off.filter(([l, h]) => l !== layer || h !== head);
          if (!box.checked) off.push([layer, head]);
          run(locked);
        });
      });
    });
    if (focus) heads.querySelector(`[data-story="${focus}"]`)?.focus();
  }

  function drawNext() {
    lead.textContent = sentence();
    list.replaceChildren();
    for (const { word, probability } of expected(ran).slice(0, SHOWN)) {
      const where = addBar(list, probability, percent(probability));
      if (chosenAt() < ran.words.length - 1) where.textContent = word;
      else makeButton(where, word, () => writeOn(word), { className: 'quiet', title: 'Write on with this word' });
    }
    hidden.replaceChildren(new Option('none', ''), ...ran.words.map((word, at) => new Option(`${at + 1} ${word}`, at)));
    hidden.value = unseen ?? '';
  }

  async function draw() {
    drawHeads();
    drawNext();
    lines ??= await tools.lines(place);
    const all = ran.layers.flatMap(({ weights }, layer) =>
      weights.map(({ data }, head) => ({ layer, head, weights: data, name: model.names[layer][head], index: layer * model.heads + head })),
    );
    const shown = all.filter(({ layer, head }) => every.checked || (layer === chosen.layer && head === chosen.head));
    const { rows, cols } = ran.layers[0].weights[0];
    lines.update({ heads: shown, rows, cols, queryLabels: ran.words, keyLabels: ran.words, threshold: 0.1, mode: 'weight', row: locked });
  }

  area.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(edited, TYPING);
  });
  every.addEventListener('change', draw);
  hidden.addEventListener('change', () => {
    unseen = hidden.value === '' ? null : Number(hidden.value);
    run(locked);
  });
  slider.addEventListener('input', () => {
    degree.textContent = temperatureAt(Number(slider.value));
    drawNext();
  });

  return {
    // Shows the model as the address has it. given: {words, layer, head, off, unseen, row, look}; look: {palette, log, dark}.
    async open(given) {
      const none = !wordsOf(model, given.words).words.length;
      area.value = none ? tools.words : given.words;
      chosen = { layer: Math.min(given.layer, model.layers.length - 1), head: Math.min(given.head, model.heads - 1) };
      const pairs = model.layers.flatMap((_, layer) => Array.from({ length: model.heads }, (_, head) => [layer, head]));
      const named = given.off.split(',');
      off = pairs.filter((one) => named.includes(one.join(MARK)));
      [look, unseen] = [given.look, given.unseen];
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
    said: () => ({ words: ran?.words, next: ran && expected(ran).slice(0, SHOWN), layers: ran?.layers.map(({ weights }) => weights) }),
  };
}
