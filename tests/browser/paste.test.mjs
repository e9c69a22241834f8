// paste.test.mjs tests that Ctrl-V makes a request anywhere on the page, that what was recognised can be changed and undone, that labels
// stand beside words or are refused, that lines are saved with their legend, and that single-letter shortcuts can be switched off.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { answered, matrix, open, openDrawer, setBody } from './explorer.mjs';
import { base, onPage, picture, serious } from './harness.mjs';

const PANDAS = '       a     b\nthe  0.5  -1.0\ncat  2.0   3.0\nsat  1.0   0.0';
const X = [[0.5, -1], [2, 3], [1, 0]]; // prettier-ignore
const state = (page) => page.evaluate(() => window.explorer.state);
const request = async (page) => JSON.parse((await state(page)).text);
const note = (page) => page.textContent('#request-note');
const offers = (page) => page.locator('#request-note + span button').allTextContents();
const offer = (page, name) => page.click(`#request-note + span button:text-is("${name}")`);

// Pastes a text where the focus is.
async function paste(page, text) {
  await page.evaluate((given) => navigator.clipboard.writeText(given), text);
  await page.keyboard.press('Control+V');
}
const pasted = (page, text, wanted) => answered(page, () => paste(page, text), wanted);

test('Ctrl-V anywhere makes a request; one click reads the text in another way, and Undo brings back what was there', () =>
  onPage({ expected: /status of (400|422)/ }, async (page) => {
    await open(page, '/#example=003&step=scores');
    await openDrawer(page);
    await page.fill('#labels', 'a, b, c, d');
    await setBody(page, { X: [[1], [2], [3], [4]] });
    const before = await state(page);
    await page.evaluate(() => document.activeElement.blur());
    await pasted(page, PANDAS);
    assert.deepEqual(await request(page), { X });
    assert.deepEqual((await state(page)).labels, ['the', 'cat', 'sat']);
    assert.equal(await note(page), 'A pandas table of 3 × 2 is X now. Its index is the labels.');
    assert.deepEqual(await offers(page), ['as Q', 'as K', 'as V', 'as words', 'Undo']);
    assert.deepEqual(await serious(page), []);
    await picture(page, 'pasted');
    await answered(page, () => offer(page, 'Undo'));
    assert.deepEqual(await state(page), before);
    assert.deepEqual(await offers(page), []);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'request-note', 'the focus is not lost');
    assert.deepEqual(await matrix(page, 'scores'), [1, 2, 3, 4].map((x) => [1, 2, 3, 4].map((y) => x * y))); // prettier-ignore
    await pasted(page, PANDAS);
    await answered(page, () => offer(page, 'as words'));
    assert.equal((await request(page)).text, PANDAS.replace(/\s+/g, ' ').trim());
    assert.deepEqual((await state(page)).labels, []);
    await answered(page, () => offer(page, 'as V'), 'error');
    assert.deepEqual(await request(page), { V: X }, 'V does not stand beside X');
    assert.deepEqual(await offers(page), ['as X', 'as Q', 'as K', 'as words', 'Undo']);
    // A further matrix becomes a member of this request.
    await pasted(page, 'Q = [[1, 0], [0, 1]]', 'error');
    await pasted(page, PANDAS.replace('-1', ' 5'));
    await answered(page, () => offer(page, 'as K'));
    assert.deepEqual(await request(page), { V: X, Q: [[1, 0], [0, 1]], K: [[0.5, 5], ...X.slice(1)] }); // prettier-ignore
    assert.equal(await note(page), 'A pandas table of 3 × 2 is K now.');
    await answered(page, () => offer(page, 'Undo'), 'error');
    assert.deepEqual(await request(page), { V: X, Q: [[1, 0], [0, 1]] }); // prettier-ignore
  }));

test('what the user made of “Your own” comes back, too', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own-matrices');
    await setBody(page, { X: [[7]] });
    await answered(page, () => page.click('[data-example="000"]'));
    await page.focus('[data-example="000"]');
    await pasted(page, 'The cat sat.');
    assert.equal((await request(page)).text, 'The cat sat.');
    await answered(page, () => offer(page, 'Undo'));
    assert.equal((await state(page)).example, '000');
    await answered(page, () => page.click('[data-example="own"]'));
    assert.deepEqual(await request(page), { X: [[7]] });
  }));

