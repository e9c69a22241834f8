// outputs.js reads the arrays of a file that a user's own kernel has written: .npy, .safetensors, JSON or rows of numbers. It needs no
// page.
//
// The file may be wrong in any way that a kernel can be wrong, so NaN and the infinities are numbers here. An array is {name, shape, type,
// bytes, data, text}. type: a key of TYPES; that of numbers in a text is F64. text: whether it is such a text, which names no type. bytes:
// the elements in row-major order. data: a Float32Array or a Float64Array of the same numbers. name: a string, or null if the file does not
// say one.
import { RESULTS } from './difference.js';
import { readNpy } from './npy.js';
import { readSafetensors } from './safetensors.js';
import { countOf, fail, MOST_AXES, numbersOf, shapeText, straight } from './tensortext.js';

const MOST = 50_000_000; // numbers in a file
const MOST_TEXT = 500_000_000; // bytes; browsers have no longer strings
const MOST_LINE = 20_000_000; // characters in a line of numbers
const ROOM = 1_000_000; // bytes of a header

// No alternative of this expression begins like another, so it takes linear time for any text.
const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
const INFINITE = /^([+-]?)inf(?:inity)?$/i;
const NAN = /^[+-]?nan(?:\(ind\))?$/i; // Microsoft's C has -nan(ind)
const MARK = '\0'; // stands for NaN in parsed JSON

// Returns the number that a word is, or undefined. null is −∞.
function numberOf(word) {
  if (NUMBER.test(word)) return Number(word);
  if (INFINITE.test(word)) return word[0] === '-' ? -Infinity : Infinity;
  return NAN.test(word) ? NaN : { null: -Infinity, true: 1, false: 0 }[word.toLowerCase()];
}

const quoted = (text) => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);

function checkCount(count) {
  if (count > MOST) fail(`The file has more than ${MOST / 1e6} million numbers, and the page compares at most so many.`);
}

// Makes the array of numbers that a text has.
const fromText = (name, shape, data) => ({ name, shape, type: 'F64', bytes: new Uint8Array(data.buffer), data, text: true });

async function arraysOf(tensors) {
  checkCount(tensors.reduce((count, { shape }) => count + countOf(shape), 0n));
  const arrays = [];
  for (const tensor of tensors) {
    const { name, type, shape } = tensor;
    const bytes = await straight(tensor);
    arrays.push({ name, shape, type, bytes, data: numbersOf(type, bytes, name ?? 'the array') });
  }
  return arrays;
}

