// page.js is the script of the page of views.test.mjs. It makes the lines and the curve, and records what they report for the test.
import { Curve } from './curve.js';
import { createLines } from './lines.js';

const told = { hover: [], lock: [] };
const lines = createLines(document.getElementById('lines'), {
  onHover: (word) => told.hover.push(word),
  onLock: (row) => told.lock.push(row),
});
const post = async (path, body) => {
  const response = await fetch(`.${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  return response.json();
};
const curve = new Curve(document.getElementById('curve'), post);
window.views = { lines, curve, told };
