// tour.js leads through the first notebook in five stops. It explains the words query, key, weight and output with the numbers of the
// answer. The card of a stop stands above the arithmetic, so it covers nothing.
import { makeWith } from './dom.js';
import { formatNumber } from './numbers.js';

const DONE = 'tour'; // the key in the storage of the browser

const rowOf = ({ data, cols }, row) => Array.from(data.subarray(row * cols, (row + 1) * cols), (x) => formatNumber(x, 3));
const sumOf = (numbers) =>
  formatNumber(
    numbers.reduce((sum, value) => sum + value, 0),
    4,
  );

// The stops. step: the step that is open. cell: the query and the key whose arithmetic is shown. text(numbers) returns sentences.
const STOPS = [
  {
    title: 'A query is a question',
    step: 'Q',
    text: ({ query, q }) =>
      `For a computer, a word is a row of numbers. From these numbers it makes a second row, the query. The query is a question: which other ` +
      `words matter to me? The query of ${query} is ${q.join(', ')}.`,
  },
  {
    title: 'A key is an answer to questions',
    step: 'K',
    text: ({ query, key, q, k, score }) =>
      `Each word also has a key, which says what the word has to offer. The key of ${key} is ${k.join(', ')}. Multiply the query of ${query} ` +
      `by this key, number by number, and add: ${q.map((value, at) => `${value} × ${k[at]}`).join(' + ')} = ${score}. This sum is the score. ` +
      `A high score means that the key fits the question.`,
  },
  {
    title: 'Weights are shares of attention',
    step: 'weights',
    text: ({ query, key, scores, weights, weight }) =>
      `${query} has the scores ${scores.join(', ')}, one for each word. Softmax turns them into shares, the weights: ${weights.join(', ')}. ` +
      `Together they are 1. So ${query} gives ${weight} of its attention to ${key}. Each row of the picture is one word that asks.`,
  },
  {
    title: 'The output is a mixture',
    step: 'output',
    text: ({ query, weights, column, sum }) =>
      `Each word has a third row, the value: what it hands on. The output of ${query} mixes all values by the weights. Its first number is ` +
      `${weights.map((value, at) => `${value} × ${column[at]}`).join(' + ')} = ${sum}. So the new row of ${query} has learnt from the others.`,
  },
  {
    title: 'Now it is your turn',
    step: 'weights',
    text: () =>
      'Point at any cell, and the arithmetic below follows. Move the slider of Scale to the left, and the weights become more equal. Set ' +
      'Causal to “on”, and no word sees the words after it. Then choose 001, a whole sentence.',
  },
];

// Returns the numbers that the stops speak of, for a query and a key of an answer.
function numbersOf(answer, { query, key }) {
  const matrix = (name) => answer.matrix(name, 0, 0);
  const [Q, K, V, scores, weights] = ['Q', 'K', 'V', 'scores', 'weights'].map(matrix);
  const shares = Array.from(weights.data.subarray(query * weights.cols, (query + 1) * weights.cols));
  return {
    query: answer.query(query),
    key: answer.key(key),
    q: rowOf(Q, query),
    k: rowOf(K, key),
    score: formatNumber(scores.data[query * scores.cols + key]),
    scores: rowOf(scores, query),
    weights: rowOf(weights, query),
    weight: formatNumber(shares[key], 3),
    column: shares.map((_, row) => formatNumber(V.data[row * V.cols], 3)),
    sum: sumOf(shares.map((share, row) => share * V.data[row * V.cols])),
  };
}

function isDone() {
  try {
    return localStorage.getItem(DONE) !== null;
  } catch {
    return false;
  }
}

function setDone() {
  try {
    localStorage.setItem(DONE, 'closed');
  } catch {
    // The page may not store it, so the next visit offers the tour again.
  }
}

// Makes the tour in an empty, hidden section. opener: the button that starts it. page: {begin(), show(step, cell), answer()}. begin() shows
// the first notebook, and resolves to whether the answer to it is there. show() opens a step and shows the arithmetic of a cell {query,
// key}.
export function createTour(root, opener, page) {
  let at = -1; // the stop that is shown, or −1
  let asked = 0; // how many times the user has asked for a stop, or closed the tour

  function card(title, text, buttons) {
    root.replaceChildren();
    const words = makeWith('div', root, { className: 'tour-words' });
    const heading = title ? makeWith('h2', words, { textContent: title, tabIndex: -1 }) : null;
    makeWith('p', words, { textContent: text });
    const line = makeWith('p', root, { className: 'tour-buttons' });
    for (const [name, does, quiet] of buttons) {
      makeWith('button', line, { type: 'button', textContent: name, className: quiet ? 'quiet' : '' }).addEventListener('click', does);
    }
    root.hidden = false;
    return heading;
  }

  // Shows a stop as soon as the page has the numbers of the first notebook.
  async function go(stop) {
    const mine = ++asked;
    at = -1; // begin() shows an example, which must not close the tour
    if (!(await page.begin()) || mine !== asked) return;
    at = stop;
    const { title, step, text } = STOPS[stop];
    const cell = { query: 0, key: 2 };
    const buttons = [
      ...(stop ? [['Back', () => go(stop - 1)]] : []),
      ...(stop < STOPS.length - 1 ? [['Next', () => go(stop + 1)]] : []),
      ['End the tour', close, stop < STOPS.length - 1],
    ];
    const heading = card(`${stop + 1} of ${STOPS.length}: ${title}`, text(numbersOf(page.answer(), cell)), buttons);
    page.show(step, cell);
    heading.focus({ preventScroll: true });
  }

  const start = () => go(0);

  function close() {
    asked++;
    at = -1;
    if (root.contains(document.activeElement)) opener.focus({ preventScroll: true });
    root.hidden = true;
    root.replaceChildren();
    setDone();
  }

  root.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') close();
    else if (at >= 0 && step && STOPS[at + step]) go(at + step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  opener.addEventListener('click', start);

  return {
    // Offers the tour to somebody who has not closed it before.
    offer() {
      if (isDone()) return;
      card('', 'New to attention?', [['Start the tour', start], ['No, thanks', close, true]]); // prettier-ignore
    },
    // Closes the tour, because the page shows another example now.
    leave() {
      if (at >= 0) close();
    },
    // Closes the tour if its text has numbers, because the user changes the request. The last stop asks the user to do so.
    follow() {
      if (at >= 0 && at < STOPS.length - 1) close();
    },
  };
}