test('a curl command goes to its path; JSON, arrays and Markdown tables are said; a text field keeps its own text', () =>
  onPage({ expected: /status of (400|422)/ }, async (page) => {
    await open(page);
    const body = { X: [[1, 2], [3, 4]], W_Q: [[1, 0], [0, 1]], W_K: [[1, 0], [0, 1]], W_V: [[1, 0], [0, 1]], heads: 1 }; // prettier-ignore
    await pasted(
      page,
      `curl -s ${await base()}/multi-head-attention \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(body)}' | jq`,
    );
    assert.deepEqual(await request(page), body);
    assert.equal((await state(page)).path, '/multi-head-attention');
    assert.equal(await note(page), 'A curl command is the request now, for /multi-head-attention.');
    assert.deepEqual(await offers(page), ['Undo']);
    const cases = [
      ['{"X": [[1, 2], [3, 4]]}', { X: [[1, 2], [3, 4]] }, 'The JSON is the request now.'], // prettier-ignore
      ['Out[5]: array([[1., 2.],\n       [3., 4.]])', { X: [[1, 2], [3, 4]] }, 'An array of 2 × 2 is X now.'], // prettier-ignore
      [
        '| | a |\n|---|---|\n| the | 1 |\n| cat | 2 |',
        { X: [[1], [2]] },
        'A Markdown table of 2 × 1 is X now. Its first words are the labels.',
      ],
      ['mask = [[1, 0], [1, 1]]', { X: [[1], [2]], mask: [[1, 0], [1, 1]] }, 'An array of 2 × 2 is mask now.'], // prettier-ignore
    ];
    for (const [text, wanted, said] of cases) {
      await pasted(page, text);
      assert.deepEqual([await request(page), await note(page)], [wanted, said]);
    }
    const { text } = await state(page);
    await openDrawer(page);
    await page.focus('#labels');
    await page.keyboard.press('Control+A');
    await paste(page, 'one, two');
    assert.equal(await page.inputValue('#labels'), 'one, two');
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press('?');
    await paste(page, 'the cat');
    await page.keyboard.press('Escape');
    assert.equal((await state(page)).text, text);
    await pasted(page, 'curl http://h/attention -d @body.json', 'error');
    assert.match(await page.textContent('#problem'), /The command sends the file body\.json\. A page cannot read it/);
    await answered(page, () => offer(page, 'Undo'));
    assert.equal((await state(page)).text, text);
    await pasted(page, '     0   1\n0    1   2\n..  ..  ..\n98   7   8\n\n[99 rows x 2 columns]', 'error');
    assert.match(await page.textContent('#problem'), /df\.to_string\(\) prints all of them\), but line 3 has \.\.\./);
    assert.deepEqual(await offers(page), ['as words', 'Undo']);
  }));

test('labels beside a text take the place of its words, or the page says why not', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    await pasted(page, 'The cat sat.');
    const shown = () => page.locator('#words .word').allTextContents();
    const tokens = await shown();
    assert.ok(tokens.length >= 3);
    await openDrawer(page);
    await page.fill('#labels', 'one');
    assert.deepEqual(await shown(), tokens);
    assert.equal(await page.textContent('#labels-note'), `1 label for ${tokens.length} words: the words are shown.`);
    const labels = tokens.map((_, at) => `w${at}`);
    await page.fill('#labels', labels.join(', '));
    assert.deepEqual([await shown(), await page.textContent('#labels-note')], [labels, '']);
    await page.fill('#labels', '');
    assert.deepEqual(await shown(), tokens);
  }));

test('lines are saved as they are shown, with the colours of the heads and the rule', () =>
  onPage({ colorScheme: 'dark' }, async (page) => {
    await open(page, '/#example=002-heads&lines&every');
    await page.waitForSelector('.lines-line');
    await page.evaluate(() => {
      const slider = document.getElementById('threshold');
      slider.value = 0.25;
      slider.dispatchEvent(new Event('input'));
    });
    await page.waitForTimeout(100);
    const shown = await page.locator('.lines-svg .lines-line').evaluateAll((all) => all.map((line) => getComputedStyle(line).stroke));
    const save = async (format) => {
      await page.locator('[data-step="weights"] .menu summary').click();
      const [download] = await Promise.all([
        page.waitForEvent('download'),
        page.locator(`[data-step="weights"] [data-download="${format}"]`).click(),
      ]);
      return readFileSync(await download.path());
    };
    const parsed = (text) =>
      page.evaluate((given) => {
        const found = new DOMParser().parseFromString(given, 'image/svg+xml');
        const texts = [...found.querySelectorAll('text')];
        const height = Number(found.documentElement.getAttribute('height'));
        return {
          texts: texts.map(({ textContent }) => textContent),
          strokes: [...found.querySelectorAll('path, line')].map((path) => path.getAttribute('stroke')),
          ground: found.querySelector('rect').getAttribute('fill'),
          inside: texts.every((one) => Number(one.getAttribute('y')) < height),
        };
      }, String(text));
    const svg = await parsed(await save('svg'));
    assert.deepEqual(svg.strokes.slice(0, shown.length), shown);
    assert.equal(svg.strokes.length, shown.length + 3, 'a line of the legend for each head');
    assert.deepEqual(new Set(svg.strokes.slice(shown.length)), new Set(['rgb(74, 168, 224)', 'rgb(239, 127, 58)', 'rgb(47, 193, 150)']));
    assert.deepEqual(svg.texts.slice(-4), ['head 0', 'head 1', 'head 2', `weights of at least 0.25: ${shown.length} lines`]);
    assert.ok(svg.inside);
    const paper = await parsed(await save('paper'));
    assert.deepEqual([paper.ground, paper.strokes.at(-3)], ['rgb(255, 255, 255)', 'rgb(0, 114, 178)']);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark', 'the page stays dark');
    const png = await save('png');
    const dashed = await page.evaluate(() => document.querySelector('.lines-layer').getBoundingClientRect().height);
    assert.ok(png.readUInt32BE(20) > 2 * dashed, 'the picture has room for the legend');
  }));