// Returns the value of a text. JSON has no NaN and no infinity, but programs write them.
function parsed(text) {
  const more = (word) =>
    word[0] === '"' ? word : INFINITE.test(word) ? `${word[0] === '-' ? '-' : ''}1e999` : NAN.test(word) ? JSON.stringify(MARK) : word;
  try {
    return JSON.parse(text);
  } catch {
    try {
      return JSON.parse(text.replace(/"[^"\\]*(?:\\[^][^"\\]*)*"|[+-]?(?:nan\b(?:\(ind\))?|inf(?:inity)?\b)/gi, more));
    } catch ({ message }) {
      return fail(`It is not JSON: ${message}.`);
    }
  }
}

// Makes an array of nested ones. before: how many numbers the arrays before it have.
function fromNested(value, name, before = 0) {
  const shape = [];
  for (let one = value; Array.isArray(one); one = one[0]) shape.push(one.length);
  const index = [];
  const where = (places = index) => (name ?? 'array') + places.map((at) => `[${at}]`).join('');
  const said = (one) => (Array.isArray(one) ? `an array of ${one.length}` : quoted(JSON.stringify(one)));
  if (shape.includes(0)) fail(`${where()} has an empty array.`);
  if (shape.length > MOST_AXES) fail(`${where()} has more than ${MOST_AXES} axes.`);
  checkCount(BigInt(before) + countOf(shape));
  const data = new Float64Array(Number(countOf(shape)));
  let next = 0;
  const fill = (part, axis) => {
    if (axis === shape.length) {
      const isOther = part === null || typeof part === 'boolean';
      const number = typeof part === 'number' ? part : part === MARK ? NaN : isOther ? numberOf(String(part)) : undefined;
      if (number === undefined) fail(`${where()} is ${said(part)}, which is no number.`);
      data[next++] = number;
      return;
    }
    const rule = 'All arrays of an axis have one length.';
    if (!Array.isArray(part) || part.length !== shape[axis])
      fail(`${where()} is ${said(part)}, but ${where(index.map(() => 0))} is an array of ${shape[axis]}. ${rule}`);
    for (index[axis] = 0; index[axis] < part.length; index[axis]++) fill(part[index[axis]], axis + 1);
    index.length = axis;
  };
  fill(value, 0);
  return fromText(name, shape, data);
}

// Makes an array of an element of outputs of the Open Inference Protocol, whose data may be one flat array.
function fromOutput(output, place, before) {
  const { name, shape, data } = output ?? {};
  const isShape = Array.isArray(shape) && shape.every((size) => size > 0 && Number.isInteger(size));
  if (typeof name !== 'string' || !isShape || !Array.isArray(data))
    fail(`${place} needs a name, a shape of whole numbers and an array of data, as the Open Inference Protocol says.`);
  const array = fromNested(data, name, before);
  const [count, needed] = [array.data.length, Number(countOf(shape))];
  if (count !== needed) fail(`${name} has ${count} numbers, but its shape ${shapeText(shape)} needs ${needed}.`);
  return { ...array, shape };
}

// Reads the arrays of a text in JSON. Arrays of texts and of objects are left out. What a request expects has the names that it has in a
// file of tensors.
function readJSON(text, ownName) {
  const value = parsed(text);
  const isNumbers = (one) => {
    let leaf = one;
    while (Array.isArray(leaf) && leaf.length) [leaf] = leaf;
    const isNumber = typeof leaf === 'string' ? leaf === MARK : leaf === null || Array.isArray(leaf) || typeof leaf !== 'object';
    return Array.isArray(one) && isNumber;
  };
  const arrays = [];
  const before = () => arrays.reduce((count, { data }) => count + data.length, 0);
  if (Array.isArray(value)) return [fromNested(value, ownName)];
  const { expected, ...others } = Object(value);
  const ofRequest = Object.entries(Object(expected)).map(([key, member]) => [`expected.${key}`, member]);
  for (const [key, member] of [...Object.entries(others), ...(Array.isArray(expected) ? [['expected', expected]] : ofRequest)]) {
    if (key !== 'outputs' || !member?.[0]?.data) {
      if (isNumbers(member)) arrays.push(fromNested(member, key, before()));
      continue;
    }
    for (const [at, output] of member.entries())
      if (!output?.data || isNumbers(output.data)) arrays.push(fromOutput(output, `outputs[${at}]`, before()));
  }
  return arrays;
}

// Returns the separator that a line has most often, or null for blanks.
function separatorOf(line) {
  const times = (separator) => line.split(separator).length;
  const [best] = [',', ';', '\t'].sort((a, b) => times(b) - times(a));
  return times(best) > 1 ? best : null;
}

// Steps over the lines that have fields, as {fields, line}. Lines at the beginning that begin with # are comments, as NumPy's savetxt writes
// them. Quotation marks are left out, and separators between them do not count.
function* linesOf(text) {
  let separator;
  let line = 0;
  for (const [given] of text.matchAll(/[^\n]+\n?|\n/g)) {
    line++;
    if (given.length > MOST_LINE)
      fail(`Line ${line} has more than ${MOST_LINE / 1e6} million characters, and the page reads at most so many. Save the array as .npy.`);
    if (!given.trim() || (separator === undefined && given.startsWith('#'))) continue;
    const content = given.replace(/"([^"]*)"/g, (_, inside) => inside.replace(/[\s,;]/g, '_'));
    separator ??= separatorOf(content);
    yield { fields: separator ? content.split(separator).map((field) => field.trim()) : content.trim().split(/\s+/), line };
  }
}

