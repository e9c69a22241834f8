// explorer.mjs has what the tests do with the explorer: open it in a state, wait until it is done, and read what it shows.

// Opens the page at this address and waits for its answer.
export async function open(page, address = '/') {
  await page.goto(address);
  await done(page);
}

// Waits until the page shows the answer to its request ('done') or an 'error'. Throws if it is not the expected one of the two. The page is
// 'busy' as soon as the request is changed, so no answer to an earlier request counts.
export async function done(page, state = 'done') {
  const told = await page.waitForSelector('#status:is([data-state="done"], [data-state="error"])', { state: 'attached' });
  if ((await told.getAttribute('data-state')) !== state) {
    throw new Error(`the page is not ${state}: ${await told.textContent()} ${await page.textContent('#problem')}`);
  }
}

// Calls does(), which must make the page send a request, and waits for the answer or the error.
export async function answered(page, does, state = 'done') {
  await page.evaluate(() => (document.getElementById('status').dataset.state = 'of the test'));
  await does();
  await done(page, state);
}

// Returns a pane of a step. The weights have two panes when two heads stand side by side.
export const pane = (page, step, place = 0) => page.locator(`#single[data-step="${step}"] .pane`).nth(place);

// Opens a step if it is not open. step: also `flow` or `lines`.
export async function openStep(page, step) {
  const where = { flow: '#flow', lines: '#lines' }[step] ?? `#single[data-step="${step}"]:not(.as-lines)`;
  if (!(await page.locator(where).isVisible())) await page.click(`[data-frame="${step}"]`);
}

// Opens the drawer with the options and the request, and all that is folded in it.
export async function openDrawer(page) {
  if (await page.locator('#drawer').isHidden()) await page.click('#drawer-open');
  await page.evaluate(() => document.querySelectorAll('#drawer details').forEach((one) => (one.open = true)));
}

// Replaces the request in the editor, and waits for the answer or the error. body: text, or what becomes JSON.
export const setBody = (page, body, state) =>
  answered(page, () => writeBody(page, typeof body === 'string' ? body : JSON.stringify(body)), state);

// Puts a text into the editor, and leaves the focus where it is.
export const writeBody = (page, text) =>
  page.evaluate((text) => {
    const area = document.getElementById('request');
    area.value = text;
    area.dispatchEvent(new InputEvent('input', { inputType: 'insertText' }));
  }, text);

// Returns how the number of the subject is made, as the page writes it without its title.
export const writtenLine = async (page) => {
  const parts = await page.locator('.written-line span').allTextContents();
  return parts.join('');
};
export const writtenTitle = (page) => page.textContent('.written-line b');

// Opens a step, and waits until its figure is painted.
export async function painted(page, step) {
  await openStep(page, step);
  await pane(page, step).locator('.figure[data-drawn="true"]').scrollIntoViewIfNeeded();
}

// Returns the matrix in the table of numbers of a step, with -Infinity for masked scores. The page must show the numbers.
export async function numbers(page, step, place = 0) {
  await openStep(page, step);
  const table = pane(page, step, place).locator('table');
  await table.waitFor();
  return table.evaluate((shown) =>
    Array.from(shown.tBodies[0].rows, (row) => Array.from(row.querySelectorAll('[data-value]'), ({ dataset }) => Number(dataset.value))),
  );
}

// Returns the numbers of a step that the page holds, as rows.
export async function matrix(page, step, head = 0, batch = 0) {
  return page.evaluate(
    ([step, head, batch]) => {
      const { rows, cols, data } = window.explorer.matrix(step, head, batch);
      return Array.from({ length: rows }, (_, row) => Array.from(data.subarray(row * cols, (row + 1) * cols)));
    },
    [step, head, batch],
  );
}

// Returns the middle of a cell of a matrix in the flow on the screen. Rows and columns are those of the drawn matrix.
export async function flowCell(page, id, row, col) {
  const node = page.locator(`#flow [data-node="${id}"]`);
  await node.scrollIntoViewIfNeeded();
  const { rows, cols } = await page.evaluate((step) => window.explorer.matrix(step), id.length > 1 ? id : id.toUpperCase());
  const [down, across] = id === 'k' ? [cols, rows] : [rows, cols];
  const box = await node.boundingBox();
  return { x: box.x + ((col + 0.5) * box.width) / across, y: box.y + ((row + 0.5) * box.height) / down };
}

// Opens a step, and returns the middle of one of its cells on the screen. The cell is scrolled to the middle of the window if
// it is out of sight or covered.
export async function cell(page, step, row, col, place = 0) {
  await openStep(page, step);
  const figure = pane(page, step, place).locator('.figure');
  const { rows, cols } = await page.evaluate((step) => window.explorer.matrix(step), step);
  const over = figure.locator('.figure-over');
  await over.scrollIntoViewIfNeeded(); // this waits until the page does not move
  await over.evaluate(
    (element, part) => {
      const { left, top, width, height } = element.getBoundingClientRect();
      const y = top + part.down * height;
      const there = document.elementFromPoint(left + part.right * width, y);
      if (!element.parentElement.contains(there)) window.scrollBy({ top: y - innerHeight / 2, behavior: 'instant' });
    },
    { down: (row + 0.5) / rows, right: (col + 0.5) / cols },
  );
  const box = await over.boundingBox();
  return { x: box.x + ((col + 0.5) * box.width) / cols, y: box.y + ((row + 0.5) * box.height) / rows };
}
