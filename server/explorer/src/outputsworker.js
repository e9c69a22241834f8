// outputsworker.js reads a file of a user's own kernel in a worker, because a long text takes seconds. It gets a File, and it posts
// {arrays} or {message}, which says why the file cannot be read.
import { readOutputs } from './outputs.js';

self.onmessage = async ({ data: file }) => {
  try {
    const arrays = await readOutputs(file);
    self.postMessage({ arrays }, [...new Set(arrays.flatMap(({ bytes, data }) => [bytes.buffer, data.buffer]))]);
  } catch ({ message }) {
    self.postMessage({ message });
  }
};
