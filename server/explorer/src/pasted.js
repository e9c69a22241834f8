// pasted.js reads what people paste in place of a request: arrays and tables as programs print them, CSV, a curl command, or a sentence. It
// needs no page.
//
// Numbers stay text, so that they are right to the last digit. No regular expression here goes over a character more often than a fixed
// number of times, because the text may have megabytes.
import { fail, MOST_AXES, written } from './tensortext.js';

const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/;
const NUMBER = /^([-+]?)(\d*)(?:\.(\d*))?(e[-+]?\d+)?$/i;
const LITERAL = /^(?:true|false|null)$/i;
const INFINITE = /^-(?:inf|infinity|∞)$/i;
const UNUSABLE = /^(?:[-+]?nan|\+?(?:inf|infinity|∞)|[-+]?[.,]*\d[\d.,]*)$/i; // numbers that JSON or this page does not have
const GAP = /^(?:\.{2,3}|…)$/; // where a print leaves numbers out
const COMMA = /^([-+−]?\d+),(?=\d)/;
const FORMULA = /^'(?=[=+\-@\t\r])/; // what toCSV in download.js puts before a label

// This expression matches a name and the calls before an array, as in Q = torch.tensor([[...]]).
const HEAD =
  /[\s,;]*(?:(["']?)(?<name>[a-z_][\w.]*)\1\s*[=:]\s*)?(?:Parameter containing:\s*)?(?:<tf\.Tensor:[^<>[\]]*numpy=\s*)?(?<calls>(?:(?:[a-z_]\w*\.)*(?:tensor|array|asarray|constant|matrix|Parameter)\(\s*)*)(?=\[)/iy;
const ITEM = /\s*(,?)\s*([^\s,[\](){}]+|\S|$)/y; // an element or a bracket, with the comma before it
// This expression matches the options after the array of a call, and the bracket that closes the call.
const TAIL = /(?:\s*,\s*(?:\w+\s*=\s*)?(?:<[^<>]*>|\([^()]*\)|'[^']*'|"[^"]*"|[\w.]+(?:\([^()]*\))?))*\s*(?:,\s*)?\)/y;
const AFTER = /[\s,;>]*/y;

const lineOf = (text, index) => `line ${text.slice(0, index).split(/\r\n?|\n/).length}`;
const shown = (word) => (word.length > 40 ? `${word.slice(0, 40)}…` : word);

const refuse = (text, index, rule, what) => fail(`${rule}, but ${lineOf(text, index)} has ${what}.`, { index });

function refuseLength(text, index, name, what, length, first) {
  const [group] = name.toLowerCase().split(' ');
  fail(`${name} (${lineOf(text, index)}) has ${length} ${what}${length === 1 ? '' : 's'}, and ${group} 1 has ${first}.`, { index });
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

function refuseWord(text, index, word) {
  const all = "np.set_printoptions(threshold=sys.maxsize), torch.set_printoptions(profile='full') or df.to_string() prints all of them";
  if (GAP.test(word)) refuse(text, index, `A matrix needs all its numbers (${all})`, word);
  const rule = /\d/.test(word) ? 'A number has at most one point and no comma' : 'A number is finite or -inf';
  if (word && jsonOf(word) === '') refuse(text, index, rule, shown(word));
  refuse(text, index, 'A matrix has numbers only', shown(word) || 'an empty field');
}

// Reads the array whose bracket is at `start`. Returns its JSON, its rank, its shape and the place after it.
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
      const what = ['number', 'row'][rank - depth] ?? 'block';
      refuseLength(text, open, `${depth === rank ? 'Row' : 'Block'} ${counts[depth]}`, what, parts.length, lengths[depth]);
    }
    return written(parts, depth, depth === rank);
  }

  return { start, json: nested(1), end: at, rank, shape: lengths.slice(1) };
}

// Returns whether a text that has a bracket at `open` is meant as an array. A sentence may begin with [CLS] or [1].
function isArray(text, open, name, calls) {
  const begin = text.slice(open, open + 400);
  const words = begin.split(']')[0].match(/[^\s,[]+/g) ?? [];
  const count = words.filter((word) => jsonOf(word) !== undefined).length;
  if (calls || count > 1) return true;
  return count === 1 && (name !== undefined || /^\[\s*\[/.test(begin) || text.trim() === `[${words[0]}]`);
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
  if (found.length < 2 || names.size || found.some(({ rank }) => rank > 1))
    return found.map(({ name, json, shape }) => [name, json, shape]);
  // They are the rows of one matrix, each printed for itself.
  const [length] = found[0].shape;
  const rows = found.map(({ start, shape: [own], json }, row) => {
    if (own !== length) refuseLength(text, start, `Row ${row + 1}`, 'number', own, length);
    return json;
  });
  return [[null, written(rows, 1), [rows.length, length]]];
}

// Splits CSV into lines of fields {text, index}.
function fieldsOf(text, separator) {
  const pattern = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^${separator}\\r\\n]*))(${separator}|\\r\\n?|\\n|$)`, 'y');
  const lines = [];
  let line = [];
  let end;
  pattern.lastIndex = text.startsWith('\ufeff') ? 1 : 0;
  do {
    const { lastIndex: index } = pattern;
    const [, quoted, plain, after] = pattern.exec(text);
    end = after;
    line.push({ text: quoted?.replaceAll('""', '"') ?? plain, index });
    if (end !== '' && !/[\r\n]/.test(end)) continue;
    if (line.length > 1 || line[0].text.trim()) lines.push(line);
    line = [];
  } while (end !== '');
  return lines;
}

// Splits a Markdown table into lines of fields {text, index}. Returns null if the text is none.
function pipedOf(text) {
  const lines = Array.from(text.matchAll(/[^\r\n]+/g), ({ 0: line, index }) => ({ line, index }));
  const [head, rule, ...rest] = lines.filter(({ line }) => /\S/.test(line));
  if (!/^[\s|:]*-[\s|:-]*$/.test(rule?.line)) return null;
  return [head, ...rest].map(({ line, index }) => {
    let at = index;
    const fields = line.split(/(?<!\\)\|/).map((field) => {
      const found = { text: field.trim().replace(/^(\*\*|`)(.*)\1$/, '$2').replaceAll('\\|', '|'), index: at }; // prettier-ignore
      at += field.length + 1;
      return found;
    });
    return fields.slice(/^\s*\|/.test(line) ? 1 : 0, /\|\s*$/.test(line) ? -1 : undefined);
  });
}

