// pasted.js reads what people paste in place of a request: arrays as Python prints them, CSV, or a sentence. It needs no page.
//
// Numbers stay text, so that they are right to the last digit. No regular expression here goes over a character more often than a fixed
// number of times, because the text may have megabytes.

const MOST_AXES = 8; // no key of a request takes more
const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/;
const NUMBER = /^([-+]?)(\d*)(?:\.(\d*))?(e[-+]?\d+)?$/i;
const LITERAL = /^(?:true|false|null)$/i;
const INFINITE = /^-(?:inf|infinity|∞)$/i;
const UNUSABLE = /^(?:[-+]?nan|\+?(?:inf|infinity|∞)|[-+]?[.,]*\d[\d.,]*)$/i; // numbers that JSON or this page does not have
const COMMA = /^([-+−]?\d+),(?=\d)/;
const FORMULA = /^'(?=[=+\-@\t\r])/; // what toCSV in download.js puts before a label
const BLANKS = '[^\\S\\r\\n]+';

// This expression matches a name and the calls before an array, as in Q = torch.tensor([[...]]).
const HEAD =
  /[\s,;]*(?:(["']?)(?<name>[a-z_][\w.]*)\1\s*[=:]\s*)?(?:Parameter containing:\s*)?(?:<tf\.Tensor:[^<>[\]]*numpy=\s*)?(?<calls>(?:(?:[a-z_]\w*\.)*(?:tensor|array|asarray|constant|matrix|Parameter)\(\s*)*)(?=\[)/iy;
const ITEM = /\s*(,?)\s*([^\s,[\](){}]+|\S|$)/y; // an element or a bracket, with the comma before it
// This expression matches the options after the array of a call, and the bracket that closes the call.
const TAIL = /(?:\s*,\s*(?:\w+\s*=\s*)?(?:<[^<>]*>|\([^()]*\)|'[^']*'|"[^"]*"|[\w.]+(?:\([^()]*\))?))*\s*(?:,\s*)?\)/y;
const AFTER = /[\s,;>]*/y;

const lineOf = (text, index) => `line ${text.slice(0, index).split(/\r\n?|\n/).length}`;
const shown = (word) => (word.length > 40 ? `${word.slice(0, 40)}…` : word);

function fail(message, index) {
  throw Object.assign(new Error(message), { index });
}

const refuse = (text, index, rule, what) => fail(`${rule}, but ${lineOf(text, index)} has ${what}.`, index);

// Says that a row or block has another length than the first one.
function refuseLength(text, index, name, what, length, first) {
  const [group] = name.toLowerCase().split(' ');
  fail(`${name} (${lineOf(text, index)}) has ${length} ${what}${length === 1 ? '' : 's'}, and ${group} 1 has ${first}.`, index);
}

// Returns the JSON of a word. Returns '' for a number that cannot be used, and undefined for a word that is no number.
function jsonOf(given) {
  if (JSON_NUMBER.test(given)) return given;
  const word = given.replace(/^−/, '-');
  if (LITERAL.test(word)) return word.toLowerCase();
  if (INFINITE.test(word)) return 'null'; // the service reads null as −∞
  const [, sign, whole, fraction, exponent = ''] = NUMBER.exec(word) ?? [];
  if (!whole && !fraction) return UNUSABLE.test(word) ? '' : undefined;
  const digits = whole.replace(/^0+(?=\d)/, '') || '0';
  return `${sign === '-' ? '-' : ''}${digits}${fraction === undefined ? '' : `.${fraction || '0'}`}${exponent}`;
}

// Says why a word between numbers cannot be used.
function refuseWord(text, index, word) {
  const all = "print all of them after np.set_printoptions(threshold=sys.maxsize) or torch.set_printoptions(profile='full')";
  if (word === '...' || word === '…') refuse(text, index, `A matrix needs all its numbers (${all})`, word);
  const rule = /\d/.test(word) ? 'A number has at most one point and no comma' : 'A number is finite or -inf';
  if (word && jsonOf(word) === '') refuse(text, index, rule, shown(word));
  refuse(text, index, 'A matrix has numbers only', shown(word) || 'an empty field');
}

// Writes an array as a member of an object has it, with each row on a line. depth: how many brackets are open in it.
function written(parts, depth, isRow) {
  if (isRow) return `[${parts.join(', ')}]`;
  const line = `\n${'  '.repeat(depth + 1)}`;
  return `[${line}${parts.join(`,${line}`)}\n${'  '.repeat(depth)}]`;
}

// Reads the array whose bracket is at `start`. Returns its JSON, its rank, its length and the place after it.
function readArray(text, start) {
  const lengths = []; // of the first array at each depth
  const counts = []; // of the arrays at each depth
  let at = start + 1;
  let rank = 0; // the depth of the rows, which the first number says

  function nested(depth) {
    const open = at - 1;
    const parts = [];
    for (;;) {
      ITEM.lastIndex = at;
      const [, comma, item] = ITEM.exec(text);
      at = ITEM.lastIndex;
      const index = at - item.length;
      if (comma && !parts.length) refuseWord(text, text.indexOf(',', open), ',');
      if (item === ']') break;
      if (item === '') refuse(text, open, 'Every [ needs a ]', 'a [ without one');
      if (item === ')') refuse(text, index, 'Every [ needs a ]', 'a ) where a ] is missing');
      if (item === '[') {
        if (depth === rank) refuse(text, index, 'A row has numbers only', 'a [ in a row, and perhaps a ] is missing before it');
        if (depth === MOST_AXES) refuse(text, index, `A matrix has at most ${MOST_AXES} axes`, 'one [ more');
        parts.push(nested(depth + 1));
        continue;
      }
      const json = jsonOf(item);
      if (!json) refuseWord(text, index, item);
      rank ||= depth;
      if (depth !== rank) refuse(text, index, 'Every number stands in a row', `${shown(item)} outside of the rows`);
      parts.push(json);
    }
    if (!parts.length) refuse(text, open, 'A matrix has at least one row and one column', 'a [] without numbers');
    lengths[depth] ??= parts.length;
    counts[depth] = (counts[depth] ?? 0) + 1;
    if (parts.length !== lengths[depth]) {
      const [group, what] = [
        ['Row', 'number'],
        ['Block', 'row'],
      ][rank - depth] ?? ['Block', 'block'];
      refuseLength(text, open, `${group} ${counts[depth]}`, what, parts.length, lengths[depth]);
    }
    return written(parts, depth, depth === rank);
  }

  return { start, json: nested(1), end: at, rank, length: lengths[1] };
}

// Returns whether a text that has a bracket at `open` is meant as an array. A sentence may begin with [CLS] or [1].
function isArray(text, open, name, calls) {
  const words =
    text
      .slice(open, open + 400)
      .split(']')[0]
      .match(/[^\s,[]+/g) ?? [];
  const count = words.filter((word) => jsonOf(word) !== undefined).length;
  if (calls || count > 1) return true;
  return count === 1 && (name !== undefined || /^\[\s*\[/.test(text.slice(open, open + 400)) || text.trim() === `[${words[0]}]`);
}

// Reads one or several arrays, each with or without a name. Returns null if the text does not begin with an array.
function readArrays(text) {
  const found = [];
  const names = new Set();
  for (let at = 0; at < text.length; at = AFTER.lastIndex) {
    HEAD.lastIndex = at;
    const { name, calls } = HEAD.exec(text)?.groups ?? {};
    if (!found.length && (calls === undefined || !isArray(text, HEAD.lastIndex, name, calls))) return null;
    if (calls === undefined) refuse(text, at, 'A matrix ends with its last bracket', `${text.slice(at, at + 40).split(/\s/)[0]} after it`);
    if (names.has(name)) refuse(text, at, 'A name stands for one matrix', `${shown(name)} again`);
    if (name !== undefined) names.add(name);
    const array = readArray(text, HEAD.lastIndex);
    AFTER.lastIndex = array.end;
    for (let open = calls.split('(').length - 1; open > 0; open--) {
      TAIL.lastIndex = AFTER.lastIndex;
      if (!TAIL.test(text)) refuse(text, array.end - 1, 'Every ( needs a )', 'the end of an array without one');
      AFTER.lastIndex = TAIL.lastIndex;
    }
    AFTER.test(text);
    found.push({ name: name ?? null, ...array });
  }
  if (found.length < 2 || names.size || found.some(({ rank }) => rank > 1)) return found.map(({ name, json }) => [name, json]);
  // They are the rows of one matrix, each printed for itself.
  const rows = found.map(({ start, length, json }, row) => {
    if (length !== found[0].length) refuseLength(text, start, `Row ${row + 1}`, 'number', length, found[0].length);
    return json;
  });
  return [[null, written(rows, 1)]];
}

// Splits CSV into lines of fields {text, index}. separator: the source of a regular expression.
function fieldsOf(text, separator) {
  const other = separator === BLANKS ? '\\s' : `${separator}\\r\\n`;
  const pattern = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^${other}]*))(${separator}|\\r\\n?|\\n|$)`, 'y');
  const lines = [];
  let line = [];
  let end;
  pattern.lastIndex = text.startsWith('\ufeff') ? 1 : 0;
  do {
    const { lastIndex: index } = pattern;
    const [, quoted, plain, after] = pattern.exec(text);
    end = after;
    if (separator !== BLANKS || plain !== '') line.push({ text: quoted?.replaceAll('""', '"') ?? plain, index });
    if (end !== '' && !/[\r\n]/.test(end)) continue;
    if (line.length > 1 || line[0]?.text.trim()) lines.push(line);
    line = [];
  } while (end !== '');
  return lines;
}

// Reads a table whose fields stand between separators. Returns {json, labels}, or null if the text is no such table.
function readTable(text, separator) {
  if (separator !== BLANKS && !text.includes(separator)) return null;
  const lines = fieldsOf(text, separator);
  const commas = (separator === ';' || separator === '\t') && !/\d\.|\.\d/.test(text); // decimal commas
  const read = (word) => jsonOf(commas ? word.replace(COMMA, '$1.') : word);
  const values = lines.map((line) => line.map((field) => read(field.text.trim())));
  const isText = (value) => value === undefined;
  const every = values.flat();
  const numbers = every.filter((value) => !isText(value)).length;
  if ((separator === BLANKS || lines.length === 1) && (numbers < every.length || !/\d/.test(text))) return null;
  const corner = lines[0][0].text.trim() === '';
  const head = lines.length > 1 && (corner || values[0].every(isText)) ? 1 : 0;
  const labelled = (head && corner) || values.slice(head).every(([first]) => isText(first)) ? 1 : 0;
  const cells = values.slice(head).flatMap((row) => row.slice(labelled));
  const usable = cells.filter((value) => !isText(value)).length;
  if (!usable || (!corner && usable * 2 <= cells.length)) return null;
  const rows = values.slice(head).map((row, at) => {
    const line = lines[at + head];
    const { length } = lines[0];
    if (row.length !== length)
      refuseLength(text, line[0].index, `Row ${at + head + 1}`, head || labelled ? 'field' : 'number', row.length, length);
    row.forEach((value, col) => col < labelled || value || refuseWord(text, line[col].index, line[col].text.trim()));
    return written(row.slice(labelled), 2, true);
  });
  const labels = labelled ? lines.slice(head).map(([label]) => label.text.replace(FORMULA, '')) : null;
  return { json: written(rows, 1), labels };
}

// Reads a text that stands in place of a request. Returns null if it is JSON or meant to be; {matrices: [[name, JSON], ...], labels}, where
// a name or the list of row labels may be null; or {words}, which are a sentence. Throws an Error with a sentence and the index of the
// place in the text if the text is a matrix that cannot be used.
export function readPasted(text) {
  if (text.trimStart().startsWith('{')) return null;
  const matrices = readArrays(text);
  if (matrices?.length) return { matrices, labels: null };
  let failure = null;
  for (const separator of ['\t', ';', ',', BLANKS]) {
    try {
      const table = readTable(text, separator);
      if (table) return { matrices: [[null, table.json]], labels: table.labels };
    } catch (error) {
      failure ??= error;
    }
  }
  if (failure) throw failure;
  return { words: text.replace(/\s+/g, ' ').trim() };
}
