// attentiond.test.js tests the client against the daemon at $ATTENTIOND_URL: ATTENTIOND_URL=http://127.0.0.1:8080 node --test
// It tests tries, time-outs and broken answers against tests/clients/own/stub.py, if $ATTENTIOND_STUB_URL has its address.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, ServiceError } from './attentiond.js';

const { ATTENTIOND_URL: URL, ATTENTIOND_STUB_URL: STUB } = process.env;
const client = new Client(`${URL}/`, { timeout: 30 });

// Numbers that float32 holds exactly.
const matrix = (rows, columns, seed) =>
  Array.from({ length: rows }, (_, i) =>
    Array.from({ length: columns }, (_, j) => Math.floor(Math.sin(seed + i * columns + j) * 1024) / 512),
  );
const given = { Q: matrix(3, 4, 1), K: matrix(5, 4, 20), V: matrix(5, 2, 50) };
const mask = [0, 1, 2].map((i) => [0, 1, 2, 3, 4].map((j) => (i + j) % 3 !== 0));

// Attention where a query i sees a key j if sees(i, j).
function attention(sees) {
  const masked_scores = given.Q.map((q, i) =>
    given.K.map((k, j) => (sees(i, j) ? q.reduce((sum, a, c) => sum + a * k[c], 0) / 2 : -Infinity)),
  );
  const weights = masked_scores.map((row) => {
    const sum = row.reduce((all, score) => all + Math.exp(score), 0);
    return row.map((score) => Math.exp(score) / sum);
  });
  const output = weights.map((row) => [0, 1].map((c) => row.reduce((sum, weight, j) => sum + weight * given.V[j][c], 0)));
  return { masked_scores, weights, output };
}

function near(got, rows, bound = 1e-5) {
  const expected = rows.flat();
  assert.equal(got.length, expected.length);
  got.forEach((number, i) =>
    assert.ok(number === expected[i] || Math.abs(number - expected[i]) <= bound, `${number} is not ${expected[i]}`),
  );
}

const tensor = (rows, type = Float32Array) => ({ shape: [rows.length, rows[0].length], data: type.from(rows.flat()) });
const tensors = (rows = given, type = Float32Array) =>
  Object.fromEntries(Object.keys(rows).map((name) => [name, tensor(rows[name], type)]));

async function refused(status, text, promise) {
  const error = await promise.then(
    () => assert.fail('it is not refused'),
    (reason) => reason,
  );
  assert.ok(error instanceof ServiceError, String(error));
  assert.equal(error.status, status);
  assert.match(error.detail, text);
  return error;
}

test('JSON', async () => {
  const names = ['masked_scores', 'weights', 'output'];
  const answer = await client.ask('/attention', { ...given, causal: true, return: names });
  const expected = attention((i, j) => j <= i);
  names.forEach((name) => near(answer[name].flat(), expected[name]));
  const bias = mask.map((row) => Float32Array.from(row, (sees) => (sees ? 0 : -Infinity)));
  near((await client.ask('/attention', { ...given, bias })).weights.flat(), attention((i, j) => mask[i][j]).weights);
  assert.ok((await client.ask('/version')).version);
});

test('null in a comparison', async () => {
  const expected = { output: [[...matrix(2, 2, 9), [1, -Infinity]]] };
  const { comparison } = await client.ask('/attention', { Q: [given.Q], K: [given.K], V: [given.V], expected });
  assert.deepEqual(comparison.results.output.head_errors, [null]); // it is +∞ here
});

test('a comparison of bytes', async () => {
  const { output } = attention(() => true);
  for (const off of [0, 1]) {
    const expected = tensor(output.map((row) => row.map((number) => number + off)));
    const { within_tolerance } = await client.compare('/attention', { ...tensors(), 'expected.output': expected }, { scale: 0.5 });
    assert.equal(within_tolerance, off === 0);
  }
});

test('tensors', async () => {
  const names = ['masked_scores', 'weights', 'output'];
  const expected = attention((i, j) => mask[i][j]);
  for (const [type, dtype, bound] of [
    [Float32Array, 'F32', 1e-5],
    [Float64Array, 'F64', 1e-13],
  ]) {
    const questions = { ...tensors(given, type), mask: { dtype: 'BOOL', ...tensor(mask, Uint8Array) } };
    const results = await client.tensors('/attention', questions, { return: names });
    assert.deepEqual(Object.keys(results).sort(), [...names].sort());
    for (const name of names) {
      assert.equal(results[name].dtype, dtype);
      assert.deepEqual(results[name].shape, [3, expected[name][0].length]);
      near(results[name].data, expected[name], bound);
    }
  }
});

