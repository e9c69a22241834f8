// node_server.js PORT PROCESSES MODEL serves POST /attention as a typical Node.js service does: with node:cluster,
// JSON.parse, JSON.stringify, and onnxruntime-node with the model of make_model.py.
'use strict';

const cluster = require('node:cluster');
const http = require('node:http');
const ort = require('onnxruntime-node');

const [port, processes, model] = process.argv.slice(2);

function toTensor(rows) {
  const columns = rows[0].length;
  const data = new Float32Array(rows.length * columns);
  for (let i = 0; i < rows.length; i++) data.set(rows[i], i * columns);
  return new ort.Tensor('float32', data, [rows.length, columns]);
}

function toRows({ data, dims: [rows, columns] }) {
  return Array.from({ length: rows }, (_, i) => Array.from(data.subarray(i * columns, (i + 1) * columns)));
}

async function attention(session, body) {
  const call = JSON.parse(body);
  const feeds = { Q: toTensor(call.Q), K: toTensor(call.K), V: toTensor(call.V) };
  const names = call.return ?? ['output', 'weights'];
  const results = await session.run(feeds, names);
  return JSON.stringify(Object.fromEntries(names.map((name) => [name, toRows(results[name])])));
}

async function serve() {
  // Each process has one thread, because the processes share the cores.
  const session = await ort.InferenceSession.create(model, {
    intraOpNumThreads: 1,
    interOpNumThreads: 1,
  });
  const server = http.createServer((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', async () => {
      const [status, text] = await attention(session, Buffer.concat(chunks).toString()).then(
        (answer) => [200, answer],
        (error) => [400, JSON.stringify({ error: String(error) })],
      );
      response.writeHead(status, {
        'Content-Type': 'application/json',
        'Content-Length': Buffer.byteLength(text),
      });
      response.end(text);
    });
  });
  server.listen(Number(port), '127.0.0.1');
}

if (cluster.isPrimary) {
  for (let i = 0; i < Number(processes); i++) cluster.fork();
} else {
  serve();
}
