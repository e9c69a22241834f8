// jsontext.js finds the members of JSON in its text, and edits the text so that the rest stays as the user wrote it. It accepts -Infinity,
// because Python writes it. It does not know what the members mean.

// Returns the value of a text, with null for -Infinity. Returns undefined if the text is not JSON.
export function parse(text) {
  for (const attempt of [text, text.replace(/([[,:\s])-Infinity(?=[\s,\]}])/g, '$1null')]) {
    try {
      return JSON.parse(attempt);
    } catch {
      // The next attempt follows, if there is one.
    }
  }
  return undefined;
}

const SPACE = /[ \n\r\t]*/y;
const COMMA = /[ \n\r\t]*,[ \n\r\t]*/y;
const COLON = /[ \n\r\t]*:[ \n\r\t]*/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const WORD = /[^,\]} \n\r\t]+/y; // a number, true, false or null
const BRACKET = /["[\]{}]/g; // the next one, or the next string

// Returns the index after what an expression matches.
function after(pattern, text, at) {
  pattern.lastIndex = at;
  if (!pattern.test(text)) throw new SyntaxError(`not JSON at ${at}`);
  return pattern.lastIndex;
}

// Returns the index after the value that begins at `at`. In an array or object it only counts brackets, because there may be megabytes of
// numbers.
function afterValue(text, at) {
  if (text[at] === '"') return after(STRING, text, at);
  if (!'[{'.includes(text[at])) return after(WORD, text, at);
  let next = at;
  let depth = 0;
  do {
    next = after(BRACKET, text, next);
    const bracket = text[next - 1];
    if (bracket === '"') next = after(STRING, text, next - 1);
    else depth += '[{'.includes(bracket) ? 1 : -1;
  } while (depth);
  return next;
}

// Steps over the object or array that begins at `from`, and returns the index after it. It calls visit(key, start, end, keyStart) for each
// member, and stops if visit returns true.
export function scan(text, from, visit) {
  const isObject = text[from] === '{';
  let at = after(SPACE, text, from + 1);
  for (let index = 0; text[at] !== (isObject ? '}' : ']'); index++) {
    const keyStart = index ? after(COMMA, text, at) : at;
    const keyEnd = isObject ? after(STRING, text, keyStart) : keyStart;
    const key = isObject ? JSON.parse(text.slice(keyStart, keyEnd)) : String(index);
    const start = isObject ? after(COLON, text, keyEnd) : keyEnd;
    const end = afterValue(text, start);
    if (visit(key, start, end, keyStart)) return end;
    at = after(SPACE, text, end);
  }
  return at + 1;
}

// Returns the top-level members of an object as a Map of key -> {start, end, keyStart}. Returns null if the text is no object.
export function members(text) {
  const found = new Map();
  try {
    const first = after(SPACE, text, 0);
    if (text[first] !== '{') return null;
    const last = scan(text, first, (key, start, end, keyStart) => void found.set(key, { start, end, keyStart }));
    return after(SPACE, text, last) === text.length ? found : null;
  } catch {
    return null;
  }
}

// Returns the place {start, end} that a pointer of RFC 6901 names. If it names nothing, the place is that of the deepest part of the
// pointer that names something. Returns null if the text is not JSON.
export function locate(text, pointer) {
  try {
    let place = { start: after(SPACE, text, 0), end: text.trimEnd().length };
    for (const part of pointer.split('/').slice(1)) {
      const wanted = part.replaceAll('~1', '/').replaceAll('~0', '~');
      let found = null;
      if (!'{['.includes(text[place.start])) return place;
      scan(text, place.start, (key, start, end, keyStart) => {
        if (key === wanted) found = { start, end, keyStart };
        return found !== null;
      });
      if (!found) return place;
      place = found;
    }
    return { start: place.keyStart ?? place.start, end: place.end };
  } catch {
    return null;
  }
}

// Returns the text with a top-level member set to a value (JSON text), or without the member if the value is undefined. A new member goes
// to the end, or to the beginning if `first` is true.
export function withMember(text, key, value, first = false) {
  const all = members(text);
  if (!all) return text;
  const member = all.get(key);
  if (value === undefined) {
    if (!member) return text;
    const before = text.slice(0, member.keyStart);
    const after = text.slice(member.end);
    return /,\s*$/.test(before) ? before.replace(/,\s*$/, '') + after : before + after.replace(/^\s*,\s*/, '');
  }
  if (member) return text.slice(0, member.start) + value + text.slice(member.end);
  if (first && all.size) {
    const { keyStart } = all.values().next().value;
    const gap = text.slice(text.indexOf('{') + 1, keyStart);
    return `${text.slice(0, keyStart)}${JSON.stringify(key)}: ${value},${gap || ' '}${text.slice(keyStart)}`;
  }
  const brace = text.lastIndexOf('}');
  const body = text.slice(0, brace).trimEnd();
  const separator = all.size ? ',' : '';
  const lines = body.includes('\n');
  return `${body}${separator}${lines ? '\n  ' : ' '}${JSON.stringify(key)}: ${value}${lines ? '\n' : ''}${text.slice(brace)}`;
}

// Returns the index in a text (UTF-16) of a byte of its UTF-8.
export function indexOfByte(text, byte) {
  const bytes = new TextEncoder().encode(text);
  return new TextDecoder().decode(bytes.subarray(0, byte)).length;
}
