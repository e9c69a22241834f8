// attentiond.js is a client of attentiond, the service that computes attention. It needs Node.js 18 or later, or a browser,
// and no package. A page from another origin than the service needs the daemon's option --cors-origins.

const TRIES = 5;
const LONGEST_WAIT = 30; // seconds between two tries, whatever the service says
const EXACT = 2n ** 53n; // the service reads numbers of JSON as float64, which has no larger integers with all digits
const SAFETENSORS = 'application/vnd.safetensors';
const TYPES = { F32: Float32Array, F64: Float64Array, I64: BigInt64Array, I32: Int32Array, U8: Uint8Array, BOOL: Uint8Array };

// The service refused a request, or did not answer. `status` is that of HTTP, or 0 without an answer. `pointer` names the wrong
// part of the request (a JSON pointer), and the log of the service has the `requestId`.
export class ServiceError extends Error {
  constructor(status, detail, pointer = '', requestId = '', options = {}) {
    super([status || '', detail, pointer].filter(Boolean).join(' '), options);
    Object.assign(this, { name: 'ServiceError', status, detail, pointer, requestId });
  }
}

export class Client {
  // `timeout` is the number of seconds that one try may take, and an answer may have `maxAnswer` bytes.
  constructor(baseUrl = 'http://127.0.0.1:8080', { apiKey = '', timeout = 60, maxAnswer = 2 ** 30 } = {}) {
    Object.assign(this, { baseUrl: baseUrl.replace(/\/+$/, ''), apiKey, timeout, maxAnswer });
  }

  // Sends a request as JSON, or GET without a request, and returns the answer. −∞ is -Infinity on both sides.
  async ask(path, request) {
    const body = request === undefined ? undefined : JSON.stringify(optionsFirst(request), toJson);
    const answer = await this.#send(path, body, 'application/json');
    try {
      return fromJson(JSON.parse(new TextDecoder().decode(answer)));
    } catch (cause) {
      throw new ServiceError(200, `the answer of ${this.baseUrl}${path} is not JSON`, '', '', { cause });
    }
  }

  // Sends tensors as bytes, and returns the results by their names. A tensor is { shape, data }, and `data` has the numbers in
  // the order of the rows, in one of the arrays of TYPES. A mask is { dtype: 'BOOL', shape, data: Uint8Array }. A comparison and
  // lists of words need ask().
  async tensors(path, tensors, options = {}) {
    const answer = await this.#send(path, pack(tensors, options), SAFETENSORS);
    try {
      return unpack(answer);
    } catch (cause) {
      throw new ServiceError(200, `the answer of ${this.baseUrl}${path} cannot be read: ${cause.message}`, '', '', { cause });
    }
  }

  // Sends tensors as bytes, with expected results such as `expected.output`, and returns the comparison, as JSON has it.
  async compare(path, tensors, options = {}) {
    const answer = await this.#send(path, pack(tensors, { return: ['comparison'], ...options }), SAFETENSORS, 'application/json');
    try {
      return JSON.parse(new TextDecoder().decode(answer)).comparison;
    } catch (cause) {
      throw new ServiceError(200, `the answer of ${this.baseUrl}${path} is not JSON`, '', '', { cause });
    }
  }

  async #send(path, body, kind, accept) {
    const headers = body === undefined ? {} : { 'Content-Type': kind };
    if (accept) headers.Accept = accept;
    const key = this.apiKey.trim();
    if (/[^ -~]/.test(key)) throw new TypeError('the API key has a character that cannot be sent');
    if (key) headers.Authorization = `Bearer ${key}`;
    for (let tries = 1; ; tries++) {
      const signal = AbortSignal.timeout(Math.min(Math.ceil(1000 * this.timeout), 2147483647));
      // A request and its API key go to no other address.
      const request = { method: body === undefined ? 'GET' : 'POST', headers, body, signal, redirect: 'manual' };
      let response;
      let answer;
      try {
        response = await fetch(this.baseUrl + path, request).catch((cause) => {
          // The service may have closed a connection that Node.js was about to use again. Browsers ask again themselves.
          if (!['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'].includes(cause.cause?.code)) throw cause;
          return fetch(this.baseUrl + path, request);
        });
        answer = await read(response, this.maxAnswer);
      } catch (cause) {
        if (cause instanceof ServiceError) throw cause;
        const reason = signal.aborted ? `timed out after ${this.timeout} s` : cause.cause?.message || cause.message;
        throw new ServiceError(0, `no answer from ${this.baseUrl}: ${reason}`, '', '', { cause });
      }
      if (response.ok) return answer;
      const wait = response.headers.get('Retry-After'); // given if the same request may succeed later
      if (response.status !== 503 || wait === null || tries === TRIES) throw problem(response, answer);
      const seconds = Math.min(/^\d+$/.test(wait) ? Number(wait) : 1, LONGEST_WAIT);
      await new Promise((wake) => setTimeout(wake, 1000 * seconds));
    }
  }
}

