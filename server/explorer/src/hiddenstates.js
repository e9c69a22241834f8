// hiddenstates.js reads a .safetensors file with hidden states, the vectors that go into the layers of a model, and makes the requests for
// the weights of all heads and for all results of one layer. It needs no page.
//
// The file has a tensor X: (n, d_model) for one layer, or with an axis of layers before these two, and perhaps one of the batch between
// them. In __metadata__, `model` names the model and `words` has a JSON list of n words. All other tensors and texts are options of the
// request, such as a mask.
import { parse } from './jsontext.js';
import { wanted } from './request.js';
import { readSafetensors, safetensorsOf } from './safetensors.js';
import { fail, shapeText } from './tensortext.js';

const ROOM = 1_000_000; // bytes of a header
const DIGITS = 5; // significant digits of the weights; more cannot be seen, and take longer
// Words that a tokenizer adds, such as [CLS] and </s>. [MASK], [UNK] and bytes such as <0x0A> stand for words of the text.
const SPECIAL = /^(\[(?!MASK|UNK)[A-Z]+\]|<(?!mask|unk|0x)[^<>\s]+>)$/;
const OWN = ['words', 'model', 'format', 'return', 'digits']; // texts that are no options of the request

// Returns whether a tensor is of a captured file (tests/models/transformers_attention.py), which has no hidden states.
export const isCaptured = ({ name }) => /^Q\.(0|[1-9]\d{0,5})$/.test(name);

// Returns the words of n rows and m columns, or null with a note.
export function wordsOf(text, n, of = 'X', m = n) {
  if (text === undefined) return { words: null, note: '' };
  const words = parse(text) ?? fail('In __metadata__, words is no JSON.');
  if (!Array.isArray(words) || !words.every((word) => typeof word === 'string')) fail('In __metadata__, words is no list of strings.');
  if (words.length === n && n === m) return { words, note: '' };
  return { words: null, note: ` The file has ${words.length} words for ${n} rows of ${of}${n === m ? '' : ` and ${m} of K`}.` };
}

// Reads a file, a Blob. Resolves to {captured: true}, or to {X, model, words, note, tensors, options}. X is a tensor (tensortext.js). model
// and words are null if the file does not say them. note: a sentence about words that do not fit. Throws an Error with a sentence.
export async function readHiddenStates(file) {
  const { metadata, tensors } = await readSafetensors(file, ROOM);
  const texts = new Map(metadata);
  if (tensors.some(isCaptured)) return { captured: true };
  const X = tensors.find(({ name }) => name === 'X');
  if (!X) fail('It has no tensor X, the hidden states.');
  if (X.shape.length < 2 || X.shape.length > 4 || X.shape.includes(0))
    fail(`X has the shape ${shapeText(X.shape)}. Hidden states are (layers, n, d_model), (layers, batch, n, d_model) or (n, d_model).`);
  const options = metadata.filter(([name]) => !OWN.includes(name));
  return { X, model: texts.get('model') ?? null, ...wordsOf(texts.get('words'), X.shape.at(-2)), tensors, options };
}

export const isSpecial = (word) => SPECIAL.test(word);

// Returns what the page calls layers: by their numbers if each name has one of its own, otherwise by their places. names: those of the
// layers without that of their model.
export function linesOf(names) {
  const numbers = names.map((name) => name.match(/(?<=\.)\d+(?=\.|$)/g) ?? []);
  const own = new Set(numbers.flat()).size === names.length && numbers.every((found) => found.length === 1);
  return names.map((_, at) => `layer ${own ? numbers[at][0] : at}`);
}

// Returns the body of a request for results, a Blob in the format safetensors.
const bodyOf = (tensors, options, results, more) =>
  safetensorsOf({ ...Object.fromEntries(options), return: JSON.stringify(results), ...more }, tensors);

// Returns the request for the weights: {body, batched}. one: whether it is for one layer and not for a model.
export const weightsRequest = ({ X, tensors, options }, one) => ({
  body: bodyOf(tensors, options, ['weights'], { digits: String(DIGITS) }),
  batched: X.shape.length - (one ? 0 : 1) === 3,
});

// Returns the request for all results of one layer: {body, batched, summary}. at: the place of the layer along the first axis of X, or null
// if X has no such axis. listed: the layer as the list of layers has it.
export function layerRequest({ X, tensors, options }, at, { scale, softcap, sink, gate, d_model }) {
  const size = X.data.size / X.shape[0];
  const part = at === null ? X : { ...X, shape: X.shape.slice(1), data: X.data.slice(at * size, (at + 1) * size) };
  const given = tensors.map((tensor) => (tensor === X ? part : tensor));
  const own = Object.entries({ scale, softcap, sink }).filter(([, value]) => value);
  const summary = {
    ...{ options: Object.fromEntries([...own, ...options.map(([name, text]) => [name, parse(text) ?? text])]), projected: true },
    shapes: {
      ...{ W_O: [d_model, d_model], ...(gate && { W_G: [d_model, d_model] }) },
      ...Object.fromEntries(given.map(({ name, shape }) => [name, shape])),
    },
    axes: part.shape.length - 2,
  };
  return { body: bodyOf(given, options, wanted(summary)), batched: summary.axes === 1, summary };
}
