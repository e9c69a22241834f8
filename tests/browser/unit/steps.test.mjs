// steps.test.mjs tests what stands between two matrices of the flow.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { opOf } from '../../../server/explorer/src/steps.js';

test('the step to the masked scores says if nothing is masked', () => {
  for (const [options, shapes, word] of [
    [{}, {}, 'no mask'],
    [{ causal: true }, {}, 'mask'],
    [{ window: [2, 0] }, {}, 'mask'],
    [{}, { mask: [4, 4] }, 'mask'],
    [{ causal: false, softcap: 3 }, { Q: [4, 3] }, 'no mask'],
  ])
    assert.equal(opOf('masked_scores', { path: '/attention', options, shapes }, 0, 3), word);
  assert.equal(opOf('masked_scores', { options: {}, shapes: {} }, 0, 3), 'mask'); // of a stored layer
});
