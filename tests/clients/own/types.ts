// types.ts uses the types of server/clients/javascript. tsc compiles it, and finds the three mistakes.
import { Client, ServiceError, type Tensor } from 'attentiond';

const client = new Client('http://127.0.0.1:8080', { apiKey: 'secret', timeout: 10 });
const answer = await client.ask('/attention', { X: [[1, 2], [3, 4]], causal: 'bottom_right', mask: [[true]], softcap: 2 });
const weights = answer.weights as number[][];
await client.ask('/attention', { X: [Float32Array.of(1, 2), [3, 4]], mask: [[[true]]] });
const X: Tensor = { shape: [2, 2], data: Float32Array.from(weights.flat()) };
const { output } = await client.tensors('/attention', { X }, { causal: true });
const type: string = output.dtype;
const status = (error: unknown) => (error instanceof ServiceError ? [error.status, error.pointer, error.requestId] : [type]);
status(null);
// @ts-expect-error: causal is no number
await client.ask('/attention', { causal: 3 });
// @ts-expect-error: a mask has no texts
await client.ask('/attention', { mask: [['true']] });
// @ts-expect-error: an array of JavaScript is no data of a tensor
await client.tensors('/attention', { X: { shape: [1], data: [1] } });
