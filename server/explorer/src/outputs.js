// outputs.js reads the arrays of a file that a user's own kernel has written: .npy, .safetensors, JSON or rows of numbers. It needs no
// page.
//
// The file may be wrong in any way that a kernel can be wrong, so NaN and the infinities are numbers here. An array is {name, shape, data}.
// data: a Float64Array in row-major order. name: a string, or null if the file does not say one. An array of numbers with 16 bits also has
// their type, F16 or BF16.
import { parse, Scanner } from './jsontext.js';
import { readNpy } from './npy.js';
import { readSafetensors } from './safetensors.js';
import { countOf, fail, shapeText, TYPES } from './tensortext.js';

const MOST = 50_000_000; // numbers in a file
const MOST_TEXT = 500_000_000; // bytes; browsers have no longer strings
const MOST_LINE = 20_000_000; // characters in a line of numbers
const MOST_AXES = 8;
const ROOM = 1_000_000; // bytes of a header

const RESULTS = ['output', 'weights', 'scores', 'scaled_scores', 'masked_scores', 'Q', 'K', 'V'];

// No alternative of this expression begins like another, so it takes linear time for any text.
const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
// What programs write for numbers that have no digits, in lower case. JSON has null for −∞, and Microsoft's C has -nan(ind).
const WORDS = new Map([
  ['null', -Infinity],
  ['true', 1],
  ['false', 0],
  ...['nan', '+nan', '-nan', '-nan(ind)'].map((word) => [word, NaN]),
  ...['inf', '+inf', 'infinity', '+infinity'].map((word) => [word, Infinity]),
  ...['-inf', '-infinity'].map((word) => [word, -Infinity]),
]);

// Returns the number that a text is, or undefined.
const numberOf = (text) => (NUMBER.test(text) ? Number(text) : WORDS.get(text.toLowerCase()));

const quoted = (text) => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);

function checkCount(count) {
  if (count > MOST) fail(`The file has more than ${MOST / 1e6} million numbers, and the page compares at most so many.`);
}

// A Float64Array that grows. before: how many numbers of the file are in other arrays.
class Numbers {
  constructor(before = 0) {
    this.before = before;
    this.count = 0;
    this.data = new Float64Array(1024);
  }

  push(value) {
    if (this.count === this.data.length) {
      checkCount(this.before + this.count + 1);
      const { data } = this;
      this.data = new Float64Array(Math.min(2 * data.length, MOST));
      this.data.set(data);
    }
    this.data[this.count++] = value;
  }

  done() {
    checkCount(this.before + this.count);
    return this.data.slice(0, this.count);
  }
}

// Returns a function that reads the element at an index of a tensor. A table has the numbers of 16 bits, because they are slow to compute.
function reader({ type, little = true }, view) {
  const [size, read] = TYPES[type];
  if (type !== 'F16' && type !== 'BF16') return (at) => read(view, at * size, little);
  const bits = new DataView(new ArrayBuffer(2));
  const table = Float64Array.from({ length: 65536 }, (_, pattern) => {
    bits.setUint16(0, pattern);
    return read(bits, 0, false);
  });
  return (at) => table[view.getUint16(at * size, little)];
}

// Resolves to the array of a tensor (tensortext.js).
async function arrayOf(tensor, name) {
  const { shape, fortran } = tensor;
  const read = reader(tensor, new DataView(await tensor.data.arrayBuffer()));
  const data = new Float64Array(Number(countOf(shape)));
  const steps = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  const index = shape.map(() => 0);
  for (let from = 0, to = 0; from < data.length; from++) {
    const value = read(from);
    if (value === undefined) fail(`Element ${from} of ${name ?? 'the array'} is no boolean, because its byte is neither 0 nor 1.`);
    data[to] = Number(value);
    if (!fortran) {
      to++;
      continue;
    }
    let axis = 0;
    for (; axis < shape.length - 1 && index[axis] === shape[axis] - 1; axis++) {
      to -= index[axis] * steps[axis];
      index[axis] = 0;
    }
    index[axis]++;
    to += steps[axis];
  }
  return { name, shape, data, ...(tensor.type.endsWith('F16') && { type: tensor.type }) };
}

async function readTensors(file) {
  const found = await readSafetensors(file, ROOM);
  if (!found) fail(`Its header has more than ${ROOM / 1e6} MB, which is too much for this page.`);
  checkCount(found.tensors.reduce((count, { shape }) => count + countOf(shape), 0n));
  const arrays = [];
  for (const tensor of found.tensors) arrays.push(await arrayOf(tensor, tensor.name));
  return arrays;
}

async function readArrayOfNumPy(file, name) {
  const tensor = await readNpy(file);
  checkCount(countOf(tensor.shape));
  return [await arrayOf(tensor, name)];
}

// Says where a text is not JSON.
function notJSON(text, at) {
  const before = text.slice(0, at);
  const place = `line ${before.split('\n').length}, character ${at - before.lastIndexOf('\n')}`;
  fail(
    at < text.length
      ? `It is not JSON: ${place} has ${quoted(text[at])} in a wrong place.`
      : `It is not JSON: it ends too early, at ${place}.`,
  );
}

