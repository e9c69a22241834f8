// compare.test.mjs tests the comparison of two answers, and of an answer with the output of a user's own kernel, and what can be pasted in
// place of a request.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { readCase } from './expected.mjs';
import { answered, matrix, open, openDrawer, openStep, setBody } from './explorer.mjs';
import { onPage, picture, serious } from './harness.mjs';
import { entry, npyBytes, safetensorsBytes } from './tensorfiles.mjs';

const close = (a, b, most = 1e-6) => assert.ok(Math.abs(a - b) <= most, `${a} is not ${b}`);
const compared = (page) => page.evaluate(() => window.explorer.comparison);
const told = (page) => page.textContent('#compare-told');
const state = (page) => page.evaluate(() => window.explorer.state);
// Returns the bits of the nearest bfloat16 number.
const rounded = (value) => (new Uint32Array(Float32Array.of(value).buffer)[0] + 0x8000) >>> 16;
const bytesOf = (numbers) => Buffer.from(Float64Array.from(numbers).buffer);

// Begins a comparison and waits for it.
async function begin(page) {
  await page.click('#compare-open');
  await page.waitForFunction(() => window.explorer.comparison !== null);
}

// Gives the comparison a file, and waits until the page has its verdict, or says why it has none.
async function give(page, name, buffer) {
  await page.evaluate(() => (document.getElementById('compare-told').textContent = ''));
  await page.setInputFiles('#compare-file', { name, mimeType: 'application/octet-stream', buffer: Buffer.from(buffer) });
  await page.waitForFunction(() => document.getElementById('compare-told').textContent || document.getElementById('problem').textContent);
}

test('an answer is kept as A; B and B − A follow every change', () =>
  onPage({}, async (page) => {
    await open(page);
    const a = await matrix(page, 'weights');
    await begin(page);
    assert.match(await told(page), /^A and B have the same weights/);
    await openDrawer(page);
    await answered(page, () => page.selectOption('#option-causal', 'true'));
    const b = await matrix(page, 'weights');
    const { difference, worst, name } = await compared(page);
    assert.equal(name, 'weights');
    let most = 0;
    b.forEach((row, i) =>
      row.forEach((weight, j) => {
        close(difference.data[i * 4 + j], weight - a[i][j], 1e-12);
        most = Math.max(most, Math.abs(weight - a[i][j]));
      }),
    );
    close(worst.error, most, 1e-12);
    assert.match(
      await told(page),
      /They are in rows 0 to 2\. The largest difference is 0\.\d+, in weights at row \d \(word \d\), column \d \(word \d\): A has/,
    );
    assert.equal(await page.locator('.compare-panes .figure').count(), 3);
    assert.deepEqual(await serious(page), []);
    await picture(page, 'compare-answers', { fullPage: true });
    // Another step is compared when it is opened. Masked scores have −∞ in B only, so there is no finite difference.
    await openStep(page, 'masked_scores');
    assert.equal((await compared(page)).worst.brokenCount, 6);
    assert.match(
      await told(page),
      /6 numbers have no finite difference, because of NaN or an infinity; the first is masked_scores at row 0/,
    );
    // A request of another shape cannot be compared, and this is said.
    await answered(page, () => page.click('[data-example="004"]'));
    assert.match(await told(page), /^A has 1 × 1 × 4 × 4 \w+ and B has 1 × 1 × 3 × 3/);
    await page.click('text=Stop comparing');
    assert.equal(await page.locator('#steps').isVisible(), true);
    assert.equal(await compared(page), null);
  }));

