// tour.test.mjs takes the tour as a pupil does. Every number that a sentence gives as a result is computed again here from the numbers that
// stand before it in the same sentence.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { done, open } from './explorer.mjs';
import { findings, newPage, onPage, picture } from './harness.mjs';

const number = (text) => Number(text.replace('−', '-'));
const NUMBER = '−?\\d+(?:\\.\\d+)?(?:e[−-]?\\d+)?';
const numbers = (text) => text.match(new RegExp(NUMBER, 'g')).map(number);
// Numbers are written with three or four digits, and what they are made of is rounded, too.
const near = (a, b, said) => assert.ok(Math.abs(a - b) <= 2e-3 * Math.max(1, Math.abs(b)), `${a} is not ${b}: ${said}`);

// Checks the sums of products, quotients, powers and lists of shares of a text. Returns how many results it has checked.
function checkSums(text) {
  let count = 0;
  const each = (pattern, does) => {
    for (const found of text.matchAll(new RegExp(pattern.replaceAll('#', NUMBER), 'g'))) {
      does(found);
      count++;
    }
  };
  each('((?:# × # \\+ )*# × #) = (#)', ([said, sum, result]) =>
    near(
      sum.split(' + ').reduce((all, term) => all + numbers(term).reduce((a, b) => a * b), 0),
      number(result),
      said,
    ),
  );
  each('(?<!× )((?:# \\+ )+#) = (#)', ([said, sum, result]) =>
    near(
      numbers(sum).reduce((a, b) => a + b),
      number(result),
      said,
    ),
  );
  each('d = (#) and √d = (#)', ([said, d, root]) => near(Math.sqrt(number(d)), number(root), said));
  each('(#) ÷ (#) = (#)', ([said, a, b, result]) => near(number(a) / number(b), number(result), said));
  each('e\\^(#) = (#)', ([said, a, result]) => near(Math.exp(number(a)), number(result), said));
  each('Softmax of ((?:#, )+#) is ((?:#, )+#)', ([said, scores, shares]) => {
    const powers = numbers(scores).map(Math.exp);
    const total = powers.reduce((a, b) => a + b);
    numbers(shares).forEach((share, at) => near(share, powers[at] / total, said));
  });
  each('gives ((?:# to \\w+(?:, | and )?){2,})', ([said, shares]) =>
    near(
      numbers(shares).reduce((a, b) => a + b),
      1,
      said,
    ),
  );
  each('shares are ((?:#, )+#)', ([said, shares]) =>
    near(
      numbers(shares).reduce((a, b) => a + b),
      1,
      said,
    ),
  );
  return count;
}

const card = (page) => page.textContent('#tour');

for (const viewport of [
  { width: 1366, height: 768 },
  { width: 390, height: 844 },
]) {
  test(`the tour has eight stops, each with a question, an answer and a change, ${viewport.width} wide`, () =>
    onPage({ viewport }, async (page) => {
      await open(page);
      await page.click('text=Start the tour');
      const [checked, told] = [[], []];
      const first = await page.evaluate(() => window.explorer.state.text);
      for (let stop = 1; stop <= 8; stop++) {
        await page.waitForFunction((stop) => document.querySelector('#tour h2')?.textContent.startsWith(`${stop} of 8`), stop);
        const body = await page.evaluate(() => window.explorer.state.text);
        const before = await page.locator('#tour .tour-ask').textContent();
        assert.match(before, /\?/);
        assert.equal(await page.locator('#tour .tour-answer').count(), 0, 'the answer is not shown before it is asked for');
        await page.click('text=Show the answer');
        const answer = await page.locator('#tour .tour-answer').textContent();
        await page.locator('#tour button').first().click();
        await page.waitForSelector('#tour button:text-is("Undo")');
        assert.notEqual(await page.evaluate(() => window.explorer.state.text), body);
        const changed = await page.locator('#tour .tour-answer').textContent();
        await picture(page, `tour-${stop}-${viewport.width}`);
        await page.click('#tour button:text-is("Undo")');
        await page.waitForSelector('#tour .tour-ask');
        assert.equal(await page.evaluate(() => window.explorer.state.text), body);
        const texts = await page.locator('#tour p:not(.tour-buttons)').allTextContents();
        checked.push(checkSums(`${texts.join(' ')} ${changed}`));
        if (stop === 1) assert.match(texts[0], /by hand/);
        const share = /÷ \S+ = ([\d.]+)\./.exec(answer)?.[1];
        if (share) assert.ok(!told.some((text) => text.includes(share)), `stop ${stop} asks for ${share}, which the tour has said`);
        if (stop === 8) assert.ok(changed.includes(`“${await page.locator('#drawer-open').innerText()}”`), changed);
        told.push(...texts, changed);
        if (stop < 8) await page.click('#tour button:text-is("Next")');
      }
      assert.ok(checked.filter((count) => count > 0).length >= 6, `results at the stops: ${checked}`);
      await page.locator('#tour button').first().click();
      await page.waitForSelector('#tour button:text-is("Undo")');
      await page.click('text=End the tour');
      assert.ok(await page.locator('#tour').isHidden());
      await page.waitForFunction((first) => window.explorer.state.text === first, first);
      await done(page);
      assert.ok(await page.locator('#back').isHidden(), 'the example is as it was before');
    }));
}

