// Every notebook in the explorer: each number of each step is the one that tests/notebooks expects.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertShown, readCase } from './expected.mjs';
import { numbers, open } from './explorer.mjs';
import { newPage, onPage, picture } from './harness.mjs';

// The example, and the cases that are the same call; 001's requests are drawn by the server from the notebook's seed.
const EXAMPLES = {
  '000': ['000-self-attention', '000-attention', '000-summary'],
  '001-heads': ['001-multi-head'],
  '001-head': ['001-self-attention'],
  '001-vanilla': ['001-vanilla-softmax'],
  '001-raw': ['001-vanilla'],
  '002-heads': ['002-heads-of-any-size', '002-heads-of-any-size-steps'],
  '002-head': ['002-attention-head'],
  '003': ['003-masked-head', '003-masked-head-computed', '003-masked-head-mask'],
  '004': ['004-step-by-step'],
};
const STEPS = ['Q', 'K', 'V', 'scores', 'scaled_scores', 'masked_scores', 'weights', 'output'];

// Expected matrices of one member: one for each head, or one alone.
const matrices = (value) => (Array.isArray(value[0][0]) ? value : [value]);

for (const [example, cases] of Object.entries(EXAMPLES)) {
  test(`notebook ${example}: ${cases.join(', ')}`, () =>
    onPage({}, async (page) => {
      let compared = 0;
      for (const name of cases) {
        const notebook = readCase(name);
        for (const [member, value] of Object.entries(notebook.expect).filter(([key]) => STEPS.includes(key))) {
          for (const [head, expected] of matrices(value).entries()) {
            await open(page, `/?${name}-${member}-${head}#example=${example}&numbers${head ? `&head=${head}` : ''}`);
            assertShown(notebook, member, expected, await numbers(page, member));
            compared++;
          }
        }
        const { variance = {} } = notebook.expect.statistics ?? {};
        for (const [step, value] of Object.entries(variance)) {
          const shown = await page.textContent(`[data-step="${step}"] .variance`);
          assert.equal(Number(shown.replace('variance', '')), Number(value.toPrecision(3)), `${name}: variance of ${step}`);
        }
      }
      assert.ok(compared > 0);
      await picture(page, `notebook-${example}`, { fullPage: true });
    }));
}

test('the examples are all there, and the page opens with the first', async () => {
  const { page, close } = await newPage();
  await open(page);
  assert.deepEqual(
    await page.locator('[data-example]').evaluateAll((all) => all.map(({ dataset }) => dataset.example)),
    ['000', '001', '002', '003', '004', 'own'],
  );
  assert.match(await page.textContent('[data-step="output"] .shape'), /^4 × 3$/);
  await close();
});