const areCounted = (fields) => fields.every(({ text }, at) => text.trim() === String(at));

// Reads a table of lines of fields {text, index}. Returns {json, shape, labels}, or null if the fields are no such table.
function tableOf(text, lines, separator) {
  const commas = (separator === ';' || separator === '\t') && !/\d\.|\.\d/.test(text); // decimal commas
  const read = (word) => (word ? jsonOf(commas ? word.replace(COMMA, '$1.') : word) : null); // null: an empty cell
  const values = lines.map((line) => line.map((field) => read(field.text.trim())));
  const isText = (value) => value === undefined;
  const every = values.flat();
  const numbers = every.filter((value) => value != null).length;
  if ((!separator || lines.length === 1) && (numbers < every.length || !/\d/.test(text))) return null;
  const corner = lines[0][0].text.trim() === '' || (isText(values[0][0]) && lines[0].length > 3 && areCounted(lines[0].slice(1)));
  const head = lines.length > 1 && (corner || separator === '|' || values[0].every((value) => value == null)) ? 1 : 0;
  const body = values.slice(head);
  const words = (col) => body.filter((row) => isText(row[col]) || (!col && row[col] === null)).length * (head ? 2 : 1) >= body.length;
  const counts = head && body.length > 1 && areCounted(lines.slice(1).map(([field]) => field));
  const index = (head && corner) || words(0) || counts ? 1 : 0;
  const labelled = index && !words(0) && words(1) && lines[0].length > 2 ? 2 : index; // words beside the numbers of rows are labels
  const cells = body.flatMap((row) => row.slice(labelled)).filter((value) => value !== null);
  const usable = cells.filter((value) => !isText(value)).length;
  if (!usable || (!corner && usable * 2 <= cells.length)) return null;
  const { length } = lines[0];
  const rows = body.map((row, at) => {
    const line = lines[at + head];
    if (row.length !== length)
      refuseLength(text, line[0].index, `Row ${at + head + 1}`, head || labelled ? 'field' : 'number', row.length, length);
    const empty = row.indexOf(null, labelled);
    if (empty >= 0)
      fail(`A table has a number in every cell, but row ${at + head + 1}, column ${empty + 1} is empty.`, { index: line[empty].index });
    row.forEach((value, col) => col < labelled || value || refuseWord(text, line[col].index, line[col].text.trim()));
    return written(row.slice(labelled), 2, true);
  });
  const labels = labelled ? lines.slice(head).map((line) => line[labelled - 1].text.replace(FORMULA, '')) : null;
  return { json: written(rows, 1), shape: [rows.length, length - labelled], labels };
}

