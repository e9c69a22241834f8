// client.test.mjs tests the client in JavaScript that README.md offers for copying (../clients/plain/attention.mjs) in a page of another
// origin than the daemon's. `make test-clients ARGS=javascript` tests it in Node.js.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { ask, infer } from '../clients/plain/attention.mjs';
import { onPage, startDaemon } from './harness.mjs';

let server;
let origin;
let daemon;

before(async () => {
  const client = readFileSync(new URL('../clients/plain/attention.mjs', import.meta.url));
  server = createServer((request, response) => {
    const script = request.url === '/attention.mjs';
    response.writeHead(200, { 'Content-Type': script ? 'text/javascript' : 'text/html' }).end(script ? client : '<title>a page</title>');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  origin = `http://127.0.0.1:${server.address().port}`;
  daemon = await startDaemon('--cors-origins', origin);
});
after(async () => {
  server.closeAllConnections?.();
  server.close();
  await daemon.stop();
});

// Computes with the functions of the client. A page runs it, too, so it uses nothing of this file.
async function compute({ ask, infer }, base) {
  const url = `${base}/v2/models/attention/infer`;
  const numbers = Float32Array.from({ length: 64 * 8 }, (_, i) => Math.sin(i));
  const json = await ask(`${base}/attention`, {
    X: [
      [1, 2],
      [3, 4],
    ],
    causal: true,
  });
  const X = { shape: [64, 8], data: numbers };
  const { output, weights } = await infer(url, { Q: X, K: X, V: X }, { causal: true });
  const error = await infer(url, { Q: X, K: { shape: [128, 4], data: numbers }, V: X }).catch(({ message }) => message);
  return { json, output: [...output.data], shapes: [output.shape, weights.shape], error };
}

test('the client in JavaScript runs in a page of another origin', async () => {
  const options = { origin, baseURL: origin, also: daemon.base, expected: /422/ };
  await onPage(options, async (page) => {
    await page.goto('/');
    const said = await page.evaluate(`import('/attention.mjs').then((client) => (${compute})(client, ${JSON.stringify(daemon.base)}))`);
    assert.deepEqual(said.shapes, [
      [64, 8],
      [64, 64],
    ]);
    assert.match(said.error, /^422 K has 4 columns but Q has 8/);
    assert.deepEqual(said.json.weights[0], [1, 0]);
    assert.deepEqual(said, await compute({ ask, infer }, daemon.base));
  });
});
