// worker.js sends requests, reads answers of any length, and turns answers into matrices and matrices into pixels. It is a worker, so the
// page need not wait for it. It keeps the matrices of the last answer to draw them again. It knows nothing of the page.
import { raster } from './colour.js';
import { members, parse, withMember } from './jsontext.js';
import { matrices, rank, split, vectors } from './matrices.js';
import { askFor, summarise, wanted } from './request.js';
import { rollout } from './rollout.js';

const PLAIN_ANSWER = 400_000; // characters; the page gets an answer of at most so many also as it came
const MOST_EMBEDDED = 200_000; // numbers; larger embeddings are not shown

let kept = {}; // the matrices of the last answer, by name
let running = null; // the AbortController of the latest request

// Reads the body of a response. progress(what) is told how much has come.
async function read(response, progress) {
  const total = Number(response.headers.get('Content-Length')) || 0;
  const reader = response.body.getReader();
  const pieces = [];
  let received = 0;
  for (let told = 0; ;) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    received += value.length;
    if (received - told > 65_536) {
      told = received;
      progress({ phase: 'receiving', received, total });
    }
  }
  return { text: await new Blob(pieces).text(), received };
}

async function post(base, path, body, key, signal, type = 'application/json') {
  const headers = { 'Content-Type': type, Accept: 'application/json' };
  if (key) headers.Authorization = `Bearer ${key}`;
  try {
    return await fetch(base + path.slice(1), { method: 'POST', body, headers, signal, credentials: 'omit' });
  } catch (error) {
    throw error.name === 'AbortError' ? error : Object.assign(error, { unreachable: true });
  }
}

// Splits matrices whose columns hold all heads side by side into one matrix for each head, if the request has such matrices.
const perHead = (whole, summary, heads) => (summary.packed && heads > 1 ? split(whole, heads) : whole);

// Returns the matrices of Q, K or V. One that lacks axes of the batch is shared by all items.
function shared(value, { packed }) {
  return matrices(value, Math.max(rank(value) - (packed ? 2 : 3), 0));
}

// Returns the matrices X, context, Q, K and V that the request itself has, because the answer does not repeat them.
function given(body, summary) {
  const literal = (value) => Array.isArray(value) && Array.isArray(value[0]);
  const shown = {};
  if (summary.projected) {
    for (const name of ['X', 'context']) {
      if (literal(body[name])) shown[name] = matrices(body[name], summary.axes);
    }
    return shown;
  }
  if (literal(body.X)) shown.X = matrices(body.X, summary.axes);
  if (literal(body.past_state)) shown.past_state = matrices(body.past_state, Math.max(rank(body.past_state) - 3, 0));
  for (const name of ['Q', 'K', 'V']) {
    const value = body[name] ?? body.X;
    const heads = name === 'Q' ? body.heads : (body.kv_heads ?? body.heads);
    if (literal(value)) shown[name] = perHead(shared(value, summary), summary, heads);
  }
  return shown;
}

// Fetches the rows of X for words with a separate request to /embeddings. Resolves to null if the request draws other numbers before them,
// because the separate request would then draw different numbers.
async function embedded(message, body, signal) {
  const all = members(message.text);
  const table = all?.get('embedding') ?? all?.get('embedding_dim');
  if (!table) return null;
  for (const [key, { start, end }] of all) {
    if (key !== 'random' && start < table.start && message.text.slice(start, end).includes('"random"')) return null;
  }
  const request = {};
  for (const key of ['random', 'text', 'tokens', 'embedding', 'embedding_dim', 'dtype']) {
    if (key in body) request[key] = body[key];
  }
  const response = await post(message.base, '/embeddings', JSON.stringify(request), message.key, signal);
  if (!response.ok) return null;
  const { ids, embedding } = await response.json();
  if (ids.length * embedding[0].length > MOST_EMBEDDED) return null;
  return matrices(
    ids.map((id) => embedding[id]),
    false,
  );
}

// Fetches the numbers of a drawn Q, K or V, if the answer does not have them.
async function drawnAs(name, message, body, summary, signal) {
  const request = askFor(body, name);
  if (!request) return null;
  const response = await post(message.base, '/attention', JSON.stringify(request), message.key, signal);
  if (!response.ok) return null;
  const { present_K } = await response.json();
  return perHead(shared(present_K, summary), summary, name === 'Q' ? body.heads : (body.kv_heads ?? body.heads));
}

// Returns the states after each position, as [batch][head][position], and the gates as [batch][head], with a row for each position. Both
// have an axis of heads if the weights have one, but packed gates have all heads side by side.
function ofStates(name, value, { weights }, { axes, packed, options }) {
  const items = axes ? value.flat(axes - 1) : [value];
  if (name === 'decays' && packed) return items.flatMap((item) => split(matrices(item, 0), options.kv_heads ?? options.heads));
  const headed = rank(weights) - axes === 3;
  const ofHead = (head) => matrices(rank(head) === 1 ? head.map((gate) => [gate]) : head, 0)[0];
  return items.map((item) => (headed ? item : [item]).map((head) => (name === 'states' ? ofHead(head) : ofHead(head)[0])));
}