const isWord = ({ json }) => json === undefined;
const areNumbers = (fields) => !fields.some(isWord);

// Splits a text at blanks into lines of fields {text, index, json}.
const linesOf = (text) =>
  Array.from(text.matchAll(/[^\r\n]+/g), ({ 0: line, index }) =>
    Array.from(line.matchAll(/\S+/g), (found) => ({ text: found[0], index: index + found.index, json: jsonOf(found[0]) })),
  ).filter(({ length }) => length);

// Returns how many columns the lines of a table have, and whether the first line names them, as {cols, head}. Returns null if the lines are
// no table. A name or a label may have blanks, so a column is where a name and all that is below it end. Such places are counted from the
// end of the line, because the blanks before the first name are easily lost.
function layoutOf([names, ...rows], isIndented) {
  const others = names.slice(1);
  if (!rows.length) return null;
  const isWhole = (fields) => fields.every(({ text }) => /^-?\d+$/.test(text));
  const isLike = (row) =>
    row.length === names.length && isWord(row[0]) && areNumbers(row.slice(1)) && (!isWhole(others) || isWhole(row.slice(1)));
  if (others.length > 1 && [names, ...rows].every(isLike) && !(others.length > 2 && areCounted(others)))
    return { cols: others.length, head: 0 };
  const named = names.some(isWord) || (rows.every(({ length }) => length > names.length) && (isIndented || areCounted(names)));
  if (!named) return null;
  // If no name has blanks, the numbers need not stand below the names.
  const { length } = names;
  if ((isIndented || length > 1) && rows.every((row) => row.length > length && areNumbers(row.slice(-length))))
    return { cols: length, head: 1 };
  const endsOf = (fields) => fields.map(({ text, index }) => fields.at(-1).index + fields.at(-1).text.length - index - text.length);
  const all = rows.map(endsOf);
  const sets = all.map((ends) => new Set(ends));
  let ends = endsOf(names).filter((end) => sets.every((set) => set.has(end)));
  const isLabel = (end) => rows.every((row, at) => all[at][0] === end && isWord(row[0]));
  if (isLabel(ends[0])) ends = ends.slice(1);
  const cols = ends.length;
  // A number at the end of a label of several words would be one of a column that is not found.
  const fits = rows.every((row, at) => all[at].at(-cols) === ends[0] && (row.length < cols + 2 || isWord(row.at(-cols - 1))));
  return cols && fits && (isIndented || cols > 1) ? { cols, head: 1 } : null;
}