test('the wrong element of a kernel’s output is found in every format, with its place', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003');
    const output = await matrix(page, 'output');
    readCase('003-masked-head').expect.output.forEach((row, i) => row.forEach((value, j) => close(output[i][j], value, 1e-6)));
    const wrong = output.map((row) => [...row]);
    wrong[2][5] += 0.125;
    const flat = wrong.flat();
    const files = [
      ['mine.npy', npyBytes('<f8', [4, 8], Float64Array.from(flat))],
      ['mine.safetensors', safetensorsBytes({ output: entry('F64', [1, 4, 8], 0, 256) }, bytesOf(flat))],
      ['mine.json', JSON.stringify({ output: wrong })],
      ['mine.csv', wrong.map((row) => row.join(',')).join('\n')],
    ];
    await begin(page);
    for (const [name, buffer] of files) {
      await give(page, name, buffer);
      const { worst } = await compared(page);
      assert.deepEqual([worst.row, worst.col, worst.over], [2, 5, 1], name);
      close(worst.error, 0.125, 1e-9);
      assert.match(await told(page), /^Wrong: One of 32 numbers is beyond the tolerance, .* It is in row 2 \(is\), column 5\./);
      assert.match(await told(page), /The largest error is 0\.125, in output at row 2 \(is\), column 5: the service has .* the file has/);
      assert.equal((await state(page)).step, 'output');
    }
    // A kernel that computes in half precision is held to the tolerance of its type.
    const half = safetensorsBytes({ output: entry('BF16', [4, 8], 0, 64) }, Buffer.from(Uint16Array.from(output.flat(), rounded).buffer));
    await give(page, 'half.safetensors', half);
    assert.equal((await compared(page)).worst.over, 0);
    assert.match(await told(page), /^Rounded: no number is beyond the tolerance, 1\.29e−2 \+ 1\.6e−2 · \|B\|\./);
    await give(page, files[0][0], files[0][1]);
    await page.click('text=Show this place');
    assert.equal(await page.locator('.compare-panes .mark-cell').count(), 3);
    assert.match(await page.textContent('#tooltip'), /B − A0\.125$/);
    await picture(page, 'compare-kernel', { fullPage: true });
    // The file is compared again when the request changes.
    await openDrawer(page);
    await answered(page, () => page.selectOption('#option-causal', ''));
    await page.waitForFunction(() => window.explorer.comparison?.worst.over > 10);
  }));

test('heads and batch items of a kernel’s output; NaN; what does not fit is refused in words', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own-matrices');
    const drawn = (d) => ({ random: 'randn', shape: [2, 3, 4, d] });
    const body = JSON.stringify({ random: { generator: 'numpy', seed: 2 }, Q: drawn(4), K: drawn(4), V: drawn(5) });
    await setBody(page, body);
    const all = [];
    for (let batch = 0; batch < 2; batch++)
      for (let head = 0; head < 3; head++) all.push(...(await matrix(page, 'output', head, batch)).flat());
    all[(1 * 3 + 2) * 20 + 3 * 5 + 1] = NaN;
    all[7] += 1e-3;
    await begin(page);
    await give(page, 'kernel.npy', npyBytes('<f8', [2, 3, 4, 5], Float64Array.from(all)));
    assert.match(
      await told(page),
      /^Wrong: 2 of 120 numbers are .*One number has no finite difference, .*; the first is output at batch item 1, head 2, row 3 .*the file has NaN/,
    );
    assert.match(await told(page), /Among the others, the largest error is 0\.001, in output at batch item 0, head 0, row 1/);
    assert.deepEqual([(await state(page)).batch, (await state(page)).head], [1, 2], 'the head of the worst number is shown');
    const refused = [
      ['kernel.npy', npyBytes('<f8', [3, 4], new Float64Array(12)), /Not compared.*The file has 3 × 4, and no result has this shape/],
      ['a.json', '{"output": [[1, 2], [3]]}', /Not compared.*\[1\]|Not compared.*row/i],
      ['a.json', '{"nothing": 1}', /Not compared/],
    ];
    for (const [name, bytes, rule] of refused) {
      await give(page, name, bytes);
      assert.match(await told(page), rule);
      assert.equal(await compared(page), null, 'the verdict on the file before is gone');
      assert.equal(await page.locator('.compare-panes').isVisible(), false);
      assert.ok((await page.textContent('.compare-head')).includes(`B: ${name}.`));
    }
  }));

