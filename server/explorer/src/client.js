// client.js sends requests through the worker. Only the answer to the latest request is delivered. If the server says when to try again
// (Retry-After), it waits and asks again. It also asks the worker for pictures of matrices. It holds the API key, in memory only. It does
// not know what a request means.

/* global WORKER_NAME */
const LONGEST_WAIT = 30; // seconds

// Makes the client. base: the URL that the paths of the API follow. on: {progress(what), wait(seconds, problem)}.
export function createClient(base, on) {
  const worker = new Worker(new URL(WORKER_NAME, import.meta.url), { type: 'module' });
  const waiting = new Map();
  const tensors = new Map(); // the matrices of files that stand in requests: Blobs by the JSON that stands for them (request.js)
  let key = null;
  let counter = 0;
  let latest = 0;
  let retry = 0;
  let giveUp = () => {}; // ends the wait of a request that a later one replaces

  worker.onmessage = ({ data }) => {
    const entry = waiting.get(data.id);
    if (!entry) return;
    if (data.progress) return data.id === latest && on.progress(data.progress);
    waiting.delete(data.id);
    entry(data);
  };

  function send(message) {
    const id = ++counter;
    const reply = new Promise((resolve) => waiting.set(id, resolve));
    worker.postMessage({ ...message, id });
    return { id, reply };
  }

  function stopWaiting() {
    clearTimeout(retry);
    giveUp();
  }

  // Sends a request. Resolves to the worker's reply, or to null if a later request has replaced this one.
  async function ask({ path, text }) {
    const sent = send({ base, path, text, tensors, key });
    latest = sent.id;
    stopWaiting();
    const reply = await sent.reply;
    if (sent.id !== latest) return null;
    if (!reply.retryAfter) return reply;
    const seconds = Math.min(reply.retryAfter, LONGEST_WAIT);
    on.wait(seconds, reply.problem);
    await new Promise((resolve) => {
      giveUp = resolve;
      retry = setTimeout(resolve, seconds * 1000);
    });
    return sent.id === latest ? ask({ path, text }) : null;
  }

  const authorized = () => (key ? { Authorization: `Bearer ${key}` } : {});

  return {
    ask,
    // Drops the latest request: its promise resolves to null.
    forget() {
      latest = 0;
      stopWaiting();
    },
    // Sends a request that does not replace the latest one. The worker keeps the weights of its answer under the name `as`.
    aside: ({ path, text, results, as }) => send({ base, path, text, tensors, key, results, as }).reply,
    // Asks the service to compare its results with tensors whose names begin with `expected.`. Resolves to {comparison} or to {problem}.
    judge: ({ path, text, expected }) => send({ base, path, text, tensors, key, expected }).reply,
    // Resolves to the body of a request, which is a Blob if matrices of files are in it.
    body: async (text) => (await send({ text, tensors, saved: true }).reply).body,
    hold: (found) => found.forEach((data, standing) => tensors.set(standing, data)),
    // Asks for results of stored layers. stored: as askLayers() of the worker takes it.
    stored: (path, stored) => send({ base, path, key, stored }).reply,
    picture: (what) => send(what).reply,
    setKey: (value) => void (key = value),
    hasKey: () => key !== null,
    // Resolves to the parsed answer to a GET request, or to null if there is none.
    async get(path) {
      const response = await fetch(base + path.slice(1), { headers: authorized() }).catch(() => null);
      const text = await response?.text(); // if nobody reads the body, the request does not end
      return response?.ok ? JSON.parse(text) : null;
    },
    // Sends a small request without the worker, and resolves to the parsed answer.
    async post(path, body) {
      const headers = { 'Content-Type': 'application/json', ...authorized() };
      const response = await fetch(base + path.slice(1), { method: 'POST', headers, body: JSON.stringify(body) });
      const answer = await response.json();
      if (!response.ok) throw Object.assign(new Error(answer.detail), { status: response.status });
      return answer;
    },
  };
}