// Reads a table as pandas prints it. Returns {json, shape, labels, form}, or null if the text is no such table.
function readPrint(text) {
  const lines = linesOf(text);
  const last = lines.at(-1)?.map((field) => field.text).join(' '); // prettier-ignore
  const cut = /^\[\d+ rows x \d+ columns\]$/.test(last);
  const series = /(?:^|, )dtype: \S+$/.test(last);
  if (cut || series) lines.pop();
  const wrapped = lines.filter((fields) => fields.length > 1 && fields.at(-1).text === '\\');
  wrapped.forEach((fields) => fields.pop());
  const gap = lines.flat().find((field) => GAP.test(field.text));
  const all = lines.slice(1).flat();
  if (gap && (cut || series || all.filter(isWord).length * 2 < all.length)) refuseWord(text, gap.index, gap.text);
  const size = lines.length / (1 + wrapped.length);
  if (!size || !Number.isInteger(size)) return null;
  // A wide table is printed in blocks of columns. The name of the index has a line of its own.
  const blocks = Array.from({ length: 1 + wrapped.length }, (_, at) => {
    const [first, ...rest] = lines.slice(at * size, (at + 1) * size);
    if (rest.length > 1 && rest[0].every(isWord)) rest.shift();
    const layout = series ? { cols: 1, head: areNumbers(first.slice(-1)) ? 0 : 1 } : layoutOf([first, ...rest], /\s/.test(text[first[0].index - 1]) && !/[\r\n]/.test(text[first[0].index - 1])); // prettier-ignore
    return layout && { ...layout, rows: layout.head ? rest : [first, ...rest] };
  });
  const [first] = blocks;
  if (blocks.some((block) => !block || block.rows.length !== first.rows.length)) return null;
  const { rows, cols, head } = first;
  const cells = rows.map((_, at) => blocks.flatMap((block) => block.rows[at].slice(-block.cols)));
  const flat = cells.flat();
  if (flat.filter(isWord).length * 2 > flat.length) return null;
  const label = (fields) => ({ text: text.slice(fields[0].index, fields.at(-cols).index).trim(), index: fields[0].index });
  const bare = rows.every((fields) => fields.length === cols);
  const table = [[{ text: '' }, ...cells[0]], ...rows.map((row, at) => [label(row), ...cells[at]])];
  const found = tableOf(text, bare ? cells : table, ',');
  return found && { ...found, form: head && !series ? 'A pandas table' : 'A table' };
}

const DATA = /^--(?:data(?:-raw|-binary|-ascii)?|json)$/; // options of curl that have the body
const VALUED = /^-[a-zA-Z]*?([AbcCdDeEFHKmoPQrtTuUwxXyYz])(.*)$/s; // a letter that takes a value, after letters that take none
const SHELL = /(\s+|\\\r?\n)|'([^']*)'|\$'((?:\\[^]|[^'\\])*)'|"((?:\\[^]|[^"\\])*)"|\\([^])|([^\s'"\\$]+|\$)/gy;
const ANSI = { n: '\n', t: '\t', r: '\r' }; // in $'…', which browsers write for a body with line ends

