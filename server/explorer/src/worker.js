// worker.js sends requests, reads answers of any length, and turns answers into matrices and matrices into pixels. It is a worker, so the
// page need not wait for it. It keeps the matrices of the last answer to draw them again. It knows nothing of the page.
import { paintPixels } from './colour.js';
import { members, parse, withMember } from './jsontext.js';
import { matrices, nested, rank, split, vectors } from './matrices.js';
import { complete, drawnWeights, givenWeights, weightOf } from './projections.js';
import { askFor, isHeld, isLarge, isTurned, shapeOf, summarise, wanted, withoutWeights } from './request.js';
import { rollout } from './rollout.js';
import { safetensorsOf } from './safetensors.js';
import { numbersOf } from './tensortext.js';

const JSON_TYPE = 'application/json';
const BINARY = 'application/vnd.safetensors';

const PLAIN_ANSWER = 400_000; // bytes; the page gets an answer of at most so many also as it came
const MOST_EMBEDDED = 200_000; // numbers; larger embeddings are not shown

let kept = {}; // the matrices of the last answer, by name
let running = null; // the AbortController of the latest request

// Reads the body of a response. progress(what) is told how much has come. told: what the page is told of any response.
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
  const retryAfter = Number(response.headers.get('Retry-After')) || 0;
  return { blob: new Blob(pieces), told: { status: response.status, bytes: received, retryAfter } };
}

// Sends a body: a text, or a Blob in the format safetensors. accept: the format of the answer.
async function post({ base, key }, path, body, signal, accept = JSON_TYPE) {
  const headers = { 'Content-Type': typeof body === 'string' ? JSON_TYPE : BINARY, Accept: accept };
  if (key) headers.Authorization = `Bearer ${key}`;
  try {
    return await fetch(base + path.slice(1), { method: 'POST', body, headers, signal, credentials: 'omit' });
  } catch (error) {
    throw error.name === 'AbortError' ? error : Object.assign(error, { unreachable: true });
  }
}

// Resolves to the parsed answer to a request beside the one for attention, or to null if there is none.
async function postAside(message, path, body, signal) {
  const response = await post(message, path, body, signal);
  return response.ok ? response.json() : null;
}

// Returns the body that sends a request: its text, or a file of safetensors if a matrix is held or if there are more tensors. tensors: those
// that are held, by the JSON that stands for them. A file of 16 bits alone would get results of 16 bits, so the type is always given.
function bodyOf(text, tensors, more = []) {
  const metadata = { dtype: '"float32"' };
  const held = [];
  for (const [name, { start, end }] of tensors.size || more.length ? members(text) : []) {
    const value = text.slice(start, end);
    const given = value[0] === '{' && parse(value);
    if (isHeld(given)) held.push({ name, type: given.dtype, shape: given.shape, data: tensors.get(JSON.stringify(given)) });
    else metadata[name] = value;
  }
  return held.length || more.length ? safetensorsOf(metadata, [...held, ...more]) : text;
}

// Reads an answer in the format safetensors, as the same answer in JSON would be read. Its matrices stay in the memory of the answer.
function answerOf(buffer) {
  const start = 8 + new DataView(buffer).getUint32(0, true);
  const { __metadata__: texts = {}, ...tensors } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  const answer = Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, JSON.parse(text)]));
  for (const [path, { dtype, shape, data_offsets: place }] of Object.entries(tensors)) {
    const [begin, end] = place.map((at) => start + at);
    const names = path.split('.');
    const last = names.pop();
    const parent = names.reduce((at, name) => (at[name] ??= {}), answer);
    parent[last] = nested(numbersOf(dtype, new Uint8Array(buffer, begin, end - begin)), shape);
  }
  return answer;
}

// Returns the matrices of Q, K or V. One that lacks axes of the batch is shared by all items. If the columns of the request's matrices hold
// all heads side by side, there is one matrix for each head.
function perHead(name, value, { packed, projected, axes }, body) {
  const whole = matrices(value, projected ? axes : Math.max(rank(value) - (packed ? 2 : 3), 0));
  const heads = name === 'Q' ? body.heads : (body.kv_heads ?? body.heads);
  return packed && heads > 1 ? split(whole, heads) : whole;
}

