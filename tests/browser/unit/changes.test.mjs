// What the page says of an example that was edited.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changes } from '../../../server/explorer/src/changes.js';

const then = { path: '/attention', body: { Q: [[1, 2]], text: 'a b', causal: true } };
const after = (change, path = then.path) => changes({ path, body: { ...then.body, ...change } }, then);

test('what was edited is said, with what the notebook has; what means the same is not', () => {
  assert.equal(after({}), '');
  assert.equal(after({ scale: undefined, alibi: false, dtype: 'float32' }), '');
  assert.equal(after({ causal: false }), 'Edited: causal is off here; the notebook has it on.');
  assert.equal(after({ causal: undefined }), 'Edited: causal is off here; the notebook has it on.');
  assert.equal(after({ causal: 'bottom_right' }), 'Edited: causal is bottom right here; the notebook has it on.');
  assert.equal(after({ scale: 2 }), 'Edited: scale is 2 here; the notebook has 1/√d.');
  assert.equal(after({ window: [1, 0] }), 'Edited: window is [1, 0] here; the notebook has none.');
  assert.equal(after({ mask: [[1]] }), 'Edited: mask is set here; the notebook has none.');
  assert.equal(after({ Q: [[1, 3]] }), 'Edited: Q is another than the notebook’s.');
  assert.equal(after({ Q: undefined }), 'Edited: Q is left out here.');
  assert.equal(after({ text: 'c' }), 'Edited: the sentence is another.');
  assert.equal(after({}, '/self-attention'), 'Edited: it is asked of /self-attention; the notebook’s of /attention.');
  const many = after({ causal: false, scale: 2, softcap: 3, sink: 1, digits: 3 });
  assert.match(many, /and 2 more changes\.$/);
  assert.equal(changes({ path: then.path, body: undefined }, then), '');
});
