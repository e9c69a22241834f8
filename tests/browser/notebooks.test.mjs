// notebooks.test.mjs opens every notebook in the explorer. Each number of each step must be the one that tests/notebooks expects.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { assertShown, readCase } from './expected.mjs';
import { matrix, numbers, open, openStep } from './explorer.mjs';
import { onPage, picture } from './harness.mjs';

// The names of the examples, and the cases in tests/notebooks that make the same call. The server draws the matrices of 001 from the seed
// of the notebook.
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
const WIDEST_TABLE = 64; // columns; a wider matrix has no table of numbers
const INPUTS = ['X', 'W_Q', 'W_K', 'W_V'];
const STEPS = ['Q', 'K', 'V', 'scores', 'scaled_scores', 'masked_scores', 'weights', 'output'];

// Returns the expected matrices of a member as a list with one for each head.
const matrices = (value) => (Array.isArray(value[0][0]) ? value : [value]);

for (const [example, cases] of Object.entries(EXAMPLES)) {
  test(`notebook ${example}: ${cases.join(', ')}`, () =>
    onPage({}, async (page) => {
      await open(page, `/#example=${example}&numbers`);
      let compared = 0;
      for (const notebook of cases.map((name) => ({ ...readCase(name), case: name }))) {
        for (const [member, value] of Object.entries(notebook.expect).filter(([key]) => STEPS.includes(key))) {
          for (const [head, expected] of matrices(value).entries()) {
            if (matrices(value).length > 1) {
              await page.click(`#heads [data-head="${head}"]`);
            }
            const wide = expected[0].length > WIDEST_TABLE;
            assertShown(notebook, member, expected, await (wide ? matrix(page, member, head) : numbers(page, member)));
            compared++;
          }
        }
        // The page gets the matrices that the service draws for a notebook, as the requests with numbers have them.
        const given = JSON.parse(readFileSync(new URL(`../notebooks/${notebook.case}.request.json`, import.meta.url)));
        for (const name of INPUTS.filter((name) => Array.isArray(given[name]))) {
          for (const [head, rows] of matrices(given[name]).entries()) {
            const shown = await page.evaluate(([name, head]) => window.explorer.matrix(name, head)?.data, [name, head]);
            const turned = given.weight_layout === 'out_in' && name !== 'X' ? rows[0].map((_, at) => rows.map((row) => row[at])) : rows;
            assert.deepEqual(
              shown && Object.values(shown).map(Math.fround),
              turned.flat().map(Math.fround),
              `${notebook.case}: ${name}, head ${head}`,
            );
          }
        }
        const { variance = {} } = notebook.expect.statistics ?? {};
        for (const [step, value] of Object.entries(variance)) {
          await openStep(page, step);
          const shown = await page.textContent(`#single[data-step="${step}"] .variance`);
          assert.equal(Number(shown.replace('variance', '')), Number(value.toPrecision(3)), `variance of ${step}`);
        }
      }
      assert.ok(compared > 0);
      await openStep(page, 'flow');
      await picture(page, `notebook-${example}`, { fullPage: true });
    }));
}

test('the examples are all there, and the page opens with the first', () =>
  onPage({}, async (page) => {
    await open(page);
    const examples = await page.locator('[data-example]').evaluateAll((all) => all.map(({ dataset }) => dataset.example));
    assert.deepEqual(examples, ['000', '001', '002', '003', '004', '005', 'it', 'model', 'own']);
    assert.equal(await page.locator('[data-example][aria-pressed="true"]').getAttribute('data-example'), '000');
  }));
