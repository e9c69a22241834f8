// snippets.js - a request as code to paste: curl, Python with nothing but its standard library, JavaScript.
//
// The body stands in the code byte for byte, in the raw string of the language where that can hold it, else escaped. A long
// one is not pasted: the code then reads body.json, and its first line says so.

const LONG = 4000;

// For a POSIX shell: inside single quotes nothing but the quote itself is special.
const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;

// JSON's strings are strings of Python and of JavaScript, too; what ends a line somewhere is escaped.
const quoted = (text) => JSON.stringify(text).replace(/[\u0085\u2028\u2029\u007f]/g, escaped);

// What no raw string of either language holds: a carriage return becomes a line feed, a backslash at the end escapes the quote.
const tooRaw = /[\r\u0000]|\\$/;

function python(text) {
  return tooRaw.test(text) || text.includes("'''") || text.endsWith("'") ? quoted(text) : `r'''${text}'''`;
}

function javascript(text) {
  return tooRaw.test(text) || /`|\$\{/.test(text) ? quoted(text) : `String.raw\`${text}\``;
}

// Matrices of numbers a row on a line, as people write them; the rest on one line.
export function format(value) {
  if (value === null || typeof value !== 'object') {
    return JSON.stringify(value);
  }
  const parts = Array.isArray(value)
    ? value.map(format)
    : Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}: ${format(member)}`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  const flat = `${open}${parts.join(', ')}${close}`;
  const nested = Array.isArray(value) ? value.some(Array.isArray) : flat.length > 78;
  if (!nested || parts.length === 0) {
    return flat;
  }
  return `${open}\n${parts.map((part) => `  ${part.replaceAll('\n', '\n  ')}`).join(',\n')}\n${close}`;
}

const writers = {
  curl: ({ url, text, key }) =>
    [
      ...(text === null ? ['# The request is in body.json: download it first.'] : []),
      `curl ${shell(url)} -H 'Content-Type: application/json' \\`,
      ...(key ? [`  -H "Authorization: Bearer $ATTENTIOND_KEY" \\`] : []),
      text === null ? '  --data-binary @body.json' : `  --data-raw ${shell(text)}`,
    ],
  python: ({ url, text, key }) => [
    ...(text === null ? ['# The request is in body.json: download it first.'] : []),
    'import json',
    ...(key ? ['import os'] : []),
    'from urllib.request import Request, urlopen',
    '',
    text === null ? "body = open('body.json', 'rb').read()" : `body = ${python(text)}.encode()`,
    "headers = {'Content-Type': 'application/json'}",
    ...(key ? ["headers['Authorization'] = 'Bearer ' + os.environ['ATTENTIOND_KEY']"] : []),
    `with urlopen(Request(${quoted(url)}, body, headers)) as response:`,
    '    answer = json.load(response)',
    'print(json.dumps(answer))',
  ],
  javascript: ({ url, text, key }) => [
    ...(text === null
      ? ['// The request is in body.json: download it first. A module of Node.js; a page takes it from a file input.']
      : []),
    ...(text === null ? ["import { readFile } from 'node:fs/promises';", ''] : []),
    `const body = ${text === null ? "await readFile('body.json')" : javascript(text)};`,
    "const headers = { 'Content-Type': 'application/json' };",
    ...(key ? ['headers.Authorization = `Bearer ${process.env.ATTENTIOND_KEY}`;'] : []),
    `const response = await fetch(${quoted(url)}, { method: 'POST', headers, body });`,
    'const answer = await response.json();',
    'if (!response.ok) throw new Error(answer.detail);',
    'console.log(JSON.stringify(answer));',
  ],
};

// The code that sends `body` (an object, or the very text) to base + path and prints the answer. language: 'curl', 'python'
// or 'javascript' (a module: Node.js 18 or a browser). With `key` it sends the key that the environment variable ATTENTIOND_KEY
// holds; the key itself never stands in the code. Where `inFile(body)`, it reads body.json.
export function snippet(language, { base, path, body, key = false }) {
  const text = bodyText(body);
  const url = `${base.replace(/\/$/, '')}${path}`;
  return `${writers[language]({ url, text: isLong(text) ? null : text, key }).join('\n')}\n`;
}

// The text of a body as snippets have it, also what to save as body.json.
export const bodyText = (body) => (typeof body === 'string' ? body : format(body));

// Whether the code for this body reads body.json.
export const inFile = (body) => isLong(bodyText(body));

const isLong = (text) => text.length > LONG;
