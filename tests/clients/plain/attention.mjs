// attention.mjs asks attentiond for attention. It needs Node.js 18 or later, or a browser, and no package.
//
//     node attention.mjs [http://127.0.0.1:8080]
//
// A page imports its functions: import { ask, infer } from './attention.mjs'. If the page does not come from the daemon,
// the daemon needs the option --cors-origins.

async function post(url, body, headers) {
  const response = await fetch(url, { method: 'POST', headers, body });
  if (response.ok) return response;
  const { detail, error } = await response.json().catch(() => ({})); // /v2 says error, the other endpoints say detail
  throw new Error(`${response.status} ${detail ?? error ?? response.statusText}`);
}

// ask sends a request as JSON, and returns the answer.
export async function ask(url, request) {
  const response = await post(url, JSON.stringify(request), { 'Content-Type': 'application/json' });
  return response.json();
}

// infer sends tensors as bytes, and returns the results by their names. No number becomes text. A tensor is a shape with
// the numbers in the order of the rows, in a Float32Array.
export async function infer(url, inputs, options = {}) {
  const tensors = Object.entries(inputs).map(([name, { shape, data }]) => (
    { name, datatype: 'FP32', shape, parameters: { binary_data_size: data.byteLength } }));
  const parameters = { ...options, binary_data_output: true };
  const head = new TextEncoder().encode(JSON.stringify({ inputs: tensors, parameters }));
  const body = new Blob([head, ...Object.values(inputs).map(({ data }) => data)]);
  const response = await post(url, body, {
    'Content-Type': 'application/octet-stream',
    'Inference-Header-Content-Length': String(head.length),
  });
  const answer = await response.arrayBuffer();
  let at = Number(response.headers.get('Inference-Header-Content-Length'));
  const described = JSON.parse(new TextDecoder().decode(answer.slice(0, at)));
  const results = {};
  for (const { name, datatype, shape, parameters: { binary_data_size: size } } of described.outputs) {
    if (datatype !== 'FP32') throw new Error(`${name} is ${datatype}`);
    results[name] = { shape, data: new Float32Array(answer.slice(at, at + size)) };
    at += size;
  }
  return results;
}

async function main(base = 'http://127.0.0.1:8080') {
  const { output, weights } = await ask(`${base}/attention`, {
    Q: [[1, 0, 2], [0, 3, 1]],
    K: [[1, 1, 0], [0, 2, 1], [3, 0, 1], [1, 0, 1]],
    V: [[1, 2], [3, 4], [5, 6], [7, 8]],
  });
  console.log('JSON output:', JSON.stringify(output));
  console.log('JSON weights:', JSON.stringify(weights));

  const url = `${base}/v2/models/attention/infer`;
  const inputs = {
    Q: { shape: [2, 3], data: new Float32Array([1, 0, 2, 0, 3, 1]) },
    K: { shape: [4, 3], data: new Float32Array([1, 1, 0, 0, 2, 1, 3, 0, 1, 1, 0, 1]) },
    V: { shape: [4, 2], data: new Float32Array([1, 2, 3, 4, 5, 6, 7, 8]) },
  };
  const results = await infer(url, inputs, { causal: true });
  console.log('binary output:', JSON.stringify([...results.output.data]));
  console.log('binary weights:', JSON.stringify([...results.weights.data]));

  inputs.K.shape = [6, 2];
  await infer(url, inputs).catch((error) => console.log('error:', error.message));
}

if (globalThis.process?.argv[1]?.endsWith('attention.mjs')) await main(process.argv[2]);