// Returns the body of an answer, up to so many bytes.
async function read(response, most) {
  const parts = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (let next = await reader?.read(); next && !next.done; next = await reader.read()) {
    parts.push(next.value);
    size += next.value.length;
    if (size <= most) continue;
    reader.cancel().catch(() => {}); // it is given up
    throw new ServiceError(response.status, `the answer has more than ${most} bytes`);
  }
  return join(parts, size).buffer;
}

function join(parts, size) {
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// Returns the error of an answer. Proxies say what they like in place of a problem document.
function problem(response, answer) {
  let said = {};
  try {
    said = Object.entries(JSON.parse(new TextDecoder().decode(answer))).filter(([, value]) => typeof value === 'string');
    said = Object.fromEntries(said);
  } catch {
    // It is not JSON.
  }
  const detail = said.detail ?? said.error ?? (response.statusText || 'the answer is no problem document');
  return new ServiceError(response.status, detail, said.pointer, response.headers.get('X-Request-Id') ?? '');
}

// Returns the members of a request with its matrices last, so that the service knows the options when it reads them.
function optionsFirst(request) {
  const isMatrix = ([, value]) => Array.isArray(value) || ArrayBuffer.isView(value);
  const members = Object.entries(request);
  return Object.fromEntries([...members.filter((member) => !isMatrix(member)), ...members.filter(isMatrix)]);
}

// JSON.stringify() itself writes null for -Infinity, but also for NaN and Infinity. Typed arrays become arrays.
function toJson(key, value) {
  if (ArrayBuffer.isView(value)) return Array.from(value);
  if (typeof value === 'bigint') {
    if (value > EXACT || value < -EXACT) throw new RangeError(`${value} is an integer beyond 2^53, which loses digits in JSON`);
    return Number(value);
  }
  if (Number.isNaN(value) || value === Infinity) throw new RangeError(`${value} has no form in JSON`);
  return value;
}

// Replaces null by -Infinity in arrays. In a comparison null means another thing.
function fromJson(value) {
  if (Array.isArray(value)) return value.map((member) => (member === null ? -Infinity : fromJson(member)));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, key === 'comparison' ? member : fromJson(member)]));
}

// Returns safetensors: the length of a JSON text, the text, and the bytes of the tensors. All processors that run JavaScript
// today are little-endian, as safetensors are.
function pack(tensors, options) {
  const metadata = Object.entries(options).map(([name, value]) => [name, JSON.stringify(value, toJson)]);
  const head = [['__metadata__', Object.fromEntries(metadata)]];
  const parts = [];
  let at = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    const type = dtype ?? Object.keys(TYPES).find((key) => data instanceof TYPES[key]);
    if (!TYPES[type] || !(data instanceof TYPES[type])) {
      const wanted = TYPES[type]?.name ?? 'Float32Array, Float64Array, BigInt64Array, Int32Array or Uint8Array';
      throw new TypeError(`the data of ${name} is a ${data?.constructor.name}, not a ${wanted}`);
    }
    if (shape.reduce((a, b) => a * b, 1) !== data.length) throw new RangeError(`the data of ${name} does not fit its shape`);
    head.push([name, { dtype: type, shape, data_offsets: [at, at + data.byteLength] }]);
    parts.push(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    at += data.byteLength;
  }
  const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(head)));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true);
  return join([length, text, ...parts], 8 + text.length + at);
}

function unpack(answer) {
  const start = 8 + Number(new DataView(answer).getBigUint64(0, true));
  if (start > answer.byteLength) throw new RangeError('it is cut');
  const head = JSON.parse(new TextDecoder().decode(answer.slice(8, start)));
  if (Array.isArray(head)) throw new TypeError('its header is no object');
  const isSize = (size) => Number.isSafeInteger(size) && size >= 0;
  const results = Object.entries(head).flatMap(([name, { dtype, shape, data_offsets }]) => {
    if (name === '__metadata__') return [];
    if (!TYPES[dtype]) throw new TypeError(`${name} has the type ${dtype}; the option "dtype": "float32" avoids it`);
    const [begin, end] = data_offsets;
    const bytes = shape.reduce((a, b) => a * b, TYPES[dtype].BYTES_PER_ELEMENT);
    if (![begin, end, ...shape].every(isSize) || end - begin !== bytes || start + end > answer.byteLength)
      throw new RangeError(`${name} is cut`);
    return [[name, { dtype, shape, data: new TYPES[dtype](answer.slice(start + begin, start + end)) }]];
  });
  return Object.fromEntries(results);
}