test('all results of a file are judged, the worst first; other steps can be seen meanwhile; what a request expects is compared', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003&step=weights');
    const [weights, output] = [await matrix(page, 'weights'), await matrix(page, 'output')];
    const wrong = output.map((row, i) => row.map((value) => value + (i === 2)));
    await begin(page);
    assert.match(await told(page), /Change the request, or open a kernel’s output/);
    assert.equal(await page.isVisible('#compare-open'), false, 'a second click would drop the file');
    await give(page, 'both.json', JSON.stringify({ lse: [1, 2], weights, output: wrong }));
    await page.waitForFunction(() => window.explorer.state.step === 'output');
    assert.match(await told(page), /^weights: equal\. output: wrong, 8 numbers\. Wrong: 8 of 32 numbers .* row 2 \(is\)/);
    await openStep(page, 'weights');
    await page.waitForFunction(() => window.explorer.comparison?.name === 'weights');
    assert.match(await told(page), /^weights: equal\. output: wrong, 8 numbers\. A and B have the same weights/);
    // A step that the file does not have is shown as without a comparison, below the verdict.
    await openStep(page, 'V');
    const shown = async () => [await page.isVisible('#single'), await page.isVisible('.compare-panes')];
    assert.deepEqual(await shown(), [true, false]);
    assert.match(await told(page), /output: wrong/);
    await openStep(page, 'output');
    assert.deepEqual(await shown(), [false, true]);
    await page.click('text=Stop comparing');
    // A new request may say what is expected, in JSON or in a file.
    const body = JSON.parse((await state(page)).text);
    await paste(page, JSON.stringify({ ...body, expected: { output: wrong } }));
    await page.waitForFunction(() => window.explorer.comparison?.verdict === 'wrong');
    assert.match(await told(page), /^Wrong: 8 of 32 numbers .* row 2 \(q2\)/);
    await page.click('text=Stop comparing');
    const entries = Object.entries({ Q: body.Q, K: body.K, V: body.V, 'expected.output': wrong });
    const header = Object.fromEntries(entries.map(([name], at) => [name, entry('F64', [4, 8], at * 256, (at + 1) * 256)]));
    const file = safetensorsBytes({ __metadata__: { causal: 'true' }, ...header }, bytesOf(entries.flatMap(([, rows]) => rows.flat())));
    await page.setInputFiles('#file', { name: 'case.safetensors', mimeType: 'application/octet-stream', buffer: Buffer.from(file) });
    await page.waitForFunction(() => window.explorer.comparison?.verdict === 'wrong');
    assert.match(await told(page), /^Wrong: 8 of 32 numbers .* row 2 \(q2\)/);
    // The output of a kernel is recognised wherever it is given.
    await page.setInputFiles('#file', {
      name: 'output.npy',
      mimeType: '',
      buffer: Buffer.from(npyBytes('<f8', [4, 8], Float64Array.from(output.flat()))),
    });
    await page.waitForFunction(() => window.explorer.comparison?.verdict === 'equal');
  }));

