// What is typed into an option's field, as the JSON text it means. Says whether it can be read; whether the number will do, the
// server says. Pure.

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const FRACTION = /^([^/]+)\/\s*(?:sqrt\s*\(([^()]+)\)|√\s*\(([^()]+)\)|√([^()]+)|([^()]+))$/i;

// A number, or NaN for what is none or none that JSON can write.
function read(text) {
  const value = NUMBER.test(text.trim()) ? Number(text) : NaN;
  return Number.isFinite(value) ? value : NaN;
}

function readFraction(text) {
  const [, over, ...under] = FRACTION.exec(text.trim()) ?? [];
  if (over === undefined) return read(text);
  const [word, bracket, root, plain] = under;
  const value = read(over) / (plain === undefined ? Math.sqrt(read(word ?? bracket ?? root)) : read(plain));
  return Number.isFinite(value) ? value : NaN;
}

const result = (value) => (Number.isNaN(value) ? null : String(value));
const empty = (text) => text.trim() === '';

// Each gives JSON text, undefined for an empty field, null for what it cannot read.
export const number = (text) => (empty(text) ? undefined : result(read(text)));
export const fraction = (text) => (empty(text) ? undefined : result(readFraction(text)));

export function whole(text) {
  const value = number(text);
  return value && !Number.isSafeInteger(Number(value)) ? null : value;
}

// Numbers between commas or spaces: one alone, or an array; one(text) reads one of them.
export function list(text, one = number) {
  const parts = text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map(one);
  if (!parts.length) return undefined;
  if (parts.includes(null)) return null;
  return parts.length === 1 ? parts[0] : `[${parts.join(', ')}]`;
}
