// defer.js does work that may wait, such as painting. It does the work in slices, so that the page can answer the user between them.
const SLICE = 8; // milliseconds of work in a slice

const queue = new Map();
let running = null;
let atOnce = false;

// Says whether work is done at once from now on: for printing, because a browser prints without waiting.
export function setAtOnce(value) {
  atOnce = value;
}

async function run() {
  while (queue.size) {
    await new Promise((resolve) => setTimeout(resolve));
    const end = performance.now() + SLICE;
    for (const [key, does] of queue) {
      queue.delete(key);
      does();
      if (performance.now() > end) break;
    }
  }
  running = null;
}

// Calls does() in one of the next slices. It replaces the function that waits under the same key. Functions are called in the order in
// which they were given.
export function defer(key, does) {
  queue.delete(key);
  if (atOnce) return does();
  queue.set(key, does);
  running ??= run();
}

// Resolves when no work waits.
export const allDone = async () => running;
