// ask.ts URL sends the call of the first notebook, the same call with drawn matrices, and a bad request. It prints what
// check.py checks.
import createClient from 'openapi-fetch';
import type { components, paths } from './attentiond.js';

declare const process: { argv: string[] };
// An answer may be JSON or bytes. This client reads JSON alone, so its answers have the types of the JSON.
const client = createClient<paths, `application/${string}json`>({ baseUrl: process.argv[2] });

const given = await client.POST('/attention', {
  body: {
    Q: [[2, 0, 2], [2, 0, 0], [4, 0, 2], [2, 1, 2]],
    K: [[2, 2, 2], [0, 2, 1], [2, 4, 3], [0, 1, 1]],
    V: [[1, 1, 0], [0, 1, 1], [1, 2, 1], [0, 0, 0]],
  },
});
if (!given.data) throw new Error(given.error.detail);
const output = given.data.output as number[][];
const weights = given.data.weights as number[][];

const W: components['schemas']['DrawnMatrix'] = { random: 'randint', high: 3, shape: [3, 3] };
const drawn = await client.POST('/self-attention', {
  body: {
    random: { generator: 'numpy', seed: 42 },
    X: [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]],
    W_Q: W,
    W_K: W,
    W_V: { random: 'randint', high: 3, shape: [3, 3] },
    return: ['output'],
  },
});
if (!drawn.data) throw new Error(drawn.error.detail);

const bad = await client.POST('/attention', { body: { Q: [[1, 2]], K: [[1, 2, 3]], V: [[1]] } });
if (!bad.error) throw new Error('the bad request was answered');
const { status, detail, pointer } = bad.error;
console.log(JSON.stringify({ output, weights, drawn: drawn.data.output, status, detail, pointer }));
