// snippets.js writes a request as code: for curl, Python (with its standard library only) or JavaScript.
//
// The code has the body byte for byte. The body is a raw string of the language if a raw string can hold it, and otherwise an escaped
// string. The code of a long body reads the file body.json, and its first line says so. The body of a request with matrices of files is
// request.safetensors.
import { hasHeld } from './request.js';

const JSON_TYPE = 'application/json';
const LONG = 4000; // characters; a longer body is read from body.json

// Quotes a text for a POSIX shell. Inside single quotes, only the single quote is special.
export const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// Quotes a text for Python and JavaScript. A string of JSON is also a string of both languages. Characters that end a line in one of them
// are escaped.
const quoted = (text) =>
  JSON.stringify(text).replace(/[\u0085\u2028\u2029\u007f]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

// Texts that no raw string of either language can hold: a carriage return would become a line feed, and a backslash at the end would escape
// the quote.
const tooRaw = /[\r\u0000]|\\$/;

const python = (text) => (tooRaw.test(text) || /'''|'$/.test(text) ? quoted(text) : `r'''${text}'''`);

const javascript = (text) => (tooRaw.test(text) || /`|\$\{/.test(text) ? quoted(text) : `String.raw\`${text}\``);

// Writes JSON with each row of a matrix on a line of its own.
export function formatJSON(value) {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const parts = Array.isArray(value)
    ? value.map(formatJSON)
    : Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}: ${formatJSON(member)}`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  const flat = `${open}${parts.join(', ')}${close}`;
  const nested = Array.isArray(value) ? value.some(Array.isArray) : flat.length > 78;
  if (!nested || parts.length === 0) return flat;
  return `${open}\n${parts.map((part) => `  ${part.replaceAll('\n', '\n  ')}`).join(',\n')}\n${close}`;
}

// The lines of the code in each language. What is null or false is no line.
const writers = {
  curl: ({ url, text, key, file, types }) => [
    file && `# The request is in ${file}: download it first.`,
    `curl ${shell(url)}${types.map((type) => ` -H '${type}'`).join('')} \\`,
    key && `  -H "Authorization: Bearer $ATTENTIOND_KEY" \\`,
    file ? `  --data-binary @${file}` : `  --data-raw ${shell(text)}`,
  ],
  python: ({ url, text, key, file, headers }) => [
    file && `# The request is in ${file}: download it first.`,
    text && 'import json',
    key && 'import os',
    'from urllib.error import HTTPError',
    'from urllib.request import Request, urlopen\n',
    text && `body = ${file ? `open('${file}', 'rb').read()` : `${python(text)}.encode()`}`,
    `headers = {${headers}}`,
    key && "headers['Authorization'] = 'Bearer ' + os.environ['ATTENTIOND_KEY']",
    'try:',
    text
      ? `    answer = json.load(urlopen(Request(${quoted(url)}, body, headers)))`
      : `    print(urlopen(Request(${quoted(url)}, headers=headers)).read().decode())`,
    'except HTTPError as error:',
    "    raise SystemExit(f'{error.code} {error.read().decode()}')",
    text && 'print(json.dumps(answer))',
  ],
  javascript: ({ url, text, key, file, headers }) => [
    file && `// The request is in ${file}: download it first. A module of Node.js; a page takes it from a file input.`,
    file && "import { readFile } from 'node:fs/promises';\n",
    text && `const body = ${file ? `await readFile('${file}')` : javascript(text)};`,
    `const headers = { ${headers} };`,
    key && 'headers.Authorization = `Bearer ${process.env.ATTENTIOND_KEY}`;',
    `const response = await fetch(${quoted(url)}, { ${text ? "method: 'POST', headers, body" : 'headers'} });`,
    `const answer = ${text ? 'JSON.stringify(await response.json())' : 'await response.text()'};`,
    'if (!response.ok) console.error(response.status, answer);',
    'else console.log(answer);',
  ],
};

// Returns the code that sends `body` (an object, or its text) to base + path and prints the answer. Without a body it is a GET, whose answer
// need not be JSON; curl always has a body. language: 'curl', 'python' or 'javascript' (a module for Node.js 18 or a browser). key: whether the
// code sends the key in the environment variable ATTENTIOND_KEY; the key itself is never in the code.
export function snippet(language, { base, path, body, key = false }) {
  const text = bodyText(body);
  const file = fileOf(text);
  const held = ['Content-Type: application/vnd.safetensors', `Accept: ${JSON_TYPE}`];
  const types = hasHeld(text) ? held : text ? [`Content-Type: ${JSON_TYPE}`] : [];
  const headers = types.map((type) => `'${type.replace(': ', "': '")}'`).join(', ');
  return `${writers[language]({ url: base.replace(/\/$/, '') + path, text, key, file, types, headers })
    .filter(Boolean)
    .join('\n')}\n`;
}

export const bodyText = (body = '') => (typeof body === 'string' ? body : formatJSON(body));

// Returns the name of the file that the code for this text of a body reads, or null if the body is in the code.
export const fileOf = (text) => (hasHeld(text) ? 'request.safetensors' : text.length > LONG ? 'body.json' : null);