for (const viewport of [
  { width: 1366, height: 768 },
  { width: 1024, height: 768 },
  { width: 920, height: 768 },
]) {
  test(`nothing covers what a stop of the tour asks for, and all numbers are written, ${viewport.width} wide`, () =>
    onPage({ viewport }, async (page) => {
      await open(page);
      await page.click('text=Start the tour');
      const heights = new Set();
      const seen = async (stop, part) => {
        // Returns what is wrong, as soon as the matrices have found their room.
        const wrong = () => {
          const cards = [...document.querySelectorAll('#tour h2, #tour p')].map((one) => one.getBoundingClientRect());
          const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
          const text = document.createRange();
          text.selectNodeContents(document.querySelector('#tour h2'));
          if (meet(text.getBoundingClientRect(), cards.at(-1))) return 'the buttons cover the title';
          for (const mark of document.querySelectorAll('#flow .node > i')) {
            const { left, right, top, bottom } = mark.getBoundingClientRect();
            for (const [x, y] of [
              [left + 2, top + 2],
              [right - 2, bottom - 2],
            ])
              // prettier-ignore
              if (document.elementFromPoint(x, y) !== mark.parentElement)
                return `${mark.className} of ${mark.parentElement.dataset.node} is covered at ${x}, ${y}`;
          }
          for (const node of document.querySelectorAll('#flow .node')) {
            const { data, cols } = window.explorer.matrix({ q: 'Q', k: 'K', v: 'V' }[node.dataset.node] ?? node.dataset.node);
            const [down, across] = node.dataset.node === 'k' ? [cols, data.length / cols] : [data.length / cols, cols];
            const { width, height } = node.getBoundingClientRect();
            if (height / down < 14 || width / across < 24) return `cells of ${node.dataset.node}: ${width / across} × ${height / down}`;
          }
          return '';
        };
        const right = await page.waitForFunction(`(${wrong})() === ''`, null, { timeout: 15_000 }).catch(() => null);
        assert.ok(right, `${stop}, ${part}: ${await page.evaluate(wrong)}`);
        heights.add(await page.evaluate(() => document.getElementById('tour').offsetHeight));
      };
      for (let stop = 1; stop <= 8; stop++) {
        await page.waitForFunction((stop) => document.querySelector('#tour h2')?.textContent.startsWith(`${stop} of 8`), stop);
        await seen(stop, 'question');
        await page.click('text=Show the answer');
        await seen(stop, 'answer');
        await page.locator('#tour button').first().click();
        await page.waitForSelector('#tour button:text-is("Undo")');
        await seen(stop, 'change');
        if (stop < 8) await page.click('#tour button:text-is("Next")');
      }
      if (viewport.width > 1000) assert.equal(heights.size, 1, `the card keeps its height, and the picture its place: ${[...heights]}`);
    }));
}