const isSpace = (code) => code === 32 || code === 10 || code === 13 || code === 9;
const [OPEN, CLOSE, COMMA] = [91, 93, 44];

// Returns where a word of JSON ends that begins at a place.
function endOfWord(text, at) {
  let end = at;
  for (; end < text.length; end++) {
    const code = text.charCodeAt(end);
    if (code === COMMA || code === OPEN || code === CLOSE || code === 125 || isSpace(code)) break;
  }
  return end;
}

// Reads the nested array of numbers that begins at a place of a text. Returns {array, end}. before: how many numbers the file
// has before it.
function readNested(text, start, name, before) {
  const numbers = new Numbers(before);
  const shape = []; // the size of each axis, as the first array that ended had it
  const sizes = []; // how many elements the arrays that are open have so far
  let rank = 0; // 0 before the first number
  let last = COMMA; // what is before `at`: OPEN, COMMA, or CLOSE for a value
  const where = () => (name ?? 'array') + sizes.map((size) => `[${size}]`).join('');
  let at = start;
  for (;;) {
    const code = text.charCodeAt(at);
    if (isSpace(code)) {
      at++;
    } else if (code === COMMA) {
      if (last !== CLOSE) notJSON(text, at);
      last = COMMA;
      at++;
    } else if (code === OPEN) {
      if (last === CLOSE) notJSON(text, at);
      if (rank && sizes.length === rank) fail(`${where()} is an array, but the elements before it are numbers.`);
      if (sizes.length === MOST_AXES) fail(`${where()} is an array, and the page reads at most ${MOST_AXES} axes.`);
      sizes.push(0);
      last = OPEN;
      at++;
    } else if (code === CLOSE) {
      if (last === COMMA) notJSON(text, at);
      const size = sizes.pop();
      const axis = sizes.length;
      if (!size) fail(`${where()} is an empty array.`);
      shape[axis] ??= size;
      if (size !== shape[axis]) {
        const first = (name ?? 'array') + '[0]'.repeat(axis);
        fail(`${where()} has the length ${size}, but ${first} has the length ${shape[axis]}. All arrays of an axis have the same length.`);
      }
      last = CLOSE;
      at++;
      if (!axis) return { array: { name, shape, data: numbers.done() }, end: at };
      sizes[axis - 1]++;
    } else {
      const end = endOfWord(text, at);
      if (last === CLOSE || end === at) notJSON(text, at);
      const value = numberOf(text.slice(at, end));
      if (value === undefined) fail(`${where()} is ${quoted(text.slice(at, end))}, which is no number.`);
      rank ||= sizes.length;
      if (sizes.length !== rank) fail(`${where()} is a number, but the elements before it are arrays.`);
      numbers.push(value);
      sizes[rank - 1]++;
      last = CLOSE;
      at = end;
    }
  }
}

// Reads the arrays of a text in JSON. It takes the numbers from the text itself, because JSON.parse refuses NaN and Infinity.
function readJSON(text, ownName) {
  const scanner = new Scanner(text);
  const arrays = [];
  let count = 0;

  function read(name, start) {
    const { array, end } = readNested(text, start, name, count);
    arrays.push(array);
    count += array.data.length;
    return end;
  }

  // Returns the members of the object or array that begins at a place, as a Map of key -> {start, end}.
  function membersAt(at) {
    const found = new Map();
    scanner.at = at;
    scanner.members((key, start, end) => void found.set(key, { start, end }));
    return found;
  }

  // Returns the first character after the brackets that open an array, or undefined if this is no array.
  function leaf(start) {
    let at = start;
    while (text.charCodeAt(at) === OPEN || (at > start && isSpace(text.charCodeAt(at)))) at++;
    return at > start ? text[at] : undefined;
  }

  // Reads an element of outputs of the Open Inference Protocol, whose data may be one flat array.
  function readOutput(at, place) {
    const all = text[at] === '{' ? membersAt(at) : new Map();
    const [name, shape] = ['name', 'shape'].map((key) => parse(text.slice(all.get(key)?.start, all.get(key)?.end)));
    const data = all.get('data')?.start;
    const sizes = Array.isArray(shape) && shape.every((size) => Number.isInteger(size) && size > 0);
    if (!all.has('name') || typeof name !== 'string' || !all.has('shape') || !sizes || text[data] !== '[') {
      fail(`${place} needs a name, a shape of whole numbers and an array of data, as the Open Inference Protocol says.`);
    }
    if (leaf(data) === '"') return; // texts
    read(name, data);
    const array = arrays.at(-1);
    const needed = countOf(shape);
    if (needed !== BigInt(array.data.length)) {
      fail(`${name} has ${array.data.length} numbers, but its shape ${shapeText(shape)} needs ${needed}.`);
    }
    array.shape = shape;
  }

  function readMembers() {
    const all = membersAt(scanner.at);
    const { at } = scanner;
    for (const [key, { start }] of all) {
      const first = leaf(start);
      if (key === 'outputs' && first === '{')
        for (const [index, { start: from }] of membersAt(start)) readOutput(from, `outputs[${index}]`);
      else if (first !== undefined && first !== '"' && first !== '{') read(key, start);
    }
    return at;
  }

  try {
    scanner.space();
    if (!'[{'.includes(text.charAt(scanner.at) || ' ')) notJSON(text, scanner.at);
    scanner.at = text[scanner.at] === '[' ? read(ownName, scanner.at) : readMembers();
    scanner.space();
    if (scanner.at < text.length) notJSON(text, scanner.at);
  } catch (error) {
    if (error instanceof SyntaxError) notJSON(text, scanner.at); // Scanner says no more
    throw error;
  }
  return arrays;
}

