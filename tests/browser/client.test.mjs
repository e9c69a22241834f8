// client.test.mjs tests the client in JavaScript (server/clients/javascript) in a page of another origin than the daemon's, with an
// API key. `make test-clients ARGS=javascript` tests it in Node.js.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Client } from '../../server/clients/javascript/attentiond.js';
import { onPage, startDaemon } from './harness.mjs';

const KEY = 'a-key-of-the-tests';
let server;
let origin;
let daemon;
let folder;

before(async () => {
  const client = readFileSync(new URL('../../server/clients/javascript/attentiond.js', import.meta.url));
  server = createServer((request, response) => {
    const script = request.url === '/attentiond.js';
    response.writeHead(200, { 'Content-Type': script ? 'text/javascript' : 'text/html' }).end(script ? client : '<title>a page</title>');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  origin = `http://127.0.0.1:${server.address().port}`;
  folder = mkdtempSync(join(tmpdir(), 'client-'));
  writeFileSync(join(folder, 'keys'), `${KEY}\n`);
  daemon = await startDaemon('--cors-origins', origin, '--api-key-file', join(folder, 'keys'));
});
after(async () => {
  server.closeAllConnections?.();
  server.close();
  await daemon.stop();
  rmSync(folder, { recursive: true });
});

// Computes with a client. A page runs it, too, so it uses nothing of this file.
async function compute(Client, base, apiKey) {
  const client = new Client(base, { apiKey });
  const numbers = Float32Array.from({ length: 64 * 8 }, (_, i) => Math.sin(i));
  const json = await client.ask('/attention', {
    X: [
      [1, 2],
      [3, 4],
    ],
    causal: true,
    return: ['masked_scores'],
  });
  const X = { shape: [64, 8], data: numbers };
  const { output, weights } = await client.tensors('/attention', { Q: X, K: X, V: X }, { causal: true });
  const refused = ({ name, status, detail, pointer, requestId }) => ({ name, status, detail, pointer, known: requestId !== '' });
  const errors = [
    await client.tensors('/attention', { Q: X, K: { shape: [128, 4], data: numbers }, V: X }).catch(refused),
    await new Client(base).ask('/attention', {}).catch(refused),
  ];
  return { json: json.masked_scores.flat(), output: [...output.data], shapes: [output.shape, weights.shape], errors };
}

test('the client in JavaScript runs in a page of another origin', async () => {
  const options = { origin, baseURL: origin, also: daemon.base, expected: /401|422/ };
  await onPage(options, async (page) => {
    await page.goto('/');
    const call = `(${compute})(client.Client, ${JSON.stringify(daemon.base)}, ${JSON.stringify(KEY)})`;
    const said = await page.evaluate(`import('/attentiond.js').then((client) => ${call})`);
    assert.deepEqual(said.shapes, [
      [64, 8],
      [64, 64],
    ]);
    assert.equal(said.json[1], -Infinity);
    const refusal = { name: 'ServiceError', status: 422, detail: 'K has 4 columns but Q has 8', pointer: '/K', known: true };
    assert.deepEqual(said.errors[0], refusal);
    assert.equal(said.errors[1].status, 401);
    assert.deepEqual(said, await compute(Client, daemon.base, KEY));
  });
});
