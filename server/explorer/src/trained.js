// trained.js has the trained model (server/models/story.safetensors): two layers that have attention and nothing else. The server computes
// the attention of each layer. This module does the rest: it finds the rows of typed words, adds to them what each layer answers, and
// multiplies the sum by the unembedding. It needs no page.
/* global STORY_NAME */
import { matrices, rowOf } from './matrices.js';
import { readSafetensors } from './safetensors.js';
import { fail, numbersOf } from './tensortext.js';

const NAME = 'story'; // of the model on the server; its layers are story.0 and story.1
const PARTS = ['W_Q', 'W_K', 'W_V', 'W_O'];

const rowsOf = (matrix) => Array.from({ length: matrix.rows }, (_, row) => [...rowOf(matrix, row)]);

// Reads the file of the model, a Blob. Resolves to the model: {words, heads, names, places, layers, embedding, positions, unembedding}.
// words: all words that it knows. names: for each layer the name of each head, which says what it does. places: how many words a text may
// have. layers: for each layer {W_Q, W_K, W_V, W_O}, each (d_model, d_model). embedding and unembedding (words, d_model), positions (places,
// d_model). A matrix is {rows, cols, data}.
export async function readTrained(file) {
  const { metadata, tensors } = await readSafetensors(file, file.size);
  const texts = Object.fromEntries(metadata);
  const all = {};
  for (const { name, type, shape, data } of tensors) {
    const [rows, cols] = shape;
    all[name] = { rows, cols, data: Float64Array.from(numbersOf(type, new Uint8Array(await data.arrayBuffer()), name)) };
  }
  const { embedding, positions, unembedding } = all;
  const layers = [0, 1].map((layer) => Object.fromEntries(PARTS.map((part) => [part, all[`${layer}.${part}`]])));
  const [words, names] = [texts.words, texts.names].map((text) => JSON.parse(text));
  return { words, names, heads: Number(texts.heads), places: positions.rows, layers, embedding, positions, unembedding };
}

// Resolves to the model that the page's own server has beside this script.
export const loadTrained = async () => readTrained(await (await fetch(new URL(STORY_NAME, import.meta.url))).blob());

const WORD = /([\p{L}\p{N}'’-]+|\S)/u; // a word, or a mark
// Returns a text with “did not” for “didn’t”, and without characters that nobody sees.
const plain = (text) => text.replace(/\p{Cf}/gu, '').replace(/(?<!\b(?:ca|wo))n['’]t\b/gi, ' not');

// Splits typed text into words of the model; the case of letters does not matter. Returns {words, unknown, left}.
// words: those that the model can take, as it writes them. unknown: words and marks that it does not know; the model gets none of them. left:
// how many of the known words are too many; they are not in `words`.
export function wordsOf(model, text) {
  const known = new Map(model.words.map((word) => [word.toLowerCase(), word]));
  const typed = plain(text).match(new RegExp(WORD, 'gu')) ?? [];
  const words = typed.map((word) => known.get(word.toLowerCase())).filter(Boolean);
  const unknown = typed.filter((word) => !known.has(word.toLowerCase()));
  return { words: words.slice(0, model.places), unknown, left: Math.max(0, words.length - model.places) };
}

// Writes another word in the place of one, wherever it stands in a text.
export const replaceWord = (text, word, other) => plain(text).split(WORD).map((part) => (part === word ? other : part)).join(''); // prettier-ignore

// Returns how many letters must be put in, taken out or replaced to make a word of another.
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (const letter of a) {
    const next = [row[0] + 1];
    for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (letter !== b[j - 1])));
    row = next;
  }
  return row[b.length];
}

// Returns up to `count` words of the model that are written nearly like a word, the nearest first. At most a third of the letters differ.
export function nearWords(model, word, count = 3) {
  const isNear = (known, far) => 3 * far <= Math.max(word.length, known.length);
  const found = model.words
    .filter((known) => isNear(known, Math.abs(word.length - known.length)))
    .map((known) => ({ known, far: distance(word.toLowerCase(), known.toLowerCase()) }))
    .filter(({ known, far }) => isNear(known, far));
  found.sort((a, b) => a.far - b.far);
  return found.slice(0, count).map(({ known }) => known);
}

// Says whether a server has the layers of this model. listed: the layers of the answer to GET /layers. An operator may serve other folders.
export const isStored = (model, listed) =>
  model.layers.every((_, layer) => {
    const { heads, d_model: columns, causal } = listed.find(({ name }) => name === `${NAME}.${layer}`) ?? {};
    return heads === model.heads && columns === model.embedding.cols && causal;
  });

// Returns the request of a layer, {path, body}. X: (n, d_model), as rows. off: the heads of this layer that are switched off. hidden: a word
// that no other word sees, or null. stored: whether the server has the layer; if not, the request has the weights. A head that is switched
// off may attend to nothing, so its output is zeros.
export function requestOf(model, layer, X, { off = [], hidden = null, stored = true } = {}) {
  const body = { X, return: ['output', 'weights'] };
  const seen = (head) => X.map((_, i) => X.map((_, j) => !off.includes(head) && (j !== hidden || i === j)));
  if (off.length || hidden !== null) body.mask = Array.from({ length: model.heads }, (_, head) => seen(head));
  if (stored) return { path: `/layers/${NAME}.${layer}/attention`, body };
  for (const part of PARTS) body[part] = rowsOf(model.layers[layer][part]);
  return { path: '/multi-head-attention', body: { ...body, heads: model.heads, causal: true } };
}

// Returns how likely each word of the model comes after a row of the last sums, the most likely one first: [{word, probability}]. The
// temperature divides the scores of the words: below 1 the model is more sure, above 1 less.
export function nextOf({ words, unembedding: { cols, data } }, row, temperature = 1) {
  const scores = words.map((_, word) => row.reduce((total, value, c) => total + value * data[word * cols + c], 0) / temperature);
  const most = Math.max(...scores);
  const all = scores.map((score) => Math.exp(score - most));
  const total = all.reduce((a, b) => a + b);
  return words.map((word, at) => ({ word, probability: all[at] / total })).sort((a, b) => b.probability - a.probability);
}

// Runs the model. words: 1 to model.places words of the model. post(path, body) resolves to the parsed answer of the server, as that of
// client.js. off: the heads that are switched off, as [[layer, head]]. hidden: as in requestOf(). Resolves to {words, layers: [{X, weights,
// off}], sums}. X: (n, d_model), what goes into the layer, as rows. weights: a matrix of each head, all zeros for one that is off. sums:
// (n, d_model), what leaves the last layer; nextOf() says what the model expects after a row. Throws what post() throws.
export async function runTrained(model, words, post, { off = [], hidden = null, stored = true } = {}) {
  const { embedding, positions } = model;
  const ids = words.map((word) => model.words.indexOf(word));
  if (!words.length || words.length > model.places || ids.includes(-1)) fail(`The model takes 1 to ${model.places} of its own words.`);
  let X = ids.map((id, place) => Array.from(rowOf(positions, place), (value, c) => value + embedding.data[id * embedding.cols + c]));
  const layers = [];
  for (let layer = 0; layer < model.layers.length; layer++) {
    const without = off.filter(([where]) => where === layer).map(([, head]) => head);
    const { path, body } = requestOf(model, layer, X, { off: without, hidden, stored });
    const { output, weights } = await post(path, body);
    layers.push({ X, weights: matrices(weights, 0)[0], off: without });
    X = X.map((values, i) => values.map((value, c) => value + output[i][c]));
  }
  return { words, layers, sums: X };
}
