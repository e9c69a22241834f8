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

export class Scanner {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  space() {
    while (' \n\r\t'.includes(this.text[this.at]) && this.at < this.text.length) this.at++;
  }

  fail() {
    throw new SyntaxError(`not JSON at ${this.at}`);
  }

  expect(character) {
    this.space();
    if (this.text[this.at] !== character) this.fail();
    this.at++;
  }

  string() {
    const start = this.at;
    this.expect('"');
    for (; this.text[this.at] !== '"'; this.at++) {
      if (this.at >= this.text.length) this.fail();
      if (this.text[this.at] === '\\') this.at++;
    }
    this.at++;
    return JSON.parse(this.text.slice(start, this.at));
  }

  // Steps over the object or array that begins here. It calls visit(key, start, end, keyStart) for each member, and stops if visit returns
  // true.
  members(visit) {
    const isObject = this.text[this.at] === '{';
    const close = isObject ? '}' : ']';
    this.at++;
    this.space();
    for (let index = 0; this.text[this.at] !== close; index++) {
      if (index) this.expect(',');
      this.space();
      const keyStart = this.at;
      const key = isObject ? this.string() : String(index);
      if (isObject) this.expect(':');
      this.space();
      const start = this.at;
      this.skip();
      if (visit?.(key, start, this.at, keyStart)) return;
      this.space();
    }
    this.at++;
  }

  // Steps over the value that begins here.
  skip() {
    const first = this.text[this.at];
    if (first === '"') this.string();
    else if (first === '{' || first === '[') this.nested();
    else {
      const start = this.at;
      while (this.at < this.text.length && !',]} \n\r\t'.includes(this.text[this.at])) this.at++;
      if (start === this.at) this.fail();
    }
  }

  // Steps over an object or array by counting brackets only, because it may have megabytes of numbers.
  nested() {
    const { text } = this;
    let depth = 0;
    do {
      const code = text.charCodeAt(this.at);
      if (code === 34) {
        this.string();
        continue;
      }
      if (code === 91 || code === 123) depth++;
      if (code === 93 || code === 125) depth--;
      if (Number.isNaN(code)) this.fail();
      this.at++;
    } while (depth);
  }
}

// Returns the top-level members of an object as a Map of key -> {start, end, keyStart}. Returns null if the text is no object.
export function members(text) {
  const scanner = new Scanner(text);
  const found = new Map();
  try {
    scanner.space();
    if (text[scanner.at] !== '{') return null;
    scanner.members((key, start, end, keyStart) => void found.set(key, { start, end, keyStart }));
    scanner.space();
    return scanner.at === text.length ? found : null;
  } catch {
    return null;
  }
}

// Returns the place {start, end} that a pointer of RFC 6901 names. If it names nothing, the place is that of the deepest part of the
// pointer that names something. Returns null if the text is not JSON.
export function locate(text, pointer) {
  const scanner = new Scanner(text);
  try {
    scanner.space();
    let place = { start: scanner.at, end: text.trimEnd().length };
    for (const part of pointer.split('/').slice(1)) {
      const wanted = part.replaceAll('~1', '/').replaceAll('~0', '~');
      let found = null;
      scanner.at = place.start;
      if (!'{['.includes(text[scanner.at])) return place;
      scanner.members((key, start, end, keyStart) => {
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