// Returns the file that the example of a kernel in C writes, and where the tensors end in it.
function kernelFile() {
  const folder = mkdtempSync(join(tmpdir(), 'kernel-'));
  try {
    const source = new URL('../clients/kernel/kernel.c', import.meta.url).pathname;
    execFileSync('cc', [source, '-o', join(folder, 'kernel')]);
    execFileSync('./kernel', { cwd: folder });
    const bytes = readFileSync(join(folder, 'kernel.safetensors'));
    const start = 8 + Number(bytes.readBigUInt64LE());
    const { __metadata__: _, ...entries } = JSON.parse(bytes.subarray(8, start));
    return {
      bytes,
      entries: Object.entries(entries).map(
        ([
          name,
          {
            shape,
            data_offsets: [, end],
          },
        ]) => ({ name, shape, end: start + end }),
      ),
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const INPUTS = { Q: [[1, 1]], K: [[1, 0], [0, 1]], V: [[5, 6], [7, 8]] }; // prettier-ignore
const upload = (buffer, name = 'kernel.safetensors') => ({ name, mimeType: '', buffer: Buffer.from(buffer) });

// Waits until a result has one of the verdicts.
const judged = (page, name, verdicts) =>
  page.waitForFunction(
    ([name, verdicts]) => window.explorer.comparison?.name === name && verdicts.includes(window.explorer.comparison.verdict),
    [name, verdicts],
  );

// Returns a copy of a file in which the number before a place has the other sign.
function turned(bytes, end) {
  const made = Buffer.from(bytes);
  made[end - 1] ^= 0x80;
  return made;
}

test('a file of an example kernel, wrong by one sign, shows the map of the wrong result', () =>
  onPage({}, async (page) => {
    const { bytes, entries } = kernelFile();
    const results = entries.filter(({ name }) => name.startsWith('expected.'));
    assert.deepEqual(results.map(({ name }) => name.slice(9)), ['output', 'lse', 'grad_Q', 'grad_K', 'grad_V']); // prettier-ignore
    await open(page, '/#example=003&step=weights');
    for (const { name, shape, end } of results) {
      const result = name.slice(9);
      await page.setInputFiles('#file', upload(turned(bytes, end)));
      await judged(page, result, ['wrong']);
      const { worst } = await compared(page);
      const [row, col] = shape.length === 1 ? [shape[0] - 1, 0] : shape.map((size) => size - 1);
      assert.deepEqual([worst.row, worst.col, worst.over], [row, col, 1], result);
      assert.match(await told(page), new RegExp(`${result}: wrong.*Wrong: .*in ${result} at row ${row}\\b`));
      assert.equal(await page.locator('.compare-panes .figure').count(), 3);
      assert.equal(await page.locator('.compare-panes').isVisible(), true);
      assert.equal(await page.locator('#problem').isVisible(), false);
      const { Q, K, V } = await request(page);
      assert.deepEqual({ Q, K, V }, INPUTS);
      assert.equal(await page.locator('#compare-result').inputValue(), result);
    }
    await picture(page, 'compare-example-kernel', { fullPage: true });
    // Each result of the file can be seen. A step that is opened replaces a result that is no step.
    for (const result of ['lse', 'output', 'grad_K']) {
      await page.selectOption('#compare-result', result);
      await judged(page, result, ['equal', 'rounded']);
      assert.equal(await page.locator('.compare-panes').isVisible(), true, result);
    }
    assert.deepEqual(await serious(page), []);
    await openStep(page, 'weights');
    assert.deepEqual([await page.isVisible('#single'), await page.isVisible('.compare-panes')], [true, false]);
    await openStep(page, 'output');
    await judged(page, 'output', ['equal', 'rounded']);
    // The kernel has been corrected, and its file has the same name.
    await page.setInputFiles('#file', upload(bytes));
    await page.waitForFunction(() => /^output: (equal|rounded)\. lse: (equal|rounded)\. grad_Q: (equal|rounded)\. grad_K: (equal|rounded)\. grad_V: (equal|rounded)\. /.test(document.getElementById('compare-told').textContent)); // prettier-ignore
  }));

test('a file with inputs that is opened in the comparison is compared with the results of its own inputs and options', () =>
  onPage({}, async (page) => {
    const { bytes, entries } = kernelFile();
    await open(page, '/#example=own-matrices');
    await begin(page);
    await page.setInputFiles('#compare-file', upload(turned(bytes, entries.at(-1).end)));
    await judged(page, 'grad_V', ['wrong']);
    const { Q, K, V, dtype } = await request(page);
    assert.deepEqual({ Q, K, V, dtype }, { ...INPUTS, dtype: 'float64' });
    const text = JSON.stringify({ ...INPUTS, dtype: 'float64', causal: true, expected: { output: [[5, -6]] } });
    await page.setInputFiles('#compare-file', upload(text, 'kernel.json'));
    await judged(page, 'output', ['wrong']);
    assert.equal((await state(page)).text, text);
    assert.deepEqual([(await compared(page)).worst.row, (await compared(page)).worst.col], [0, 1]);
  }));

test('the verdict and its sentence are those of the service, whatever the page would say of the same numbers', () =>
  onPage({}, async (page, { context }) => {
    await open(page, '/#example=003&step=output');
    const output = await matrix(page, 'output');
    const answers = [
      [{ verdict: 'wrong', message: 'Row 1 is off by 9 times what rounding explains: 0.5, not 0.25' }, 1e-9, /^Wrong: Row 1 is off by 9 times what rounding explains: 0\.5, not 0\.25\. The largest error/], // prettier-ignore
      [{ verdict: 'wrong', tolerance: { absolute: 1, relative: 0 }, beyond_tolerance: 0, message: 'Look at row 1' }, 0.5, /^Wrong: Look at row 1\./], // prettier-ignore
      [{ verdict: 'rounded' }, 0.5, /^Rounded: The largest error is 0\.5, /],
      [{ verdict: 'close', tolerance: { absolute: 0.1, relative: 0 }, beyond_tolerance: 1 }, 0.5, /^Close: One of 32 numbers is beyond/],
    ];
    let result;
    await context.route('**/attention', (route) =>
      route.request().postDataBuffer().includes('expected.output')
        ? route.fulfill({ json: { comparison: { results: { output: result } } } })
        : route.continue(),
    );
    await begin(page);
    for (const [answer, error, text] of answers) {
      result = answer;
      const theirs = output.map((row, i) => row.map((value, j) => value + (i === 1 && j === 2 ? error : 0)));
      await page.setInputFiles('#compare-file', upload(JSON.stringify(theirs), 'output.json'));
      await page.waitForFunction((source) => new RegExp(source).test(document.getElementById('compare-told').textContent), text.source);
      const { verdict, worst } = await compared(page);
      assert.deepEqual([verdict, worst.row, worst.col], [answer.verdict, 1, 2]);
      assert.equal(await page.inputValue('#compare-colours'), answer.verdict === 'wrong' ? 'log' : 'beyond');
    }
  }));

test('numbers of a text are compared in the type of the request, because a text names none', () =>
  onPage({}, async (page, { context }) => {
    await open(page, '/#example=own-matrices');
    const types = [];
    await context.route('**/attention', (route) => {
      const bytes = route.request().postDataBuffer();
      if (bytes.includes('expected.output'))
        types.push(JSON.parse(bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE())))['expected.output'].dtype);
      return route.continue();
    });
    const Q = [[0.1, 0.2], [0.3, 0.4]]; // prettier-ignore
    for (const dtype of ['float32', 'float64']) {
      await setBody(page, { dtype, Q, K: Q, V: Q });
      const output = await matrix(page, 'output');
      if (dtype === 'float32') await begin(page);
      for (const name of ['output.json', 'output.csv']) {
        const text = name.endsWith('csv') ? output.map((row) => row.join()).join('\n') : JSON.stringify(output);
        await page.setInputFiles('#compare-file', upload(text, name));
        await page.waitForFunction((name) => document.querySelector('.compare-head').textContent.includes(`B: ${name}`), name);
        await page.waitForFunction(() => ['equal', 'rounded'].includes(window.explorer.comparison?.verdict));
      }
      assert.deepEqual([...new Set(types.splice(0))], [dtype === 'float32' ? 'F32' : 'F64']);
    }
  }));

const [HEADS, N, D] = [8, 512, 64];
// Returns a copy of an output of 8 × 512 × 64 in which a kernel's bug has been planted.
const planted = (output, plant) => {
  const made = Float32Array.from(output);
  plant((head, row, col) => (head * N + row) * D + col, made);
  return made;
};

// Computes causal attention in plain loops, in which each query also attends to so many keys after its own.
function attention([q, k, v], more) {
  const output = new Float32Array(q.length);
  for (let head = 0; head < HEADS; head++) {
    for (let i = 0; i < N; i++) {
      const keys = Math.min(i + 1 + more, N);
      const at = (row) => (head * N + row) * D;
      const scores = Array.from({ length: keys }, (_, j) => {
        let sum = 0;
        for (let c = 0; c < D; c++) sum += q[at(i) + c] * k[at(j) + c];
        return sum / Math.sqrt(D);
      });
      const most = Math.max(...scores);
      const exps = scores.map((x) => Math.exp(x - most));
      const total = exps.reduce((a, b) => a + b, 0);
      for (let c = 0; c < D; c++) output[at(i) + c] = exps.reduce((sum, x, j) => sum + x * v[at(j) + c], 0) / total;
    }
  }
  return output;
}

test('a kernel author’s five bugs in 8 × 512 × 64 are found with their place', () =>
  onPage({}, async (page) => {
    await open(page);
    let seed = 5;
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    const given = [0, 1, 2].map(() => Float32Array.from({ length: HEADS * N * D }, () => 3 * (random() - 0.5)));
    const files = given.map((data, at) => ({
      name: `${'QKV'[at]}.npy`,
      mimeType: 'application/octet-stream',
      buffer: npyBytes('<f4', [HEADS, N, D], data),
    }));
    await answered(page, () => page.setInputFiles('#file', files));
    await openDrawer(page);
    await answered(page, () => page.selectOption('#option-causal', 'true'));
    await begin(page);
    const right = attention(given, 0);
    const compare = async (data, shape = [HEADS, N, D]) => {
      await give(page, 'kernel.npy', npyBytes('<f4', shape, data));
      const { verdict, beyond, worst } = await compared(page);
      assert.equal(worst.over, beyond, 'the page counts what the service counts');
      assert.equal(
        worst.heads.flat().reduce((a, b) => a + b, 0),
        worst.over,
      );
      return { verdict, heads: worst.heads[0], over: worst.over };
    };
    const counts = () => page.locator('.compare-heads button b').allTextContents();
    // The right output is within rounding.
    assert.equal((await compare(right)).verdict, 'rounded');
    assert.match(await told(page), /^Rounded: no number is beyond the tolerance/);
    // One row of one head is wrong.
    const row = planted(right, (at, made) => {
      for (let c = 0; c < D; c++) made[at(3, 17, c)] *= 1.01;
    });
    const { heads } = await compare(row);
    assert.deepEqual(heads.map(Boolean), [false, false, false, true, false, false, false, false]);
    assert.match(await told(page), /^Wrong: \d\d of 262,144 numbers are beyond .* They are in head 3, row 17 \(q17\)/);
    assert.deepEqual((await counts()).map(Number), heads);
    await page.click('.compare-heads [data-head="0,3"]');
    assert.equal((await state(page)).head, 3);
    await page.locator('.compare-panes .figure[data-drawn="true"]').nth(2).waitFor();
    await picture(page, 'compare-kernel-row', { fullPage: true });
    // A whole head is another one.
    const head = planted(right, (at, made) => made.set(right.subarray(at(4, 0, 0), at(5, 0, 0)), at(5, 0, 0)));
    assert.deepEqual(
      (await compare(head)).heads.map((count) => count > 30_000),
      [false, false, false, false, false, true, false, false],
    );
    assert.match(await told(page), /They are in head 5, all 512 rows\./);
    // The causal mask is off by one.
    const shifted = await compare(attention(given, 1));
    assert.ok(shifted.heads.every((count) => count > 1000));
    assert.match(await told(page), /They are in all 8 heads, rows 0 to 510\./);
    await page.waitForFunction(() => / The file is right if each query also attends to the key after its own\.$/.test(document.getElementById('compare-told').textContent)); // prettier-ignore
    await picture(page, 'compare-kernel-causal', { fullPage: true });
    // One number is NaN. The verdict and the tooltip of the file before are gone.
    await page.click('text=Show this place');
    assert.equal(await page.isVisible('#tooltip'), true);
    const nan = planted(right, (at, made) => (made[at(2, 100, 7)] = NaN));
    assert.equal((await compare(nan)).over, 1);
    assert.equal(await page.isVisible('#tooltip'), false);
    assert.equal(await page.locator('.compare-panes .mark-cell').count(), 0);
    assert.match(
      await told(page),
      /^Wrong: One of 262,144 numbers is .* It is in head 2, row 100 \(q100\), column 7\. One number has no finite difference/,
    );
    await page.click('text=Show this place');
    assert.equal((await state(page)).head, 2);
    assert.match(await page.textContent('#tooltip'), /BNaNB − ANaN$/);
    // The layout is wrong: the numbers are those of 512 × 8 × 64.
    const layout = planted(right, (at, made) => {
      for (let h = 0; h < HEADS; h++)
        for (let i = 0; i < N; i++) made.set(right.subarray(at(h, i, 0), at(h, i + 1, 0)), (i * HEADS + h) * D);
    });
    assert.equal((await compare(layout)).verdict, 'wrong');
    assert.match(await told(page), /They would agree if the file were rows × heads × columns: its layout is wrong\.$/);
    await page.click('#compare-order');
    await page.waitForFunction(() => /^Rounded: .* The file is read as rows × heads × columns\.$/.test(document.getElementById('compare-told').textContent)); // prettier-ignore
    assert.deepEqual((await compared(page)).worst.over, 0);
    // A file that says this shape, or that of packed heads, is read so after one click.
    for (const shape of [
      [N, HEADS, D],
      [N, HEADS * D],
      [1, N, HEADS, D],
    ]) {
      // prettier-ignore
      await give(page, 'kernel.npy', npyBytes('<f4', shape, layout));
      assert.match(await told(page), /^The file has .*, and the output has 8 × 512 × 64\. It has this shape as rows × heads × columns\.$/);
      await page.click('#compare-order');
      await page.waitForFunction(() => window.explorer.comparison?.verdict === 'rounded');
      assert.match(await told(page), /The file is read as rows × heads × columns\.$/);
    }
    assert.deepEqual(await serious(page), []);
    for (const width of [360, 700, 1900]) {
      await page.setViewportSize({ width, height: 844 });
      await page.waitForTimeout(300);
      const out = await page.evaluate(() => [...document.querySelectorAll('#comparison *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => `${one.localName}.${one.className}`)); // prettier-ignore
      assert.deepEqual(out, [], `nothing sticks out at ${width}`);
      await picture(page, `compare-kernel-${width}`, { fullPage: true });
    }
  }));

test('the mask of the weights stays hatched; a kernel that attends to a masked key has a colour there', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=003&step=weights');
    const weights = await matrix(page, 'weights');
    const [row, col] = [0, weights[0].indexOf(0)];
    assert.ok(col > 0, 'the first word does not see the later ones');
    weights[row][col] = 0.25;
    await begin(page);
    await give(page, 'weights.json', JSON.stringify(weights));
    assert.match(await told(page), /^Wrong: One of 16 numbers is .* It is in row 0 \(My\), column 1\./);
    const colour = (pane, r, c) =>
      page.evaluate(
        ([pane, r, c]) => {
          const figure = document.querySelectorAll('.compare-panes .figure')[pane];
          const [canvas, over] = [figure.querySelector('canvas'), figure.querySelector('.figure-over')];
          const [box, inner] = [canvas.getBoundingClientRect(), over.getBoundingClientRect()];
          const [x, y] = [inner.left - box.left + ((c + 0.2) * inner.width) / 4, inner.top - box.top + ((r + 0.2) * inner.height) / 4];
          const ratio = canvas.width / box.width;
          const { data } = canvas.getContext('2d').getImageData(x * ratio - 3, y * ratio - 3, 6, 6);
          return [...new Set(new Uint32Array(data.buffer))].length === 1 ? 'plain' : 'hatched';
        },
        [pane, r, c],
      );
    await page.locator('.compare-panes .figure[data-drawn="true"]').nth(2).waitFor();
    assert.deepEqual([await colour(0, row, col), await colour(1, row, col), await colour(2, row, col)], ['hatched', 'plain', 'plain']);
    assert.deepEqual([await colour(0, 0, 3), await colour(1, 0, 3), await colour(2, 0, 3)], ['hatched', 'hatched', 'hatched']);
    // The colours of the difference can be chosen.
    await page.selectOption('#compare-colours', 'log');
    await page.locator('.compare-panes .figure[data-drawn="true"]').nth(2).waitFor();
    await picture(page, 'compare-weights', { fullPage: true });
  }));

// Pastes a text over the whole request.
const paste = (page, text, wanted) =>
  answered(
    page,
    async () => {
      await openDrawer(page);
      await page.evaluate((given) => navigator.clipboard.writeText(given), text);
      await page.focus('#request');
      await page.keyboard.press('Control+A');
      await page.keyboard.press('Control+V');
    },
    wanted,
  );

test('heads of different sizes are not compared with one array; a paste into a shortened text changes nothing', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=002-heads');
    await begin(page);
    const Q = Array.from({ length: 3 }, () => Array.from({ length: 5 }, () => [0, 0, 0]));
    await give(page, 'Q.json', JSON.stringify(Q));
    assert.match(await told(page), /The heads of Q have different numbers of columns/);
    const body = JSON.stringify({ X: Array.from({ length: 64 }, (_, i) => Array.from({ length: 512 }, (_, j) => ((i * j) % 97) / 96)) });
    await paste(page, body);
    assert.equal(await page.evaluate(() => document.getElementById('request').readOnly), true);
    await page.evaluate(() => {
      const clipboardData = new DataTransfer();
      clipboardData.setData('text', '[[1, 2]]');
      const area = document.getElementById('request');
      area.setSelectionRange(5, 5);
      area.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
    });
    await page.waitForTimeout(300);
    assert.equal((await state(page)).text, body);
  }));

