// main.js - the first notebook's attention weights, as a table.
const worker = new Worker(new URL(WORKER_NAME, import.meta.url), { type: 'module' });

worker.onmessage = ({ data: { weights, detail } }) => {
  const status = document.getElementById('status');
  status.dataset.state = weights ? 'done' : 'error';
  status.textContent = weights ? 'Weights of the first notebook: queries down, keys across.' : detail;
  for (const row of weights ?? []) {
    const cells = document.getElementById('weights').insertRow();
    row.forEach((weight) => (cells.insertCell().textContent = weight.toFixed(4)));
  }
};
worker.postMessage({
  url: new URL('attention', document.baseURI).href,
  body: {
    Q: [[2, 0, 2], [2, 0, 0], [4, 0, 2], [2, 1, 2]],
    K: [[2, 2, 2], [0, 2, 1], [2, 4, 3], [0, 1, 1]],
    V: [[1, 1, 0], [0, 1, 1], [1, 2, 1], [0, 0, 0]],
  },
});
