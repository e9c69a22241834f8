// fieldtext.js turns the text of an option's field into JSON text. It checks only that the text can be read; the server checks whether
// the number is allowed. It needs no page.

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const FRACTION = /^([^/]+)\/\s*(?:sqrt\s*\(([^()]+)\)|√\s*\(([^()]+)\)|√([^()]+)|([^()]+))$/i;

// Returns the number that a text is, or NaN if it is no number or one that JSON cannot write.
function numberIn(text) {
  const value = NUMBER.test(text.trim()) ? Number(text) : NaN;
  return Number.isFinite(value) ? value : NaN;
}

function fractionIn(text) {
  const [, over, ...under] = FRACTION.exec(text.trim()) ?? [];
  if (over === undefined) return numberIn(text);
  const [word, bracket, root, plain] = under;
  const value = numberIn(over) / (plain === undefined ? Math.sqrt(numberIn(word ?? bracket ?? root)) : numberIn(plain));
  return Number.isFinite(value) ? value : NaN;
}

const result = (value) => (Number.isNaN(value) ? null : String(value));
const empty = (text) => text.trim() === '';

// These functions return JSON text, undefined for an empty field, or null for a text that they cannot read.
export const readNumber = (text) => (empty(text) ? undefined : result(numberIn(text)));
export const readFraction = (text) => (empty(text) ? undefined : result(fractionIn(text)));

export function readWhole(text) {
  const value = readNumber(text);
  return value && !Number.isSafeInteger(Number(value)) ? null : value;
}

// Reads numbers between commas or spaces. One number stays a number; several become an array. one(text) reads each of them.
export function readList(text, one = readNumber) {
  const words = text.split(/[\s,]+/).filter(Boolean);
  const parts = words.map(one);
  if (!parts.length) return undefined;
  if (parts.includes(null)) return null;
  return parts.length === 1 ? parts[0] : `[${parts.join(', ')}]`;
}