test('whole numbers and options', async () => {
  const lengths = { shape: [1], data: BigInt64Array.of(4n) };
  const options = { causal: 'bottom_right', window: [2, 0], top_k: 2, return: ['weights', 'top_k', 'statistics'] };
  const results = await client.tensors('/attention', { ...tensors(), lengths }, options);
  const { weights } = attention((i, j) => i - 1 <= j && j <= i + 1 && j < 4);
  near(results.weights.data, weights);
  const best = weights.map((row) => [0, 1, 2, 3, 4].sort((a, b) => row[b] - row[a]).slice(0, 2));
  assert.deepEqual(results['top_k.indices'], { dtype: 'I64', shape: [3, 2], data: BigInt64Array.from(best.flat(), BigInt) });
  assert.deepEqual(results['statistics.variance.Q'].shape, []);
});

test('errors', async () => {
  const wrong = { ...given, K: [[1]] };
  for (const ask of [() => client.ask('/attention', wrong), () => client.tensors('/attention', tensors(wrong))]) {
    const error = await refused(422, /^K has 1 column but Q has 4$/, ask());
    assert.equal(error.pointer, '/K');
    assert.ok(error.requestId);
    assert.equal(error.message, `422 ${error.detail} /K`);
  }
  await refused(422, /inputs is missing/, client.ask('/v2/models/attention/infer', {}));
  await refused(404, /there is nothing at \/nothing/, client.ask('/nothing'));
  await refused(0, /ECONNREFUSED/, new Client('http://127.0.0.1:2').ask('/attention', given));
  await assert.rejects(new Client(URL, { apiKey: 'key\r\nX: y' }).ask('/version'), /^TypeError: the API key has a character that/);
  for (const timeout of [Infinity, 30.0005]) assert.ok((await new Client(URL, { timeout }).ask('/version')).version);
  await assert.rejects(client.ask('/attention', { X: [[NaN]] }), RangeError);
  await assert.rejects(client.tensors('/attention', tensors(), { scale: NaN }), RangeError);
  for (const lengths of [BigInt64Array.of(2n ** 53n + 1n), [-(2n ** 53n) - 1n]])
    await assert.rejects(client.ask('/attention', { ...given, lengths }), /^RangeError: -?9007199254740993 is an integer beyond 2\^53/);
  await refused(422, /heads must be/, client.ask('/attention', { ...given, heads: 2n ** 53n }));
  await assert.rejects(client.tensors('/attention', { Q: { shape: [1], data: [1] } }), /Q is a Array, not a Float32Array, Float64Array,/);
  await assert.rejects(client.tensors('/attention', { Q: { dtype: 'F64', ...tensor([[1]]) } }), /Q is a Float32Array, not a Float64Array/);
  await assert.rejects(client.tensors('/attention', { Q: { shape: [2, 3], data: Float32Array.of(1) } }), /Q does not fit/);
});

test('tries, time-outs and broken answers', { skip: STUB ? false : 'there is no stub' }, async () => {
  const at = (kind, timeout = 30) => new Client(`${STUB}/${kind}`, { apiKey: 'secret\n', timeout }).ask('/attention', given);
  const tensorsAt = (kind) => new Client(`${STUB}/${kind}`).tensors('/attention', tensors());
  await new Client(`${STUB}/order`).ask('/attention', { ...given, causal: true });
  await new Client(`${STUB}/order`).tensors('/attention', tensors(), { causal: true });
  await refused(200, /the answer has more than 1048576 bytes/, new Client(`${STUB}/large`, { maxAnswer: 2 ** 20 }).ask('/attention', given));
  const { output } = attention(() => true);
  near((await at('reused')).output.flat(), output);
  await new Promise((wake) => setTimeout(wake, 200)); // Node.js frees a connection a moment after the answer
  for (const kind of ['reused', 'busy', 'late', 'key', 'chunked', 'open', 'open', 'early']) near((await at(kind, 5)).output.flat(), output);
  near((await tensorsAt('chunked')).output.data, output);
  await refused(503, /too much work waits/, at('always'));
  await refused(503, /too much work waits/, at('lasting'));
  await refused(502, /Bad Gateway/, at('html'));
  await refused(200, /not JSON/, at('html'));
  for (const kind of ['silent', 'drip', 'drip', 'drip']) await refused(0, /timed out/, at(kind, 0.5));
  const X = { shape: [1 << 17, 64], data: new Float32Array(1 << 23) };
  await refused(0, /timed out/, new Client(`${STUB}/slow`, { timeout: 0.5 }).tensors('/attention', { X }));
  for (const ask of [() => at('closed'), () => at('cut'), () => tensorsAt('cut')]) await refused(0, /no answer/, ask());
  await refused(200, /output has the type BF16/, tensorsAt('half'));
  await refused(302, /Found/, at('moved'));
  await refused(307, /Temporary Redirect/, at('moved'));
  await refused(200, /not JSON/, at('deep'));
  await refused(422, /Unprocessable/, at('deep'));
  await refused(200, /cannot be read/, tensorsAt('deep'));
  assert.equal((await refused(422, /Unprocessable/, at('lists'))).pointer, '');
  for (let i = 0; i < 15; i++) await refused(200, /cannot be read/, tensorsAt('broken'));
});