test('shortcuts of single letters can be switched off, also for the next visit', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003&step=weights');
    const lines = async () => {
      await page.keyboard.press('l');
      return (await state(page)).lines;
    };
    assert.equal(await lines(), true);
    await page.keyboard.press('?');
    await page.getByLabel('Single keys are shortcuts').uncheck();
    assert.deepEqual(await serious(page), []);
    await page.keyboard.press('Escape');
    assert.equal(await lines(), true, 'the letter does nothing now');
    await page.reload();
    await page.waitForSelector('.lines-word[data-query="2"]');
    await page.click('.lines-word[data-query="2"]');
    assert.equal((await state(page)).row, 2);
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press('Escape');
    assert.equal((await state(page)).row, null, 'Escape works');
    assert.equal(await lines(), true);
    await page.click('#shortcuts');
    await page.getByLabel('Single keys are shortcuts').check();
    await page.keyboard.press('Escape');
    assert.equal(await lines(), false);
  }));

test('a pasted text or a dropped file dims the old picture at once, until the answer is drawn', () =>
  onPage({ expected: /status of (400|422)/ }, async (page) => {
    await open(page, '/#example=000');
    const opacities = () =>
      page.evaluate(() => ['words', 'flow', 'written'].map((id) => getComputedStyle(document.getElementById(id)).opacity));
    const gate = () => {
      let release;
      const opened = new Promise((resolve) => (release = resolve));
      return { opened, release };
    };
    let [script, answer] = [gate(), gate()];
    await page.route('**/assets/files-*.js', async (route) => (await script.opened, route.continue()));
    await page.route('**/multi-head-attention', async (route) => (await answer.opened, route.continue()));
    await page.evaluate(() => document.activeElement.blur());
    await paste(page, 'The cat sat on the mat. '.repeat(170));
    await page.waitForSelector('#result.old');
    assert.deepEqual(await opacities(), ['0.4', '0.4', '0.4'], 'while the text is read');
    script.release();
    await page.waitForFunction(() => window.explorer.state.example === 'own');
    assert.deepEqual(await opacities(), ['0.4', '0.4', '0.4'], 'while the server computes');
    await answered(page, () => answer.release());
    assert.deepEqual(await opacities(), ['1', '1', '1']);
    answer = gate();
    await page.route('**/attention', async (route) => (await answer.opened, route.continue()));
    const drop = (name, text) =>
      page.evaluate(
        ([name, text]) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([text], name));
          document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
        },
        [name, text],
      );
    await drop('body.json', '{"Q": [[1]], "K": [[2]], "V": [[3]]}');
    await page.waitForSelector('#result.old');
    assert.deepEqual(await opacities(), ['0.4', '0.4', '0.4'], 'after a file is dropped');
    await answered(page, () => answer.release());
    assert.deepEqual(await opacities(), ['1', '1', '1']);
    // A file that cannot be opened leaves the picture as it was.
    await drop('X.npy', 'no array');
    await page.waitForFunction(() => document.getElementById('problem').textContent.startsWith('X.npy: not opened'));
    assert.deepEqual(await opacities(), ['1', '1', '1']);
  }));

test('numbers from a spreadsheet are called a table, with and without a header row and a header column', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    await page.evaluate(() => document.activeElement.blur());
    const rows = [['1', '2.5'], ['3', '4'], ['-1', '0']]; // prettier-ignore
    const sheet = (lines) => lines.map((fields) => `${fields.join('\t')}\r\n`).join('');
    const named = rows.map((row, at) => [`row ${at}`, ...row]);
    for (const lines of [rows, [['a', 'b'], ...rows], named, [['', 'a', 'b'], ...named]]) {
      await pasted(page, sheet(lines));
      assert.match(await note(page), /^A table of 3 × 2 is X now\./, sheet(lines));
      assert.deepEqual(await request(page), { X: [[1, 2.5], [3, 4], [-1, 0]] }); // prettier-ignore
    }
    await openDrawer(page);
    await answered(page, () => page.fill('#request', sheet(rows)), 'error');
    assert.match(await page.textContent('#problem'), /a request of words, of a table or CSV/);
  }));

test('a table with an empty cell and a text of signs are refused, and the old request is dimmed', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=000');
    await page.evaluate(() => document.activeElement.blur());
    for (const [text, said] of [
      ['Name\tA\tB\nAnna\t4\t\nBen\t\t3', 'A table has a number in every cell, but row 2, column 3 is empty.'],
      ['asdf;;{{[[1,2', 'A sentence has more letters than signs, but line 1 has asdf;;{{[[1,2.'],
    ]) {
      await pasted(page, text, 'error');
      assert.ok((await page.textContent('#problem')).includes(said), await page.textContent('#problem'));
      assert.equal(await page.locator('#result.stale').count(), 1);
      assert.deepEqual(await offers(page), ['as words', 'Undo']);
      await answered(page, () => offer(page, 'Undo'));
      assert.equal(await page.locator('#result.stale').count(), 0);
    }
  }));
