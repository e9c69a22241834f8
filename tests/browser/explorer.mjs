// explorer.mjs - the explorer as the tests use it: opens it in a state, waits until it is done, reads what it shows.

// Opens the page with this hash, and waits for its answer.
export async function open(page, address = '/') {
  await page.goto(address);
  await done(page);
}

// Waits until the page shows what came of its last question: an answer ('done') or an 'error'.
export async function done(page, state = 'done') {
  const told = await page.waitForSelector('#status:is([data-state="done"], [data-state="error"])', { state: 'attached' });
  if ((await told.getAttribute('data-state')) !== state) {
    throw new Error(`the page is not ${state}: ${await told.textContent()} ${await page.textContent('#problem')}`);
  }
}

// Does something that asks the server anew, and waits for what comes of it.
export async function answered(page, does, state = 'done') {
  await page.evaluate(() => (document.getElementById('status').dataset.state = 'of the test'));
  await does();
  await done(page, state);
}

// A pane of a step: the weights have two when heads stand side by side.
export const pane = (page, step, place = 0) => page.locator(`[data-step="${step}"] .pane`).nth(place);

// Scrolls to a step and waits until its figure is painted.
export async function painted(page, step) {
  const figure = pane(page, step).locator('.figure[data-drawn="true"]');
  await figure.scrollIntoViewIfNeeded();
}

// The matrix that the table of numbers shows for a step, masked scores as -Infinity. Needs the numbers to be shown.
export async function numbers(page, step, place = 0) {
  const table = pane(page, step, place).locator('table');
  await table.waitFor();
  return table.evaluate((shown) =>
    Array.from(shown.tBodies[0].rows, (row) => Array.from(row.querySelectorAll('[data-value]'), ({ dataset }) => Number(dataset.value))),
  );
}

// The numbers of a step as the page has them: rows of numbers.
export async function matrix(page, step, head = 0, batch = 0) {
  return page.evaluate(
    ([step, head, batch]) => {
      const { rows, cols, data } = window.explorer.matrix(step, head, batch);
      return Array.from({ length: rows }, (_, row) => Array.from(data.subarray(row * cols, (row + 1) * cols)));
    },
    [step, head, batch],
  );
}

// The middle of a cell of a step's figure on the screen, which it scrolls to.
export async function cell(page, step, row, col, place = 0) {
  const figure = pane(page, step, place).locator('.figure');
  await figure.scrollIntoViewIfNeeded();
  const { rows, cols } = await page.evaluate((step) => window.explorer.matrix(step), step);
  const box = await figure.locator('.figure-over').boundingBox();
  return { x: box.x + ((col + 0.5) * box.width) / cols, y: box.y + ((row + 0.5) * box.height) / rows };
}
