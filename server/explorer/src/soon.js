// Work that may wait, such as painting: it is done soon, in the order in which it came, in slices that keep the page quick.
const SLICE = 8; // milliseconds, after which the page has its turn

const queue = new Map();
let running = null;

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

// Has does() done soon. It takes the place of what was to be done under the same key.
export function soon(key, does) {
  queue.delete(key);
  queue.set(key, does);
  running ??= run();
}

// Resolves when all of it is done.
export const allDone = async () => running;
