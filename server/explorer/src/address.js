// address.js keeps the state of the page in the hash of its address, so that a link shows the page as its sender saw it. The hash holds
// the name of an example and how the answer is shown. If the request differs from that of the example, the hash holds the request, too:
// JSON of {path, text, labels}, deflated without a header, in base64url.
// Programs may write the request in plain text instead: body=JSON, perhaps with path=/attention and labels=the,cat,sat.

import { RANGES } from './colour.js';
import { hasHeld, pathFor, PATHS } from './request.js';
import { formatJSON } from './snippets.js';
import { FRESH } from './state.js';
import { STEPS } from './steps.js';

const LONGEST = 60_000; // the most characters of a packed request in an address
const MOST = 4_000_000; // the most characters of a request before it is packed
const MOST_LABELS = 10_000;
const PLACES = ['head', 'layer', 'compare', 'batch', 'row', 'position', 'unseen'];
const TEXTS = ['words', 'off', 'model', 'map']; // of the trained model, and of stored layers
const NUMBERS = [...PLACES, 'threshold'];
const FLAGS = ['log', 'numbers', 'lines', 'mean', 'mass', 'every'];

async function pack(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

async function unpack(packed) {
  if (packed.length > LONGEST) throw new RangeError('longer than any that the page writes');
  const binary = atob(packed.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')).pipeThrough(new TextDecoderStream());
  const reader = stream.getReader();
  let text = '';
  // A few characters may hold very many, so the text is measured while it is unpacked.
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += value;
    if (text.length <= MOST) continue;
    await reader.cancel();
    throw new RangeError('longer than any that the page writes');
  }
}

// Anybody may have made a link, so its request is taken only if the page could have written it.
function checked({ path, text, labels }) {
  if (!PATHS.includes(path) || typeof text !== 'string') throw new TypeError('no request');
  if (labels?.length > MOST_LABELS) throw new RangeError('more labels than the page writes');
  return { path, text, labels: Array.isArray(labels) ? labels.map(String) : [] };
}

// Returns the request that a hash has in plain text.
function plain(hash) {
  const body = JSON.parse(hash.get('body'));
  const labels = hash.get('labels')?.split(',').map((label) => label.trim()); // prettier-ignore
  return { path: hash.get('path') ?? pathFor(body), text: formatJSON(body), labels };
}

// Returns the hash of a state. edited: whether the request differs from that of the example. The hash has no request whose matrices are
// those of files.
export async function toHash(state, edited) {
  const hash = new URLSearchParams();
  if (state.example) hash.set('example', state.example);
  if (edited && !hasHeld(state.text)) {
    const text = JSON.stringify({ path: state.path, text: state.text, labels: state.labels });
    const packed = text.length <= MOST && state.labels.length <= MOST_LABELS ? await pack(text) : null;
    if (packed?.length <= LONGEST) hash.set('request', packed);
  }
  for (const name of NUMBERS) if ((state[name] ?? FRESH[name]) !== FRESH[name]) hash.set(name, state[name]);
  for (const name of FLAGS) if (state[name]) hash.set(name, '');
  for (const name of TEXTS) if (state[name]) hash.set(name, state[name]);
  if (state.step !== 'flow') hash.set('step', state.step);
  if (state.palette !== 'viridis') hash.set('palette', state.palette);
  if (state.range) hash.set('range', state.range);
  return `#${hash}`.replace(/=(?=&|$)/g, '');
}

// Returns the state that a hash holds. Its member `broken` is true if the request in the hash cannot be read.
export async function fromHash(text) {
  const hash = new URLSearchParams(text.replace(/^#/, ''));
  const state = {};
  if (hash.has('example')) state.example = hash.get('example');
  for (const name of NUMBERS) {
    const value = Number(hash.get(name));
    const sound = PLACES.includes(name) ? Number.isInteger(value) : value <= 1;
    if (hash.get(name) && value >= 0 && sound) state[name] = value;
  }
  for (const name of FLAGS) state[name] = hash.has(name);
  for (const name of TEXTS) if (hash.has(name)) state[name] = hash.get(name).slice(0, LONGEST);
  if (STEPS.some(({ name }) => name === hash.get('step')) || hash.get('step') === 'model') state.step = hash.get('step');
  if (state.lines) state.step ??= 'weights'; // lines show the weights, also in links without a step
  if (hash.has('palette')) state.palette = hash.get('palette');
  if (RANGES.includes(hash.get('range'))) state.range = hash.get('range');
  if (hash.has('request') || hash.has('body')) {
    try {
      if (hash.has('body')) Object.assign(state, checked(plain(hash)));
      else Object.assign(state, checked(JSON.parse(await unpack(hash.get('request')))));
    } catch {
      state.broken = true;
    }
  }
  return state;
}
