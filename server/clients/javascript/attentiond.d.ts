// The types of attentiond.js.

/** Numbers, or arrays of them. -Infinity is null in JSON. */
export type Numbers = number | Numbers[];

/** Numbers of a request. Typed arrays are rows, too. */
export type GivenNumbers = number | TensorData | GivenNumbers[];

export type Booleans = boolean | Booleans[];

/** A request in JSON. These are its commonest keys; /docs of the service has all, and of all endpoints. */
export interface Request {
  Q?: GivenNumbers;
  K?: GivenNumbers;
  V?: GivenNumbers;
  X?: GivenNumbers;
  W_Q?: GivenNumbers;
  W_K?: GivenNumbers;
  W_V?: GivenNumbers;
  W_O?: GivenNumbers;
  mask?: Booleans | GivenNumbers;
  bias?: GivenNumbers;
  causal?: boolean | 'bottom_right';
  window?: [left: number, right: number];
  scale?: GivenNumbers;
  heads?: number;
  return?: string[];
  dtype?: 'float32' | 'float64';
  digits?: number;
  [option: string]: unknown;
}

/** An answer in JSON. These are its commonest results. */
export interface Answer {
  output: Numbers;
  weights: Numbers;
  scaled_scores: Numbers;
  masked_scores: Numbers;
  lse: Numbers;
  [result: string]: any;
}

export type TensorData = Float32Array | Float64Array | BigInt64Array | Int32Array | Uint8Array;

/** A matrix, or a stack of matrices, with its numbers in the order of the rows. */
export interface Tensor {
  /** It must be given only for a mask: 'BOOL', with a Uint8Array. */
  dtype?: 'F32' | 'F64' | 'I64' | 'I32' | 'U8' | 'BOOL';
  shape: number[];
  data: TensorData;
}

export declare class ServiceError extends Error {
  /** The status of HTTP, or 0 if no answer came. */
  readonly status: number;
  readonly detail: string;
  /** A JSON pointer to the wrong part of the request, or ''. */
  readonly pointer: string;
  readonly requestId: string;
}

export declare class Client {
  constructor(baseUrl?: string, settings?: { apiKey?: string; /** seconds of each try */ timeout?: number; /** bytes */ maxAnswer?: number });
  ask(path: string, request?: Request): Promise<Answer>;
  tensors(path: string, tensors: Record<string, Tensor>, options?: Record<string, unknown>): Promise<Record<string, Required<Tensor>>>;
  /** The comparison with expected results, such as `expected.output`. */
  compare(path: string, tensors: Record<string, Tensor>, options?: Record<string, unknown>): Promise<Record<string, any>>;
}
