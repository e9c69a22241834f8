// fieldtext.test.mjs tests how the text of an option's field is read.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readFraction, readList, readNumber, readWhole } from '../../../server/explorer/src/fieldtext.js';

test('a field is read as JSON, an empty one as nothing, and what cannot be read is told from both', () => {
  const cases = [
    [
      readNumber,
      {
        '': undefined,
        ' ': undefined,
        2: '2',
        ' .5 ': '0.5',
        '+1e-3': '0.001',
        '0,5': null,
        abc: null,
        '0x10': null,
        '1e999': null,
        Infinity: null,
      },
    ],
    [readWhole, { '': undefined, 2: '2', '2.0': '2', 2.5: null, two: null, '1e30': null }],
    [
      readFraction,
      { '': undefined, 0.25: '0.25', '1/8': '0.125', '-1 / 4': '-0.25', '1/0': null, '1/': null, '/8': null, '1/8/2': null, '0,5': null },
    ],
    [readList, { '': undefined, 3: '3', '3, 5': '[3, 5]', '3 5': '[3, 5]', '[3]': null, '3, x': null, '1e999': null }],
  ];
  for (const [read, texts] of cases) {
    for (const [text, value] of Object.entries(texts)) {
      assert.equal(read(text), value, `${read.name}: ${text}`);
    }
  }
  for (const text of ['1/sqrt(8)', '1/√8', '1/√(8)', ' 1 / √ 8 ', '1/SQRT( 8 )']) {
    assert.equal(readFraction(text), String(1 / Math.sqrt(8)), text);
  }
  assert.equal(readFraction('1/√(-8)'), null);
  assert.equal(readList('3.5', readWhole), null);
});