const isWord = (field) => field !== '' && numberOf(field) === undefined;

// Says whether the first line and the first column are labels. They both are if the first line begins with an empty field, as toCSV writes
// it. Otherwise a line of labels has more words than numbers, and a column of labels begins with words.
function labelsOf([first, second]) {
  const [corner, ...others] = first.fields;
  if (corner === '' && others.length && others.every(Boolean) && second?.fields[0]) return { header: true, column: true };
  const header = first.fields.filter(isWord).length * 2 > first.fields.length;
  const top = (header ? [second] : [first, second]).filter(Boolean);
  return { header, column: top.every(({ fields }) => fields.length > 1 && isWord(fields[0])) };
}

// Reads rows of numbers. An empty field is NaN, as toCSV writes it.
function readRows(text, name) {
  const [first, second] = linesOf(text);
  const { header, column } = first ? labelsOf([first, second]) : {};
  const top = header ? second : first;
  if (!top) fail('The file has no numbers.');
  const begin = column ? 1 : 0;
  const cols = top.fields.length - begin;
  const numbers = [];
  for (const { fields, line } of linesOf(text)) {
    if (line < top.line) continue;
    const length = fields.length - begin;
    if (length !== cols)
      fail(`Line ${line} has the length ${length}, but line ${top.line} has the length ${cols}. All rows have the same length.`);
    for (let at = begin; at < fields.length; at++) {
      const value = fields[at] === '' ? NaN : numberOf(fields[at]);
      if (value === undefined) fail(`Line ${line}, column ${at + 1} has ${quoted(fields[at])}, which is no number.`);
      numbers.push(value);
    }
    checkCount(numbers.length);
  }
  return [fromText(name, [numbers.length / cols, cols], Float64Array.from(numbers))];
}

async function textOf(file) {
  if (file.size > MOST_TEXT)
    fail(`As text it has ${file.size} bytes, and the page reads at most ${MOST_TEXT / 1e6} MB of text. Save the array as .npy.`);
  const text = await file.text();
  if (text.includes('\0')) fail('It is no text, because it has a byte of 0. The page reads .npy, .safetensors, JSON and rows of numbers.');
  return text;
}

// Returns the format of a file by its name, or else by how it begins.
async function formatOf(file) {
  const ending = /\.(npy|safetensors|json|csv|tsv|txt)$/i.exec(file.name)?.[1].toLowerCase();
  if (ending) return ending;
  // A TextDecoder has no code that gives each byte its own character: what it calls latin1 is windows-1252.
  const begins = String.fromCharCode(...new Uint8Array(await file.slice(0, 6).arrayBuffer()));
  if (begins.startsWith('\x93NUMPY')) return 'npy';
  return /^(\xef\xbb\xbf)?\s*[[{]/.test(begins) ? 'json' : 'csv';
}

// Reads a file, a File. Resolves to its arrays. An array without a name of its own has the name of the file if this is the name of a
// result, such as output.npy. Throws an Error with a sentence.
export async function readOutputs(file) {
  if (!file.size) fail('The file is empty: it has 0 bytes.');
  const stem = file.name.replace(/\.[^.]*$/, '').toLowerCase();
  const name = RESULTS.find((result) => result.toLowerCase() === stem) ?? null;
  const format = await formatOf(file);
  let arrays;
  if (format === 'npy') arrays = await arraysOf([{ ...(await readNpy(file)), name }]);
  else if (format === 'safetensors') arrays = await arraysOf((await readSafetensors(file, ROOM)).tensors);
  else if (format === 'json') arrays = readJSON(await textOf(file), name);
  else arrays = readRows(await textOf(file), name);
  if (!arrays.length) fail('The file has no array of numbers.');
  return arrays;
}
