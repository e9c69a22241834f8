// story.test.mjs tests the example "A trained model": typed words, the maps of both layers, the lines, the next words, the switches of the
// heads, and links. The numbers are those that the daemon gives for the same requests.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answered, done, matrix, open } from './explorer.mjs';
import { findings, onPage, picture, startDaemon } from './harness.mjs';

const story = (page) => page.evaluate(() => window.explorer.story);
const type = (page, words) => answered(page, () => page.fill('#story-text', words));
const switchHead = (page, name) => answered(page, () => page.click(`[data-story="switch ${name}"]`));
const told = (page) => page.textContent('.story-next .lead');

// Opens the example on a daemon that stores the model, or on one that has no layers.
async function onModel(stored, does, options = {}) {
  const daemon = await startDaemon(...(stored ? ['--layers', new URL('../../server/models', import.meta.url).pathname] : []));
  try {
    await onPage({ baseURL: daemon.base, origin: daemon.base, ...options }, async (page, more) => {
      await open(page, '/');
      await answered(page, () => page.click('[data-example="model"]'));
      await does(page, more);
    });
  } finally {
    await daemon.stop();
  }
}

for (const stored of [true, false]) {
  test(`the model repeats what it has read, and fails without its induction head, ${stored ? 'stored' : 'not stored'}`, () =>
    onModel(stored, async (page) => {
      await type(page, 'Mia Turner saw the bird . Otto Wilson found Mia');
      const { words, next, layers } = await story(page);
      assert.deepEqual(words.slice(-2), ['found', 'Mia']);
      assert.equal(next[0].word, 'Turner');
      assert.ok(next[0].probability > 0.5, String(next[0].probability));
      assert.equal(layers.length, 2);
      // The last word looks at the one that came after it before: an induction head. The head of layer 0 looks at the word before.
      const at = (head, row, col) => Object.values(head.data)[row * head.cols + col];
      const last = words.length - 1;
      assert.ok(at(layers[1][0], last, 1) > 0.5, 'induction');
      const before = words.slice(1).filter((_, i) => at(layers[0][0], i + 1, i) > 0.3).length;
      assert.ok(before > words.length / 2, `previous word: ${before} of ${words.length}`);
      // The request of the page is this layer: the same weights.
      const shown = await matrix(page, 'weights', 0);
      shown.forEach((row, i) => row.forEach((weight, j) => assert.ok(Math.abs(weight - at(layers[1][0], i, j)) < 1e-5)));
      await switchHead(page, '1.0');
      const without = await story(page);
      const then = without.next.find(({ word }) => word === 'Turner')?.probability ?? 0;
      assert.ok(then < next[0].probability / 2, `${then} is not less than half of ${next[0].probability}`);
      assert.match(await told(page), /With all heads and words it expects “Turner” .*\. Without the head “repeated names”, “Turner” has/);
      assert.ok(Object.values(without.layers[1][0].data).every((weight) => weight === 0));
      await switchHead(page, '1.0');
      assert.equal((await story(page)).next[0].word, 'Turner');
    }));
}

test('unknown words and words that are too many are said, and the layer of a head is shown as a flow', () =>
  onModel(true, async (page) => {
    await type(page, 'Anna Smith met Zorro and Annna . anna');
    assert.match(await page.textContent('.story .note'), /leaves out what it does not know: “Zorro”.*“Annna”.*“was”/);
    assert.deepEqual((await story(page)).words, ['Anna', 'Smith', 'met', 'and', '.', 'Anna']);
    // A near word takes the place of the unknown one, and of no other.
    await answered(page, () => page.click('.story .note button:text-is("Anna")'));
    assert.equal(await page.inputValue('#story-text'), 'Anna Smith met Zorro and Anna . anna');
    assert.deepEqual((await story(page)).words, ['Anna', 'Smith', 'met', 'and', 'Anna', '.', 'Anna']);
    await type(page, 'one two three four five six seven eight the');
    assert.match(await page.textContent('.story .note'), / and 2 more\. /);
    // “isn’t” is two words, and only the first letters of a very long word are shown.
    await type(page, 'Anna isn’t tired');
    await answered(page, () => page.click('.story .note button'));
    assert.match(await page.inputValue('#story-text'), /^Anna \w+ not tired$/);
    await type(page, `Anna ${'x'.repeat(20_000)}`);
    assert.match(await page.textContent('.story .note'), /: “x{30}…”\. /);
    await type(page, 'the old cat . '.repeat(20));
    assert.match(await page.textContent('.story .note'), /at most; the last \d+ are left out/);
    await page.fill('#story-text', 'Zorro');
    await page.waitForFunction(() => /The last sentence that the model knew is still shown/.test(document.querySelector('.story .note').textContent));
    await type(page, 'Anna Smith . Anna');
    await answered(page, () => page.click('[data-story="0.0"]'));
    await page.click('[data-frame="flow"]');
    for (const id of ['X', 'W_Q', 'Q', 'q', 'k', 'scores', 'weights', 'v', 'mixed', 'joined', 'W_O', 'output']) {
      assert.ok(await page.locator(`[data-node="${id}"]`).isVisible(), id);
    }
    await page.keyboard.press(']');
    await page.click('[data-frame="model"]');
    assert.equal(await page.getAttribute('[data-story="0.1"]', 'aria-pressed'), 'true', 'the view follows the head of the flow');
  }));

