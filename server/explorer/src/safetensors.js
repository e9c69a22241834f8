// safetensors.js reads .safetensors files with the checks of the format's own reader, and writes them. It needs no page.
import { scan } from './jsontext.js';
import { countOf, fail, shapeText, TYPES } from './tensortext.js';

const PREFIX = 8; // bytes that say how long the header is
const MOST_HEADER = 100_000_000; // bytes, a rule of the format
const MOST_SIZE = 2 ** 48 - 1; // a rule of the format

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const isSize = (value) => Number.isInteger(value) && value >= 0 && value <= MOST_SIZE;

// Refuses names that an object has twice. text: JSON that has been parsed.
function refuseTwins(text, what) {
  const seen = new Map();
  scan(text, 0, (key, start, end) => {
    if (seen.has(key)) fail(`${what} ${key} stands twice in the header.`);
    seen.set(key, text.slice(start, end));
  });
  return seen;
}

function parseHeader(bytes) {
  let [text, header, form] = ['', null, 'UTF-8'];
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    form = 'JSON';
    header = text[0] === '{' && JSON.parse(text);
  } catch {
    fail(`Its header is not ${form}.`);
  }
  if (!header) fail('Its header does not begin with {, so it is no .safetensors file.');
  const metadata = refuseTwins(text, 'The name').get('__metadata__');
  if (isObject(header.__metadata__)) refuseTwins(metadata, 'In __metadata__, the name');
  return header;
}

function checkEntry(name, entry) {
  const { dtype, shape, data_offsets: offsets } = isObject(entry) ? entry : {};
  if (typeof dtype !== 'string') fail(`The tensor ${name} has no dtype.`);
  if (!Object.hasOwn(TYPES, dtype)) fail(`The tensor ${name} has the type ${dtype}. The page reads ${Object.keys(TYPES).join(', ')}.`);
  const sizes = `whole numbers from 0 to ${MOST_SIZE}`;
  if (!Array.isArray(shape) || !shape.every(isSize)) fail(`The shape of the tensor ${name} is no list of ${sizes}.`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    fail(`The data_offsets of the tensor ${name} are not two ${sizes}.`);
  return { name, type: dtype, shape, begin: offsets[0], end: offsets[1] };
}

// Checks that the tensors lie one after the other, that each has the bytes of its shape, and that they end where the file ends.
function checkPlaces(tensors, size) {
  let at = 0;
  for (const { name, type, shape, begin, end } of tensors) {
    const rule = begin < at ? 'tensors may not overlap' : 'there may be no gap';
    if (begin !== at) fail(`The tensor ${name} begins at byte ${begin}, but the one before it ends at ${at}: ${rule}.`);
    if (end < begin) fail(`The tensor ${name} ends at byte ${end}, before it begins (${begin}).`);
    const needed = countOf(shape) * BigInt(TYPES[type][0]);
    const has = BigInt(end - begin);
    if (needed !== has) fail(`The tensor ${name} has ${has} bytes, but its shape ${shapeText(shape)} of ${type} needs ${needed}.`);
    if (end > size) fail(`The file is cut: the tensor ${name} ends at byte ${end}, but only ${size} bytes follow the header.`);
    at = end;
  }
  if (at < size) fail(`The file has ${size - at} bytes after its last tensor, and none may follow.`);
}

// Reads a .safetensors file, a Blob. Resolves to {metadata, tensors}: the strings as [name, text], and tensors (tensortext.js) in the order
// of the header. Throws an Error with a sentence, also if the header has more than `room` bytes.
export async function readSafetensors(file, room) {
  if (file.size < PREFIX) fail(`It is no .safetensors file: such a file has at least ${PREFIX} bytes, and this one has ${file.size}.`);
  const long = new DataView(await file.slice(0, PREFIX).arrayBuffer()).getBigUint64(0, true);
  if (long > MOST_HEADER)
    fail(`It is no .safetensors file: its first ${PREFIX} bytes say that its header has ${long} bytes; the most are ${MOST_HEADER}.`);
  const start = PREFIX + Number(long);
  if (start > file.size) fail(`The file is cut: its header has ${long} bytes, but only ${file.size - PREFIX} follow.`);
  if (long > room) fail(`Its header has more than ${room / 1e6} MB, which is too much for this page.`);
  const header = parseHeader(await file.slice(PREFIX, start).arrayBuffer());
  const { __metadata__: texts = {}, ...entries } = header;
  if (!isObject(texts)) fail('Its __metadata__ is no object.');
  const metadata = Object.entries(texts);
  for (const [name, text] of metadata) if (typeof text !== 'string') fail(`In __metadata__, ${name} is no string.`);
  const tensors = Object.entries(entries).map(([name, entry]) => checkEntry(name, entry));
  const inOrder = [...tensors].sort((a, b) => a.begin - b.begin || a.end - b.end);
  checkPlaces(inOrder, file.size - start);
  const data = ({ begin, end }) => file.slice(start + begin, start + end);
  return { metadata, tensors: tensors.map(({ name, type, shape, ...place }) => ({ name, type, shape, data: data(place) })) };
}

// Returns a .safetensors file, a Blob. metadata: an object of strings. tensors: [{name, type, shape, data}], where data is a Blob or bytes.
export function safetensorsOf(metadata, tensors) {
  let end = 0;
  const place = (size) => [end, (end += size)];
  const entryOf = ({ type, shape, data }) => ({ dtype: type, shape, data_offsets: place(data.size ?? data.length) });
  const entries = Object.fromEntries(tensors.map((tensor) => [tensor.name, entryOf(tensor)]));
  const text = new TextEncoder().encode(JSON.stringify({ __metadata__: metadata, ...entries }));
  const size = new DataView(new ArrayBuffer(PREFIX));
  size.setBigUint64(0, BigInt(text.length), true);
  return new Blob([size, text, ...tensors.map(({ data }) => data)]);
}
