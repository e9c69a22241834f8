// hiddenstates.test.mjs tests which words may be hidden: those that tokenizers add, and none of the text.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isSpecial } from '../../../server/explorer/src/hiddenstates.js';

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