test('what is typed and edited is there again after another example', () =>
  onModel(true, async (page) => {
    await type(page, 'the red bird saw Anna');
    await page.click('[data-frame="flow"]');
    await page.click('#drawer-open');
    await answered(page, () => page.fill('[data-option="scale"]', '0'));
    const equal = async (place) => {
      const computed = () =>
        document.querySelector('#status').dataset.state === 'done' && /"scale": 0/.test(window.explorer.result.request);
      await page.waitForFunction(computed);
      assert.deepEqual((await story(page)).words, ['the', 'red', 'bird', 'saw', 'Anna'], place);
      assert.equal(Math.round(1e6 * (await matrix(page, 'weights', 0))[4][0]), 200000, `${place}: all weights are equal`);
    };
    assert.ok(await page.isVisible('#no-link'), 'a request with all its matrices is too long for a link');
    await answered(page, () => page.click('[data-example="003"]'));
    await page.click('[data-example="model"]');
    await equal('after another example');
    await answered(page, () => page.click('#back'));
    assert.deepEqual((await story(page)).words.slice(0, 2), ['Anna', 'Smith'], 'the button undoes the changes');
  }));

test('the keys lead from the model to the other views and back', () =>
  onModel(true, async (page) => {
    const opened = () => page.getAttribute('#picture', 'data-step');
    assert.equal(await opened(), 'model');
    for (const step of ['. flow', '. X', ', flow', ', model', ', output']) {
      await page.keyboard.press(step[0]);
      assert.equal(await opened(), step.slice(2), step);
    }
    await page.keyboard.press('.');
    await page.keyboard.press('m');
    await page.waitForFunction(() => window.explorer.state.mean && document.querySelector('#picture').dataset.step === 'weights');
  }));

test('one word is chosen in all parts of the view: the lines, the words above and the arithmetic', () =>
  onModel(true, async (page) => {
    const chosen = () =>
      page.evaluate(() => ({
        row: window.explorer.state.row,
        pressed: [...document.querySelectorAll('[data-word]')].findIndex((word) => word.ariaPressed === 'true'),
        line: Number(document.querySelector('.story-lines .lines-queries [aria-pressed="true"]')?.dataset.query ?? -1),
        written: document.querySelector('.written-line b').textContent,
      }));
    await page.waitForSelector('.story-lines .lines-queries [aria-pressed="true"]');
    const { words, layers } = await story(page);
    const last = words.length - 1;
    // The head “word before”: each name gives most to the word before it.
    const row = (i) => Object.values(layers[0][0].data).slice(i * words.length, (i + 1) * words.length);
    words.forEach((word, i) => i && /^[A-Z]/.test(word) && assert.equal(row(i).indexOf(Math.max(...row(i))), i - 1, word));
    assert.deepEqual(await chosen(), { row: last, pressed: last, line: last, written: 'Anna → Smith: ' });
    await page.click('[data-word="13"]');
    await page.waitForFunction(() => document.querySelector('.story-lines .lines-queries [aria-pressed="true"]')?.dataset.query === '13');
    const now = await chosen();
    assert.deepEqual({ ...now, written: '' }, { row: 13, pressed: 13, line: 13, written: '' });
    assert.match(now.written, /^she → /);
    await page.click('.story-lines [data-query="4"].lines-word');
    await page.waitForFunction(() => document.querySelectorAll('[data-word]')[4].ariaPressed === 'true');
    assert.match((await chosen()).written, /^cross → /);
    // The expected words follow the chosen word. A click puts one behind the last word, and takes no word away.
    assert.match(await told(page), /^After “cross”, the model expects /);
    assert.equal(await page.locator('.story-next button').count(), 0);
    await page.click(`[data-word="${last}"]`);
    await page.waitForSelector('.story-next button');
    const [{ word }] = (await story(page)).next;
    await answered(page, () => page.click('.story-next button'));
    assert.deepEqual((await story(page)).words, [...words, word]);
    assert.equal((await chosen()).row, words.length);
    // A sentence that is typed has its last word chosen, and not its full stop.
    await type(page, 'Anna met Ben .');
    assert.equal((await chosen()).row, 2);
  }));

