// hiddenstates.js reads a .safetensors file with hidden states, the vectors that go into the layers of a model, and makes the request for
// the weights of all heads. It needs no page.
//
// The file has a tensor X: (n, d_model) for one layer, or with an axis of layers before these two, and perhaps one of the batch between
// them. In __metadata__, `model` names the model and `words` has a JSON list of n words. All other tensors and texts are options of the
// request, such as a mask.
import { readSafetensors } from './safetensors.js';
import { fail, shapeText } from './tensortext.js';

const ROOM = 1_000_000; // bytes of a header
const DIGITS = 5; // significant digits of the weights; more cannot be seen, and take longer
const OWN = ['words', 'model', 'format', 'return', 'digits']; // texts that are no options of the request

function wordsOf(text, n) {
  if (text === undefined) return { words: null, note: '' };
  let words;
  try {
    words = JSON.parse(text);
  } catch {
    fail('In __metadata__, words is no JSON.');
  }
  if (!Array.isArray(words) || !words.every((word) => typeof word === 'string')) fail('In __metadata__, words is no list of strings.');
  return words.length === n ? { words, note: '' } : { words: null, note: ` The file has ${words.length} words for ${n} rows of X.` };
}

// Reads a file, a Blob. Resolves to {X, model, words, note, tensors, options}. X is a tensor (tensortext.js). model and words are null if
// the file does not say them. note: a sentence about words that do not fit. Throws an Error with a sentence.
export async function readHiddenStates(file) {
  const found = await readSafetensors(file, ROOM);
  if (!found) fail(`Its header has more than ${ROOM / 1e6} MB, which is too much for this page.`);
  const { tensors } = found;
  const texts = new Map(found.metadata);
  const X = tensors.find(({ name }) => name === 'X');
  if (!X) fail('It has no tensor X, the hidden states.');
  if (X.shape.length < 2 || X.shape.length > 4 || X.shape.includes(0)) {
    fail(`X has the shape ${shapeText(X.shape)}. Hidden states are (layers, n, d_model), (layers, batch, n, d_model) or (n, d_model).`);
  }
  const options = found.metadata.filter(([name]) => !OWN.includes(name));
  return { X, model: texts.get('model') ?? null, ...wordsOf(texts.get('words'), X.shape.at(-2)), tensors, options };
}

// Returns the body of the request for the weights, a Blob in the format safetensors.
export function weightsRequest({ tensors, options }) {
  let end = 0;
  const place = (size) => [end, (end += size)];
  const entries = tensors.map(({ name, type, shape, data }) => [name, { dtype: type, shape, data_offsets: place(data.size) }]);
  const metadata = { ...Object.fromEntries(options), return: '["weights"]', digits: String(DIGITS) };
  const text = new TextEncoder().encode(JSON.stringify({ __metadata__: metadata, ...Object.fromEntries(entries) }));
  const size = new DataView(new ArrayBuffer(8));
  size.setBigUint64(0, BigInt(text.length), true);
  return new Blob([size, text, ...tensors.map(({ data }) => data)]);
}