// Returns the separator that a line has most often outside quotation marks, or null for blanks.
function separatorOf(line) {
  const bare = line.replace(/"[^"]*"/g, '');
  let [best, most] = [null, 0];
  for (const separator of [',', ';', '\t']) {
    const times = bare.split(separator).length - 1;
    if (times > most) [best, most] = [separator, times];
  }
  return best;
}

// Returns the fields of a line, without their quotation marks.
function fieldsOf(line, separator) {
  if (!line.includes('"')) return separator ? line.split(separator).map((field) => field.trim()) : line.trim().split(/\s+/);
  const fields = [''];
  let inside = false;
  for (const character of line) {
    if (character === '"') inside = !inside;
    else if (!inside && (separator ? character === separator : isSpace(character.charCodeAt(0)))) fields.push('');
    else fields[fields.length - 1] += character;
  }
  return separator ? fields.map((field) => field.trim()) : fields.filter(Boolean);
}

// Steps over the lines that have fields, as {fields, line}. An end of line within quotation marks is part of a field. Lines at the
// beginning that begin with # are comments, as NumPy's savetxt writes them.
function* linesOf(text) {
  let separator;
  let at = 0;
  let line = 1;
  while (at < text.length) {
    const first = line;
    let content = '';
    let inside = false;
    do {
      const found = text.indexOf('\n', at);
      const part = text.slice(at, found < 0 ? text.length : found);
      if (content.length + part.length > MOST_LINE) {
        fail(
          `Line ${first} has more than ${MOST_LINE / 1e6} million characters, and the page reads at most so many. Save the array as .npy.`,
        );
      }
      if (part.includes('"') && part.split('"').length % 2 === 0) inside = !inside;
      content += `${content && ' '}${part}`;
      at += part.length + 1;
      line++;
    } while (inside && at < text.length);
    if (inside) fail(`Line ${first} has a quotation mark that nothing closes.`);
    if (!content.trim() || (separator === undefined && content.startsWith('#'))) continue;
    separator ??= separatorOf(content);
    yield { fields: fieldsOf(content, separator), line: first };
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
  if (!first) fail('The file has no numbers: all its lines are empty.');
  const { header, column } = labelsOf([first, second]);
  if (header && !second) fail(`The file has no numbers: its only row is ${quoted(first.fields.join(' '))}.`);
  const begin = column ? 1 : 0;
  const top = header ? second : first;
  const cols = top.fields.length - begin;
  const numbers = new Numbers();
  for (const { fields, line } of linesOf(text)) {
    if (header && line === first.line) continue;
    if (fields.length - begin !== cols) {
      const lengths = `Line ${line} has the length ${fields.length - begin}, but line ${top.line} has the length ${cols}`;
      fail(`${lengths}. All rows have the same length.`);
    }
    for (let at = begin; at < fields.length; at++) {
      const value = fields[at] === '' ? NaN : numberOf(fields[at]);
      if (value === undefined) fail(`Line ${line}, column ${at + 1} has ${quoted(fields[at])}, which is no number.`);
      numbers.push(value);
    }
  }
  return [{ name, shape: [numbers.count / cols, cols], data: numbers.done() }];
}

async function textOf(file) {
  if (file.size > MOST_TEXT) {
    fail(`As text it has ${file.size} bytes, and the page reads at most ${MOST_TEXT / 1e6} MB of text. Save the array as .npy.`);
  }
  const text = await file.text();
  if (text.includes('\0')) fail('It is no text, because it has a byte of 0. The page reads .npy, .safetensors, JSON and rows of numbers.');
  return text;
}

// Returns the format of a file by its name, or else by how it begins.
async function formatOf(file) {
  const ending = /\.(npy|safetensors|json|csv|tsv|txt)$/i.exec(file.name)?.[1].toLowerCase();
  if (ending) return ending;
  const begins = new TextDecoder('latin1').decode(await file.slice(0, 6).arrayBuffer());
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
  if (format === 'npy') arrays = await readArrayOfNumPy(file, name);
  else if (format === 'safetensors') arrays = await readTensors(file);
  else if (format === 'json') arrays = readJSON(await textOf(file), name);
  else arrays = readRows(await textOf(file), name);
  if (!arrays.length) fail('The file has no array of numbers.');
  return arrays;
}