// Each button: its name, the layer and the head that it chooses, the word that it chooses, and the words that this one looks at most.
const SAMPLES = [
  ['pronouns', 0, 1, 'it', ['animal', 'street']],
  ['articles', 1, 2, 'the', ['dog', 'cat']],
  ['repeated names', 1, 0, 'Anna', ['Smith']],
  ['said of whom', 1, 1, 'was', ['it']],
];
test('each named head has words that show what it looks at', () =>
  onModel(true, async (page) => {
    for (const [name, layer, head, word, looked] of SAMPLES) {
      await answered(page, () => page.click(`.story-samples button:text-is("${name}")`));
      const { words, layers } = await story(page);
      const { row, head: shown } = await page.evaluate(() => window.explorer.state);
      assert.deepEqual([words[row], shown], [word, head], name);
      assert.equal(await page.getAttribute(`[data-story="${layer}.${head}"]`, 'aria-pressed'), 'true', name);
      const { cols, data } = layers[layer][head];
      const given = words.map((_, j) => Object.values(data)[row * cols + j]);
      assert.match(await page.textContent('.story .note'), new RegExp(`^(A word|“${word}”)`), name);
      const sum = looked.reduce((total, other) => total + given[words.indexOf(other)], 0);
      assert.ok(sum > 0.5, `${name}: ${word} gives ${sum} to ${looked}`);
    }
  }));

test('the explanation of a sentence is not written under another one', () =>
  onModel(true, async (page) => {
    let waiting = null;
    await page.route('**/layers/story.0/attention', async (route) => {
      if (!waiting) await new Promise((go) => (waiting = go));
      await route.continue();
    });
    const asked = page.waitForRequest('**/layers/story.0/attention');
    await page.click('.story-samples button:nth-child(1)');
    await asked;
    await answered(page, () => page.click('.story-samples button:nth-child(3)'));
    const late = page.waitForResponse('**/layers/story.1/attention'); // the first sentence goes on
    waiting();
    await late;
    assert.match(await page.textContent('.story .note'), /^“Anna” looks at/);
  }));

test('the temperature flattens what is expected, a hidden word is seen by no other, and lines of all heads are in one picture', () =>
  onModel(true, async (page) => {
    const chances = async () => (await story(page)).next.map(({ probability }) => probability);
    const before = await chances();
    await page.fill('#story-temperature', '0.5');
    const after = await chances();
    const ratio = (all) => Math.log(all[0] / all[1]);
    const degree = Number(await page.textContent('.story-next output'));
    assert.ok(Math.abs(ratio(before) / ratio(after) - degree) < 1e-6, `${ratio(before)} and ${ratio(after)}: ${degree}`);
    await page.fill('#story-temperature', '0');
    const { words } = await story(page);
    await answered(page, () => page.selectOption('#story-hide', '1'));
    const { layers } = await story(page);
    for (const { cols, data } of layers.flat())
      words.forEach((_, i) => assert.equal(Object.values(data)[i * cols + 1] > 0, i === 1, `word ${i} and the hidden one`));
    assert.match(await told(page), /With all heads and words it expects “Smith” .*\. Without the word “Smith”, “Smith” has/);
    assert.match(page.url(), /unseen=1/);
    await type(page, `Anna Smith met Ben . Anna`);
    assert.equal(await page.inputValue('#story-hide'), '1', 'the same word is hidden in another sentence');
    await type(page, `Anna Turner met Ben . Anna`);
    assert.equal(await page.inputValue('#story-hide'), '', 'another word is not');
    const lines = () => page.evaluate(() => document.querySelectorAll('.story-lines .lines-line').length);
    const few = await lines();
    await page.check('#story-every');
    await page.waitForFunction((least) => document.querySelectorAll('.story-lines .lines-line').length > least, few);
    assert.equal(await page.locator('.story-lines .lines-legend li').count(), 6);
  }));

test('a link shows the same words, head and switches; axe-core finds nothing', () =>
  onModel(
    true,
    async (page) => {
      await type(page, 'Ben Nelson liked Ben');
      await answered(page, () => page.click('[data-story="0.1"]'));
      await switchHead(page, '1.1');
      await answered(page, () => page.selectOption('#story-hide', '1'));
      const url = page.url();
      const before = await story(page);
      await picture(page, 'story');
      assert.deepEqual(await findings(page), []);
      await page.goto('about:blank');
      await page.goto(url);
      await done(page);
      await page.waitForSelector('[data-story="0.1"][aria-pressed="true"]');
      assert.equal(await page.isChecked('[data-story="switch 1.1"]'), false);
      assert.equal(await page.inputValue('#story-hide'), '1');
      assert.deepEqual(await story(page), before);
      // A link cannot switch off what is no head of the model.
      assert.match(url, /off=1\.1/);
      await page.goto('about:blank');
      await page.goto(url.replace('off=1.1', 'off=-1.0,1.-1,0.5,2.0,1.0.0,0,1.1'));
      await done(page);
      assert.match(await told(page), / Without the head “said of whom” and the word “Nelson”, /);
      assert.equal(await page.locator('.story-heads input:not(:checked)').count(), 1);
      assert.deepEqual(await story(page), before);
      await page.setViewportSize({ width: 390, height: 844 });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page scrolls sideways');
      await picture(page, 'story-phone', { fullPage: true });
    },
    { viewport: { width: 1366, height: 768 } },
  ));