test('a worker reads the file; a later file replaces an earlier one that takes longer; one line of 21 MB is refused', () =>
  onPage({}, async (page) => {
    await open(page);
    await begin(page);
    await give(page, 'line.csv', '1,'.repeat(10.5e6));
    assert.match(await told(page), /Line 1 has more than 20 million characters/);
    const output = await matrix(page, 'output');
    await page.evaluate(() => {
      const { postMessage } = Worker.prototype;
      Worker.prototype.postMessage = function (file) {
        setTimeout(() => postMessage.call(this, file), file.name === 'slow.json' ? 1000 : 0);
      };
    });
    const slow = { name: 'slow.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(output)) };
    await page.setInputFiles('#compare-file', slow);
    await give(page, 'output.json', JSON.stringify(output));
    await page.waitForFunction(() => /^A and B have the same output/.test(document.getElementById('compare-told').textContent));
    await page.waitForTimeout(2000);
    assert.match(await page.textContent('.compare-head'), /B: output\.json/);
    assert.match(await told(page), /^A and B have the same output/, 'nothing is said of the earlier file');
  }));

const request = async (page) => JSON.parse((await state(page)).text);

test('words, tensors, arrays and CSV become requests when they are pasted', () =>
  onPage({}, async (page) => {
    await open(page, '/#example=own');
    assert.equal(await page.getAttribute('[data-variant="own"]', 'aria-pressed'), 'true', '“Your own” begins with a sentence');
    await paste(page, 'The cat sat on the mat.');
    assert.equal((await request(page)).text, 'The cat sat on the mat.');
    assert.deepEqual(await page.locator('#words .word').allTextContents(), ['the', 'cat', 'sat', 'on', 'the', 'mat']);
    const cases = [
      ['tensor([[ 1.0000, -2.5000],\n        [ 0.1000,  3.0000]], dtype=torch.float64)', { X: [[1, -2.5], [0.1, 3]] }], // prettier-ignore
      ['[[1. 0.]\n [0. 1.]]', { X: [[1, 0], [0, 1]] }], // prettier-ignore
      ['Q = array([[1, 2]])\nK = array([[3, 4], [5, 6]])\nV = array([[1.], [2.]])', { Q: [[1, 2]], K: [[3, 4], [5, 6]], V: [[1], [2]] }], // prettier-ignore
      ['1,2\n3,4\n5,6', { X: [[1, 2], [3, 4], [5, 6]] }], // prettier-ignore
    ];
    for (const [text, body] of cases) {
      await paste(page, text);
      assert.deepEqual(await request(page), body);
    }
    await paste(page, ',a,b\nthe,1,0\ncat,0,1');
    assert.deepEqual((await state(page)).labels, ['the', 'cat']);
    // A matrix that is pasted into a request becomes JSON there.
    await setBody(page, '{"X": [[1, 2], [3, 4]], "mask": 0}', 'error');
    await page.evaluate(() => navigator.clipboard.writeText('tensor([[1, 0],\n        [1, 1]])'));
    await page.evaluate(() => {
      const area = document.getElementById('request');
      const at = area.value.indexOf('0}');
      area.focus();
      area.setSelectionRange(at, at + 1);
    });
    await answered(page, () => page.keyboard.press('Control+V'));
    assert.deepEqual((await request(page)).mask, [[1, 0], [1, 1]]); // prettier-ignore
  }));

test('what is wrong with a pasted text is said and marked; typed words wait for a click', () =>
  onPage({ expected: /status of (400|422)/ }, async (page) => {
    await open(page, '/#example=own');
    await paste(page, '[[1. 2. 3.]\n [4. 5.]]', 'error');
    assert.match(await page.textContent('#problem'), /Row 2 \(line 2\) has 2 numbers, and row 1 has 3\./);
    assert.equal(await page.locator('#marks mark').count(), 1);
    assert.match(await page.textContent('#problem-show'), /line 2/);
    await paste(page, 'tensor([[0.1, ..., 0.2]])', 'error');
    assert.match(await page.textContent('#problem'), /set_printoptions/);
    await paste(page, '{"X": [[1, 2],\n [3, x]]}', 'error');
    assert.equal(await page.textContent('#marks mark'), 'x');
    await setBody(page, 'the dog ran', 'error');
    await answered(page, () => page.click('text=Make a request of it'));
    assert.equal((await request(page)).text, 'the dog ran');
  }));
