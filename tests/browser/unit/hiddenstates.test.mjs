// hiddenstates.test.mjs tests which words may be hidden, how layers are called, and what the page says of their output.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isSpecial, layerRequest, linesOf } from '../../../server/explorer/src/hiddenstates.js';
import { formulaOf } from '../../../server/explorer/src/steps.js';

test('words that a tokenizer adds are special, and words that stand for the text are not', () => {
  for (const word of ['[CLS]', '[SEP]', '[PAD]', '<s>', '</s>', '<pad>', '<bos>', '<|endoftext|>', '<|begin_of_text|>']) {
    assert.equal(isSpecial(word), true, word);
  }
  for (const word of [
    '[MASK]',
    '[UNK]',
    '<mask>',
    '<unk>',
    '<0x0A>',
    'cat',
    '[1]',
    '[cat]',
    '[',
    '<',
    '>',
    '< s >',
    '##s',
    'Ġ<s>',
    '▁the',
  ]) {
    assert.equal(isSpecial(word), false, word);
  }
});

test('layers are called by their numbers, and by their places where these do not tell them apart', () => {
  assert.deepEqual(linesOf(['.layers.3.self_attn', '.layers.7.self_attn']), ['layer 3', 'layer 7']);
  assert.deepEqual(linesOf(['.encoder.layer.0.a', '.decoder.layer.0.a']), ['layer 0', 'layer 1']);
  assert.deepEqual(linesOf(['.block.4.layer.0.a']), ['layer 0']);
  assert.deepEqual(linesOf(['.attention']), ['layer 0']);
});

test('the output of a layer with a gate has its sigmoid', () => {
  const file = { X: { shape: [2, 4], dtype: 'float32', name: 'X', data: new Blob([new Float32Array(8)]) }, options: [] };
  file.tensors = [file.X];
  const of = (gate) => formulaOf({ name: 'output' }, layerRequest(file, null, { gate, d_model: 4 }).summary);
  assert.match(of(true), /σ/);
  assert.doesNotMatch(of(false), /σ/);
});