test('at the stop of the mask, the question is about the number with the sign, which has no mask yet', () =>
  onPage({}, async (page) => {
    await open(page);
    await page.click('text=Start the tour');
    for (let stop = 1; stop < 6; stop++) await page.click('#tour button:text-is("Next")');
    await page.waitForFunction(() => document.querySelector('#tour h2')?.textContent.startsWith('6 of 8'));
    assert.match(await page.textContent('.tour-ask'), /no mask yet.*“\?” is the score of cat with drinks/);
    await page.click('text=Show the answer');
    const said = Number(/Without a mask it is (\S+)\. With a mask it is −∞/.exec(await page.textContent('.tour-answer'))[1]);
    assert.match(await page.textContent('#written'), /^cat → drinks/);
    assert.equal(await page.evaluate(() => window.explorer.matrix('masked_scores').data[1]), said);
    await page.click('text=Hide later words');
    await page.waitForSelector('#tour button:text-is("Undo")');
    assert.equal(await page.evaluate(() => window.explorer.matrix('masked_scores').data[1]), -Infinity);
  }));

test('on a phone, nothing covers the matrix that a stop of the tour is about, and its numbers have two digits', () =>
  onPage({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }, async (page) => {
    await page.addInitScript(() => {
      window.texts = [];
      const write = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        window.texts.push(text);
        write.call(this, text, ...more);
      };
    });
    await open(page);
    assert.match(await page.textContent('#look'), /Touch any number/);
    await page.click('text=Start the tour');
    const seen = async (stop, part) => {
      const [card, matrix, written] = await page.evaluate(() => {
        const node = document.querySelector('#flow .mark-cell').parentElement;
        const [card, box, written] = [document.getElementById('tour'), node, document.getElementById('written')].map((one) =>
          one.getBoundingClientRect(),
        );
        return [card.bottom, [box.top, box.bottom], written.top];
      });
      assert.ok(
        card <= matrix[0] && matrix[1] <= written,
        `${stop}, ${part}: the card ends at ${card}, the matrix is at ${matrix}, and the sentence at ${written}`,
      );
    };
    for (let stop = 1; stop <= 8; stop++) {
      await page.waitForFunction((stop) => document.querySelector('#tour h2')?.textContent.startsWith(`${stop} of 8`), stop);
      await seen(stop, 'question');
      await page.click('text=Show the answer');
      await seen(stop, 'answer');
      await page.locator('#tour button').first().click();
      await page.waitForSelector('#tour button:text-is("Undo")');
      await seen(stop, 'change');
      if (stop === 8) assert.match(await card(page), /./);
      else await page.click('#tour button:text-is("Next")');
    }
    const texts = await page.evaluate(() => window.texts);
    for (const text of ['.67', '.09', '.15']) assert.ok(texts.includes(text), `no ${text} among ${[...new Set(texts)]}`);
  }));

test('the sentences about examples have the numbers of their answers', () =>
  onPage({}, async (page) => {
    await open(page);
    const look = await page.textContent('#look');
    const [, a, b, c, d, weight] = /scores (\S+) against itself and (\S+) against word 3\. Divided by √3, these are (\S+) and (\S+)\. .* into (\S+) of/.exec(look).map(number); // prettier-ignore
    assert.deepEqual([a, b], [8, 10]);
    near(c, a / Math.sqrt(3), look);
    near(d, b / Math.sqrt(3), look);
    const powers = [8, 2, 10, 2].map((score) => Math.exp(score / Math.sqrt(3)));
    near(weight, powers[2] / powers.reduce((x, y) => x + y), look);
  }));

test('the tour goes on where the user has left it, by keyboard, and axe-core finds nothing in it', async () => {
  const { page, close } = await newPage({ viewport: { width: 1366, height: 768 } });
  await open(page);
  await page.click('text=Start the tour');
  await page.waitForSelector('#tour h2');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => document.querySelector('#tour h2')?.textContent.startsWith('2 of 8'));
  assert.deepEqual(await findings(page), []);
  await page.keyboard.press('Escape');
  assert.ok(await page.locator('#tour').isHidden());
  await page.click('#tour-open');
  await page.waitForFunction(() => document.querySelector('#tour h2')?.textContent.startsWith('2 of 8'));
  await page.click('[data-example="003"]');
  assert.ok(await page.locator('#tour').isHidden(), 'another example closes the tour');
  assert.match(await card(page), /^$/);
  await close();
});