// Returns the matrices X, context, value_context, Q, K and V that the request itself has, because the answer does not repeat them.
function given(body, summary) {
  const literal = (value) => rank(value) > 1;
  const shown = {};
  for (const name of ['X', 'context', 'value_context']) if (literal(body[name])) shown[name] = matrices(body[name], summary.axes);
  if (summary.projected) return shown;
  if (literal(body.past_state)) shown.past_state = matrices(body.past_state, Math.max(rank(body.past_state) - 3, 0));
  for (const name of ['Q', 'K', 'V']) {
    const value = body[name] ?? body.X;
    if (literal(value)) shown[name] = perHead(name, value, summary, body);
  }
  return shown;
}

// Fetches the rows of X for words with a separate request to /embeddings. Resolves to null if the request draws other numbers before them,
// because the separate request would then draw different numbers.
async function embedded(message, body, signal) {
  const all = members(message.text);
  const table = all?.get('embedding') ?? all?.get('embedding_dim');
  if (!table) return null;
  for (const [key, { start, end }] of all)
    if (key !== 'random' && start < table.start && message.text.slice(start, end).includes('"random"')) return null;
  const request = {};
  for (const key of ['random', 'text', 'tokens', 'embedding', 'embedding_dim', 'dtype']) if (key in body) request[key] = body[key];
  const { embedding } = (await postAside(message, '/embeddings', bodyOf(JSON.stringify(request), message.tensors), signal)) ?? {};
  if (!embedding) return null;
  const shape = [embedding.length, embedding[0].length];
  return shape[0] * shape[1] > MOST_EMBEDDED ? null : { X: matrices(embedding, false), shape };
}

// Fetches the numbers of drawn weight matrices. words: what embedded() gives, or null.
async function drawnProjections(message, body, words, signal) {
  const names = body.embedding_dim && !words ? [] : drawnWeights(body);
  const ask = async (name) => {
    const request = askFor(body, name, words?.shape);
    const answer = request && (await postAside(message, '/attention', JSON.stringify(request), signal));
    return answer && [name, answer.present_K];
  };
  return (await Promise.all(names.map((name) => aside(ask(name))))).filter(Boolean);
}

// Fetches the numbers of a drawn Q, K or V, if the answer does not have them.
async function drawnAs(name, message, body, summary, signal) {
  const request = askFor(body, name);
  const answer = request && (await postAside(message, '/attention', JSON.stringify(request), signal));
  return answer && perHead(name, answer.present_K, summary, body);
}

// Returns the states after each position, as [batch][head][position], and the gates as [batch][head], with a row for each position. Both
// have an axis of heads if the weights have one, but packed gates have all heads side by side.
function ofStates(name, value, { weights }, { axes, packed, options }) {
  const items = axes ? value.flat(axes - 1) : [value];
  if (name === 'decays' && packed) return items.flatMap((item) => split(matrices(item, 0), options.kv_heads ?? options.heads));
  const headed = rank(weights) - axes === 3;
  const ofHead = (head) => matrices(rank(head) === 1 ? Array.from(head, (gate) => [gate]) : head, 0)[0];
  return items.map((item) => (headed ? item : [item]).map((head) => (name === 'states' ? ofHead(head) : ofHead(head)[0])));
}

// Returns the matrices of a gradient, which has the axes of its matrix in the request. A vector is one row.
const ofGradient = (value, { packed, projected }) =>
  rank(value) < 2 ? matrices([value], 0) : matrices(value, Math.max(rank(value) - (packed || projected ? 2 : 3), 0));

