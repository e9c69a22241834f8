// paint.test.mjs tests what numbers become in narrow cells.
import assert from 'node:assert/strict';
import { test } from 'node:test';

// A canvas that measures texts: all characters have the same width.
const width = 6;
globalThis.document = { createElement: () => ({ getContext: () => ({ measureText: (text) => ({ width: width * text.length }) }) }) };
const { makeScale } = await import('../../../server/explorer/src/colour.js');
const { paintCells } = await import('../../../server/explorer/src/paint.js');

// Returns the texts that are painted into a row of cells of this width.
function written(values, width) {
  const texts = [];
  const on = { cell() {}, hatch() {}, text: (text) => texts.push(text) };
  const matrix = { rows: 1, cols: values.length, data: Float64Array.from(values) };
  const scale = makeScale({ lo: -1, hi: 1, signed: true, palette: 'viridis' });
  const range = { row0: 0, row1: 1, col0: 0, col1: values.length };
  paintCells(on, { matrix, scale, range, size: { width, height: 20, gap: 1 }, numbers: true, readable: { width: 12, height: 12 }, fit: true });
  return texts;
}

test('a number loses digits and the 0 before its point in a narrow cell, and is never left out', () => {
  assert.deepEqual(written([0.2359, -0.7491, 12.5, 3], 60), ['0.236', '−0.749', '12.5', '3']);
  const narrow = written([0.2359, 0.455, 0.09, 1.25, 3], 20);
  for (const [at, text] of ['.24', '.46', '.09', '1.3', '3'].entries()) assert.equal(Number(narrow[at]), Number(text));
  for (let pixels = 12; pixels < 60; pixels++) {
    const values = [0.2359, -0.7491, -0.0034, -3e-16, 123.4, -98765, 1e-5, 6.02e23];
    const texts = written(values, pixels);
    assert.equal(texts.length, values.length);
    for (const [at, text] of texts.entries()) {
      const number = Number(text.replaceAll('−', '-').replace('≈', ''));
      assert.ok(Math.abs(number - values[at]) <= Math.max(0.5 * Math.abs(values[at]), 0.01), `${values[at]} is ${text} in ${pixels} pixels`);
    }
  }
});
