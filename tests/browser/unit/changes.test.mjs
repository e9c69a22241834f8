// changes.test.mjs tests the note about an example that the user has edited.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changes } from '../../../server/explorer/src/changes.js';

const then = { path: '/attention', body: { Q: [[1, 2]], text: 'a b', causal: true } };
const after = (change, path = then.path) => changes({ path, body: { ...then.body, ...change } }, then);

test('what was edited is said, with what the notebook has; what means the same is not', () => {
  assert.equal(after({}), '');
  assert.equal(after({ scale: undefined, alibi: false, dtype: 'float32' }), '');
  assert.equal(after({ causal: false }), 'Edited: causal is off; in the notebook it is on.');
  assert.equal(after({ causal: undefined }), 'Edited: causal is off; in the notebook it is on.');
  assert.equal(after({ causal: 'bottom_right' }), 'Edited: causal is bottom right; in the notebook it is on.');
  assert.equal(after({ scale: 2 }), 'Edited: scale is 2; in the notebook it is 1/√d.');
  assert.equal(after({ window: [1, 0] }), 'Edited: window is [1, 0]; the notebook does not set it.');
  assert.equal(after({ mask: [[1]] }), 'Edited: mask is set; the notebook does not set it.');
  assert.equal(after({ Q: [[1, 3]] }), 'Edited: Q is not the notebook’s.');
  assert.equal(after({ Q: undefined }), 'Edited: Q is left out.');
  assert.equal(after({ text: 'c' }), 'Edited: the sentence is different.');
  assert.equal(after({}, '/self-attention'), 'Edited: the path is /self-attention; in the notebook it is /attention.');
  const many = after({ causal: false, scale: 2, softcap: 3, sink: 1, digits: 3 });
  assert.match(many, /2 more changes\.$/);
  assert.equal(changes({ path: then.path, body: undefined }, then), '');
});