function understood(answer, summary, body) {
  const shown = given(body, summary);
  for (const [name, value] of Object.entries(answer)) {
    if (name === 'states' || name === 'decays') shown[name === 'decays' ? 'gates' : name] = ofStates(name, value, answer, summary);
    else if (name === 'entropy' || name === 'lse') shown[name] = vectors(value, summary.axes);
    else if (name === 'present_K' || name === 'present_V') shown[name.at(-1)] = perHead(name.at(-1), value, summary, body);
    else if (name.startsWith('grad_')) {
      if (summary.expected?.includes(name)) shown[name] = ofGradient(value, summary);
    } else if (rank(value) && name !== 'tokens') shown[name] ??= matrices(value, summary.axes);
  }
  const changed = isTurned(body) || ['past_K', 'b_Q', 'b_K'].some((key) => body[key]); // Q or K is not X then
  if (summary.drawn && !('Q' in body) && !changed) {
    shown.Q ??= shown.K;
    if (!summary.packed) shown.X ??= shown.K;
  }
  return shown;
}

const aside = (asked) => asked.catch(() => null);

// The headings that users read in place of the names of statuses of HTTP.
const MEANT = {
  'Bad Request': 'The request cannot be read',
  'Content Too Large': 'The request is too large',
  'Unprocessable Content': 'The request does not fit together',
};

// Returns what a problem document says. The answer may come from a proxy and may not be JSON.
const problemOf = (response, text) => {
  const problem = { title: `HTTP ${response.status}`, detail: response.statusText, ...Object(parse(text)) };
  return { ...problem, title: MEANT[problem.title] ?? problem.title };
};

// Returns the problem of a request that names a matrix which the page does not hold, or null.
function missing(body, tensors) {
  const [name, value] = Object.entries(body).find(([, one]) => isHeld(one) && !tensors.has(JSON.stringify(one))) ?? [];
  if (!name) return null;
  const detail = `The page holds the files that were opened since it was loaded, and none of them has this tensor, type and shape. Open ${value.file} again, and it becomes ${name}.`;
  return { title: `The page does not have ${value.file}`, detail, pointer: `/${name}` };
}

async function compute(message) {
  const { id, path, text, tensors, as } = message;
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
  // The page itself shows what is wrong, so the service need not refuse it.
  const plain = withMember(text, 'fail_on_difference', undefined);
  const sent = summary ? withMember(plain, 'return', JSON.stringify(list)) : text;
  const problem = summary && missing(body, tensors);
  if (problem) return self.postMessage({ id, status: 0, problem, summary, sent });
  const whole = bodyOf(sent, summary ? tensors : new Map());
  progress({ phase: 'computing', sending: whole.size ?? whole.length });
  const started = performance.now();
  const words = aside(summary?.words && summary.projected && !as ? embedded(message, body, signal) : Promise.resolve(null));
  const names = !summary || summary.projected || as ? [] : summary.options.update ? ['Q', 'K', 'V'] : ['Q'];
  const draws = names.map((name) => aside(drawnAs(name, message, body, summary, signal)));
  const projections = summary?.projected && !as ? words.then((all) => drawnProjections(message, body, all, signal)) : null;
  const response = await post(message, path, whole, signal, summary && isLarge(summary) ? BINARY : JSON_TYPE);
  const { blob, told } = await read(response, progress);
  const reply = {
    ...{ ...told, id, summary, milliseconds: performance.now() - started },
    timing: response.headers.get('Server-Timing'),
    sent: sent.length < 4_000_000 ? sent : null,
  };
  if (!response.ok) return self.postMessage({ ...reply, problem: problemOf(response, await blob.text()) });
  const none = withoutWeights(summary);
  if (none) return self.postMessage({ ...reply, problem: { title: 'The answer has no weights', ...none } });
  progress({ phase: 'reading' });
  const isText = response.headers.get('Content-Type') !== BINARY;
  const answer = isText ? JSON.parse(await blob.text()) : answerOf(await blob.arrayBuffer());
  for (const [name, value] of Object.entries(body)) {
    if (!isHeld(value)) continue;
    const bytes = new Uint8Array(await tensors.get(JSON.stringify(value)).arrayBuffer());
    body[name] = nested(numbersOf(value.dtype, bytes, name), value.shape);
  }
  const found = understood(answer, summary, body);
  const embedding = await words;
  found.X = embedding?.X ?? found.X;
  for (const [at, name] of names.entries()) found[name] = (await draws[at]) ?? found[name];
  if (projections) {
    const heads = (found.scores ?? found.weights)[0].length;
    Object.assign(found, givenWeights(body, heads));
    for (const [name, value] of await projections) found[name] = weightOf(name, value, body, heads);
  }
  complete(found, body, summary);
  for (const name of ['X', 'Q', 'K', 'V', 'W_Q', 'W_K', 'W_V', 'W_O']) if (!found[name]) delete found[name];
  signal.throwIfAborted();
  if (as) kept[as] = found.weights;
  else kept = found;
  const copies = structuredClone(found);
  const buffers = new Set();
  for (const groups of Object.values(copies)) {
    for (const item of groups.flat(2))
      for (const array of item.data ? [item.data, item.bits, item.largest] : [item]) if (array) buffers.add(array.buffer);
  }
  const small = isText && told.bytes <= PLAIN_ANSWER ? answer : null;
  const shapes = Object.fromEntries(Object.entries(answer).map(([name, value]) => [name, shapeOf(value)]));
  const extra = { statistics: answer.statistics, tokens: answer.tokens, shapes, answer: small };
  self.postMessage({ ...reply, ...extra, matrices: copies }, [...buffers]);
}

