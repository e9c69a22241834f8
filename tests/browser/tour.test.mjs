// tour.test.mjs takes the tour as a pupil does. Every number that a sentence gives as a result is computed again here from the numbers that
// stand before it in the same sentence.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from './explorer.mjs';
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
      const checked = [];
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
        checked.push(checkSums(`${answer} ${changed}`));
        if (stop < 8) await page.click('#tour button:text-is("Next")');
      }
      assert.ok(checked.filter((count) => count > 0).length >= 6, `results at the stops: ${checked}`);
      await page.click('text=End the tour');
      assert.ok(await page.locator('#tour').isHidden());
    }));
}

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
        const [card, box, written] = [document.getElementById('tour'), node, document.getElementById('written')].map((one) => one.getBoundingClientRect());
        return [card.bottom, [box.top, box.bottom], written.top];
      });
      assert.ok(card <= matrix[0] && matrix[1] <= written, `${stop}, ${part}: the card ends at ${card}, the matrix is at ${matrix}, and the sentence at ${written}`);
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