// Returns all matrices of a request and its answer, by name.
function understood(answer, summary, body) {
  const shown = given(body, summary);
  for (const [name, value] of Object.entries(answer)) {
    if (name === 'states' || name === 'decays') {
      shown[name === 'decays' ? 'gates' : name] = ofStates(name, value, answer, summary);
    } else if (name === 'entropy' || name === 'lse') {
      shown[name] = vectors(value, summary.axes);
    } else if (name === 'present_K' || name === 'present_V') {
      shown[name.at(-1)] = perHead(shared(value, summary), summary, body.kv_heads ?? body.heads);
    } else if (Array.isArray(value) && name !== 'tokens' && name !== 'grad_V') {
      if (!(name in shown) || summary.projected) shown[name] ??= matrices(value, summary.axes);
    }
  }
  if (summary.drawn && !('Q' in body)) {
    shown.Q ??= shown.K;
    if (!summary.packed) shown.X ??= shown.K;
  }
  return shown;
}

// Returns what a problem document says. The answer may come from a proxy and may not be JSON.
const problemOf = (response, text) => ({ title: `HTTP ${response.status}`, detail: response.statusText, ...Object(parse(text)) });

// Sends a request, and posts its answer with the matrices.
async function compute(message) {
  const { id, base, path, text, key, as } = message;
  const control = new AbortController();
  const { signal } = control;
  if (!as) {
    running?.abort();
    running = control;
  }
  const progress = (what) => self.postMessage({ id, progress: what });
  const body = parse(text);
  const isObject = body && typeof body === 'object' && !Array.isArray(body);
  const summary = isObject ? summarise(path, body) : null;
  const list = message.results ?? (summary && wanted(summary));
  const sent = summary ? withMember(text, 'return', JSON.stringify(list)) : text;
  progress({ phase: 'computing', sending: sent.length });
  const started = performance.now();
  const aside = (asked) => asked.catch(() => null);
  const words = summary?.words && summary.projected ? aside(embedded(message, body, signal)) : null;
  const names = !summary || summary.projected || as ? [] : summary.options.update ? ['Q', 'K', 'V'] : ['Q'];
  const draws = names.map((name) => aside(drawnAs(name, message, body, summary, signal)));
  const response = await post(base, path, sent, key, signal);
  const received = await read(response, progress);
  const reply = {
    id,
    status: response.status,
    retryAfter: Number(response.headers.get('Retry-After')) || 0,
    timing: response.headers.get('Server-Timing'),
    milliseconds: performance.now() - started,
    bytes: received.received,
    summary,
    sent: sent.length < 4_000_000 ? sent : null,
  };
  if (!response.ok) {
    self.postMessage({ ...reply, problem: problemOf(response, received.text) });
    return;
  }
  progress({ phase: 'reading' });
  const answer = JSON.parse(received.text);
  const found = understood(answer, summary, body);
  found.X = (await words) ?? found.X;
  for (const [at, name] of names.entries()) found[name] = (await draws[at]) ?? found[name];
  for (const name of ['X', 'Q', 'K', 'V']) if (!found[name]) delete found[name];
  signal.throwIfAborted();
  if (as) kept[as] = found.weights;
  else kept = found;
  const copies = structuredClone(found);
  const buffers = new Set();
  for (const groups of Object.values(copies)) {
    for (const item of groups.flat(2)) {
      for (const array of item.data ? [item.data, item.bits, item.largest] : [item]) if (array) buffers.add(array.buffer);
    }
  }
  const plain = received.text.length <= PLAIN_ANSWER ? answer : null;
  const extra = { statistics: answer.statistics, tokens: answer.tokens, answer: plain };
  self.postMessage({ ...reply, ...extra, matrices: copies }, [...buffers]);
}

// Asks for the weights of stored layers, and posts them with their rollout. stored: {body, batched}: the hidden states as a Blob in the
// format safetensors, and whether each layer has several batch items. The weights are matrices as [batch][head].
async function askLayers({ id, base, path, key, stored: { body, batched } }) {
  const started = performance.now();
  const response = await post(base, path, await body.arrayBuffer(), key, undefined, 'application/vnd.safetensors');
  const { text, received } = await read(response, () => {});
  const reply = { id, status: response.status, retryAfter: Number(response.headers.get('Retry-After')) || 0, bytes: received };
  if (!response.ok) return self.postMessage({ ...reply, problem: problemOf(response, text) });
  const answer = JSON.parse(text);
  const layers = (answer.layers ?? [answer]).map(({ name, weights }) => ({ name, weights: matrices(weights, Number(batched)) }));
  const rollouts = layers[0].weights.map((_, batch) => rollout(layers.map(({ weights }) => weights[batch])));
  self.postMessage({ ...reply, layers, rollouts, milliseconds: performance.now() - started });
}

// Draws a part of a kept matrix and posts it as a picture. The picture is `gone` if a later answer does not have this matrix.
function draw({ id, name, batch, head, mask, scale, part, side }) {
  const matrix = kept[name]?.[batch]?.[head];
  if (!matrix) return self.postMessage({ id, gone: true });
  const shown = { ...matrix, mask: mask ? kept[mask]?.[batch]?.[head]?.bits : null };
  const { width, height, pixels } = raster(shown, scale, part, side);
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext('2d').putImageData(new ImageData(pixels, width, height), 0, 0);
  const bitmap = canvas.transferToImageBitmap();
  self.postMessage({ id, bitmap, width, height }, [bitmap]);
}

self.onmessage = async ({ data: message }) => {
  try {
    if (message.part) draw(message);
    else if (message.stored) await askLayers(message);
    else await compute(message);
  } catch (error) {
    const gone = error.name === 'AbortError';
    self.postMessage(gone ? { id: message.id, gone } : { id: message.id, failure: error.message, unreachable: error.unreachable });
  }
};