// Asks the service to compare its results with those of a user's own program, and posts its verdict. expected: tensors whose names begin
// with `expected.`, and whose data are bytes.
async function judge({ id, path, text, tensors, expected, ...server }) {
  const own = [...members(text).keys()].filter((key) => /^(expected|fail_on_difference)\b/.test(key));
  const asked = own.reduce((made, key) => withMember(made, key, undefined), text);
  const body = bodyOf(withMember(asked, 'return', '["comparison"]'), tensors, expected);
  const response = await post(server, path, body);
  const found = await response.text();
  self.postMessage({ id, ...(response.ok ? JSON.parse(found) : { problem: problemOf(response, found) }) });
}

// Asks for the weights of stored layers, and posts them with their rollout, as matrices [batch][head]. stored: {body, batched, summary}: the
// hidden states as a Blob in the format safetensors, whether each layer has several batch items, and the summary of a request for all
// results of one layer, whose matrices are posted then.
async function askLayers({ id, path, stored: { body, batched, summary }, ...server }) {
  const started = performance.now();
  const response = await post(server, path, await body.arrayBuffer());
  const { blob, told } = await read(response, () => {});
  const text = await blob.text();
  const reply = { ...told, id, summary };
  if (!response.ok) return self.postMessage({ ...reply, problem: problemOf(response, text) });
  const answer = JSON.parse(text);
  if (summary) return self.postMessage({ ...reply, matrices: understood(answer, summary, {}), statistics: answer.statistics });
  const layers = (answer.layers ?? [answer]).map(({ name, weights }) => ({ name, weights: matrices(weights, Number(batched)) }));
  const rollouts = layers[0].weights.map((_, batch) => rollout(layers.map(({ weights }) => weights[batch])));
  self.postMessage({ ...reply, layers, rollouts, milliseconds: performance.now() - started });
}

// Draws a part of a kept matrix and posts it as a picture. The picture is `gone` if a later answer does not have this matrix.
function draw({ id, name, batch, head, mask, scale, part, side }) {
  const matrix = kept[name]?.[batch]?.[head];
  if (!matrix) return self.postMessage({ id, gone: true });
  const shown = { ...matrix, mask: mask ? kept[mask]?.[batch]?.[head]?.bits : null };
  const made = paintPixels(new OffscreenCanvas(1, 1), shown, scale, part, side);
  const bitmap = made.bitmap.transferToImageBitmap();
  self.postMessage({ ...made, id, bitmap }, [bitmap]);
}

self.onmessage = async ({ data: message }) => {
  try {
    if (message.part) draw(message);
    else if (message.stored) await askLayers(message);
    else if (message.expected) await judge(message);
    else if (message.saved) self.postMessage({ id: message.id, body: bodyOf(message.text, message.tensors) });
    else await compute(message);
  } catch (error) {
    const gone = error.name === 'AbortError';
    self.postMessage(gone ? { id: message.id, gone } : { id: message.id, failure: error.message, unreachable: error.unreachable });
  }
};