// Splits a command as a POSIX shell does. It ends before a pipe or another command.
function shellWords(text) {
  const words = [];
  let word = null;
  let end = 0;
  for (const [all, blank, single, ansi, double, escaped, plain] of text.matchAll(SHELL)) {
    end += all.length;
    if (blank === undefined && (word !== null || !/^[|;&>]/.test(plain))) {
      const unescape = (_, code) => (/^[ux]./.test(code) ? String.fromCharCode(parseInt(code.slice(1), 16)) : (ANSI[code] ?? code));
      const dollar = ansi?.replace(/\\(u[\da-f]{4}|x[\da-f]{2}|[^])/gi, unescape);
      word = (word ?? '') + (single ?? dollar ?? double?.replace(/\\([$`"\\])|\\\r?\n/g, '$1') ?? escaped ?? plain);
    } else if (word !== null) {
      words.push(word);
      word = null;
    }
    if (blank === undefined && word === null) return words;
  }
  if (end < text.length) refuse(text, end, 'Every quote needs another one', 'the end of the command without it');
  return word === null ? words : [...words, word];
}

// Reads a curl command. Returns {body, path, form}; path is that of its address. Returns null if it has neither.
function readCurl(text) {
  const words = shellWords(text);
  let [body, isFile, address] = ['', false];
  for (let at = words.indexOf('curl') + 1; at < words.length; at++) {
    const word = words[at];
    const [, letter, attached] = VALUED.exec(word) ?? [];
    const takes = letter ? attached === '' : DATA.test(word) || word === '--url';
    const value = takes ? words[++at] : attached;
    if (letter === 'd' || DATA.test(word)) [body, isFile] = body ? [body, isFile] : [value ?? '', word !== '--data-raw'];
    else if (word === '--url' || (!word.startsWith('-') && /^(?:https?:\/\/|[\w.-]+(?::\d+)?\/|[\w.-]+:\d+)/.test(word))) address ??= value ?? word; // prettier-ignore
  }
  if (!body && !address) return null;
  if (!body) refuse(text, 0, 'The body of a curl command stands after -d', 'a command without one');
  const file = isFile && body.startsWith('@') && body.slice(1);
  if (file)
    fail(`The command sends the file ${shown(file)}. A page cannot read it: open the file or drop it here.`, { index: text.indexOf(body) });
  return { body, path: address && /^(?:\w+:\/\/)?[^/?#]*([^?#]*)/.exec(address)[1], form: 'A curl command' };
}

// Replaces the prompts of Python and IPython and the fences of Markdown by blanks, and a name that was asked for by `name =`. No place in the
// text changes.
function withoutPrompts(text) {
  if (!/^\s*(?:Out\[|In \[|>>>|```)/.test(text)) return text;
  return text
    .replace(/^(?:In \[\d+\]:|>>>)[ \t]*(?:print\()?([a-z_][\w.]*)\)?[ \t]*$/gim, (all, name) => `${name} =`.padEnd(all.length))
    .replace(/^(?:In \[\d+\]:|Out\[\d+\]:|>>>|[ \t]*\.\.\.:|\.\.\.(?= )|```\w*)/gm, (all) => ' '.repeat(all.length));
}

// The forms of tables in the order in which they are tried: [form in words, what stands between fields, what splits the text into fields].
// The print of pandas has no separator, and its reader says its form.
const FORMS = [
  ...[['A Markdown table', '|', pipedOf], ['A table', '\t', fieldsOf], ['CSV', ';', fieldsOf], ['CSV', ',', fieldsOf]], // prettier-ignore
  ...[[], ['A table', '', linesOf]], // prettier-ignore
];

// Reads a text that stands in place of a request. Returns null if it is JSON or meant to be; {body, path, form} for a curl command and for
// JSON between fences, where path may be undefined; {matrices: [[name, JSON, shape], ...], labels, form}, where a name or the list of row
// labels may be null; or {words}, which are a sentence. form: what the text is, in words. Throws an Error with a sentence and the index of the
// place in the text if the text is a matrix or a command that cannot be used.
export function readPasted(given) {
  const text = withoutPrompts(given);
  if (/^\s*\{/.test(text)) return text === given ? null : { body: text.trim(), form: 'JSON' };
  const command = /^\s*(?:\$\s+)?curl\s/.test(text) && readCurl(text);
  if (command) return command;
  const matrices = readArrays(text);
  if (matrices?.length) return { matrices, labels: null, form: 'An array' };
  const [head, name = null] = /^\s*([a-z_][\w.]*) =[ \t]*(?=[\r\n])/i.exec(text) ?? [''];
  const rest = ' '.repeat(head.length) + text.slice(head.length);
  let failure = null;
  for (const [form, separator, split] of FORMS) {
    try {
      const lines = split && rest.includes(separator) && split(rest, separator);
      const table = split ? lines && tableOf(rest, lines, separator) : readPrint(rest);
      if (table) return { matrices: [[name, table.json, table.shape]], labels: table.labels, form: form ?? table.form };
    } catch (error) {
      failure ??= error;
      if (separator === '\t') break; // nothing else has tabs between numbers
    }
  }
  if (failure) throw failure;
  const count = (pattern) => given.match(pattern)?.length ?? 0;
  if (count(/[#-&(-,/:->@[-`{-~]/g) > count(/[\p{L}\p{M}\p{N}]/gu))
    refuse(given, given.search(/\S/), 'A sentence has more letters than signs', shown(given.trim()));
  return { words: given.replace(/\s+/g, ' ').trim() };
}
