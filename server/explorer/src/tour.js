// tour.js leads through the example "A pronoun" in eight stops. Each stop asks a question before it shows the answer, and changes something
// in the request that the user can undo. All numbers in its sentences come from the answer of the server that the page shows. The card of
// a stop stands below the picture, so it covers nothing.
import { keep, kept, makeButton, makeWith } from './dom.js';
import { rowOf } from './matrices.js';
import { formatNumber } from './numbers.js';

const DONE = 'tour'; // the key in the storage of the browser
const [CAT, DRINKS, MILK, IT] = [0, 1, 2, 3]; // words of the example
const write = (x, digits = 3) => formatNumber(x, digits);
const listed = (texts) => `${texts.slice(0, -1).join(', ')} and ${texts.at(-1)}`;

function numbersOf(answer, head = 0) {
  const row = (name, at) => Array.from(rowOf(answer.matrix(name, 0, head), at));
  const column = (name, at) => {
    const { data, cols, rows } = answer.matrix(name, 0, head);
    return Array.from({ length: rows }, (_, line) => data[line * cols + at]);
  };
  const sum = (a, b) =>
    `${a.map((x, at) => `${write(x)} × ${write(b[at])}`).join(' + ')} = ${write(a.reduce((all, x, at) => all + x * b[at], 0))}`;
  const each = (values) => listed(values.map((value, at) => `${write(value)} to ${answer.key(at)}`));
  return { row, column, sum, each, list: (values) => values.map((value) => write(value)).join(', ') };
}

const edited = (matrix, row, values) => matrix.map((line, at) => (at === row ? values : line));
const only = (row, values) => [0, 1, 2, 3].map((at) => (at === row ? values : [1, 1, 1, 1]));

const at = (id, row, col) => ({ id, row, col });

// The stops. cell, after: the number that is shown before and after the change; after may be missing if it is the same. text, ask, answer,
// changed: functions of numbersOf() for head 0 and head 1 that return sentences. change: the title of the button that changes the request, and
// the change of its body.
const STOPS = [
  {
    ...{ title: 'Why attention?', cell: at('weights', IT, CAT), after: at('weights', IT, MILK) },
    text: () =>
      'The words are: cat, drinks, milk, it. The word “it” alone says nothing: it stands for another word. This example is small. Somebody chose ' +
      'its numbers by hand, so that “it” finds its word. A real model learns them.',
    ask: () => 'Which word does “it” stand for? Where would you look?',
    answer: ({ each, row }) =>
      `The last row of the matrix A shows where “it” looks. It gives ${each(row('weights', IT))}. Most goes to cat.`,
    change: ['Hide cat from it', () => ({ mask: only(IT, [0, 1, 1, 1]) })],
    changed: ({ each, row }) => `Now “it” cannot look at cat. It gives ${each(row('weights', IT))}.`,
  },
  {
    ...{ title: 'From words to vectors', cell: at('X', MILK, 0) },
    text: ({ list, row }) =>
      `A computer needs numbers, so each word is a row of numbers in X, a vector. The columns say: is it an animal, a thing, an action, a pronoun? ` +
      `cat is ${list(row('X', CAT))}: an animal and a thing. Real models have hundreds of columns.`,
    ask: ({ list, row }) => `milk is ${list(row('X', MILK))}. What happens to the attention of “it” if we say that milk is an animal, too?`,
    answer: () => 'milk would have the same numbers as cat. So “it” could not tell them apart. Try it with the button.',
    change: ['Make milk an animal', ({ X }) => ({ X: edited(X, MILK, [1, 1, 0, 0]) })],
    changed: ({ each, row }) => `Now “it” gives ${each(row('weights', IT))}: the same to cat and to milk.`,
  },
  {
    ...{ title: 'A query says what a word looks for', cell: at('Q', IT, 0), after: at('Q', IT, 1) },
    text: () =>
      'Each word looks for other words that matter to it. What it looks for is a row of numbers, too: the query. It is the row of the word in X, ' +
      'multiplied by the matrix W_Q. A model learns W_Q.',
    ask: () => 'What is the first number in the query of “it”? Take the row of “it” in X, and the first column of W_Q.',
    answer: ({ sum, row, column, list }) =>
      `${sum(row('X', IT), column('W_Q', 0))}. The whole query is ${list(row('Q', IT))}: “it” looks for an animal, and a little for a thing.`,
    change: ['Let it look for things', ({ W_Q }) => ({ W_Q: edited(W_Q, 3, [0, 3, 0, 0]) })],
    changed: ({ list, row, each }) =>
      `The last row of W_Q is ${list(row('W_Q', 3))} now, so the query of “it” is ${list(row('Q', IT))}. It gives ${each(row('weights', IT))}.`,
  },
  {
    ...{ title: 'Query times key is the score', cell: at('scores', IT, CAT) },
    text: ({ list, row }) =>
      `Each word also has a key: what it has to offer. It is the row of the word in X, multiplied by W_K. The key of cat is ${list(row('K', CAT))}. ` +
      `In Kᵀ, above the scores, each key is a column. The score says how well a query and a key fit: multiply them number by number, and add ` +
      `the products.`,
    ask: ({ list, row }) => `The query of “it” is ${list(row('Q', IT))}. What is its score with the key of cat?`,
    answer: ({ sum, row, list }) =>
      `${sum(row('Q', IT), row('K', CAT))}. All scores of “it”, before they are divided by √d, are ${list(row('scores', IT))}.`,
    change: ['Double the key of animals', ({ W_K }) => ({ W_K: edited(W_K, 0, [2, 0, 0, 0]) })],
    changed: ({ sum, row, list }) =>
      `The first row of W_K is ${list(row('W_K', 0))} now, so the score is ${sum(row('Q', IT), row('K', CAT))}. Cat gets more: its weight is ` +
      `${write(row('weights', IT)[CAT])}.`,
  },
  {
    ...{ title: 'Why divide by √d?', cell: at('scaled_scores', IT, CAT), after: at('weights', IT, CAT) },
    text: ({ row }) =>
      `A score is a sum of d products, one for each column of Q. Here d = ${row('Q', IT).length} and √d = ${write(Math.sqrt(row('Q', IT).length))}. A real model often has d = 64: ` +
      `with more products, the scores become larger. Softmax, which comes later, does not work well with large scores. So each score is divided by √d.`,
    ask: ({ list, row }) => `“it” has the scaled scores ${list(row('scaled_scores', IT))}. What if these were ten times larger?`,
    answer: () => 'Then the largest one takes everything, and all other words are ignored. Try it with the button.',
    change: ['Ten times larger', () => ({ scale: 5 })],
    changed: ({ list, row }) =>
      `The scores are multiplied by ${write(10 / Math.sqrt(row('Q', IT).length))} now, which is ten times 1/√d. With ${list(row('scaled_scores', IT))}, cat gets ${write(row('weights', IT)[CAT])}, and the others get almost 0.`,
  },
  {
    ...{ title: 'The mask', cell: at('masked_scores', CAT, DRINKS) },
    text: () =>
      'A model that writes a text word by word must not use words that come later. A mask adds −∞ to their scores, so their weights are 0.',
    ask: () => 'The picture has no mask yet. The “?” is the score of cat with drinks, a later word. What is it with a mask?',
    answer: ({ row }) =>
      `Without a mask it is ${write(row('masked_scores', CAT)[DRINKS])}. With a mask it is −∞, and so are the scores of cat with milk and it. cat can then use ` +
      `only itself. “it” is the last word, so it can still use all words. Try it with the button.`,
    change: ['Hide later words', () => ({ causal: true })],
    changed: ({ row }) => `The hatched scores are −∞, and their weights are 0. cat gives ${write(row('weights', CAT)[CAT])} to itself.`,
  },
  {
    ...{ title: 'Softmax makes shares', cell: at('weights', DRINKS, CAT) },
    text: () => 'Take e^score for each word. Divide each of them by their sum. Now they are shares: together they are 1. This is softmax.',
    ask: ({ list, row }) =>
      `“drinks” has the scaled scores ${list(row('masked_scores', DRINKS))}. ` +
      `${[2, 1, 0].map((x) => `e^${x} = ${write(Math.exp(x), 4)}`).join(', ')}. What share does cat get?`,
    answer({ row, list }) {
      const [scores, weights] = [row('masked_scores', DRINKS), row('weights', DRINKS)];
      const powers = scores.map(Math.exp);
      const total = powers.reduce((sum, power) => sum + power, 0);
      return (
        `The powers sum to ${powers.map((x) => write(x, 4)).join(' + ')} = ${write(total, 4)}. ` +
        `${write(powers[CAT], 4)} ÷ ${write(total, 4)} = ${write(weights[CAT])}. All shares are ${list(weights)}.`
      );
    },
    change: ['Multiply all scores by 0', () => ({ scale: 0 })],
    changed: ({ row, list }) => `Softmax of ${list(row('masked_scores', DRINKS))} is ${list(row('weights', DRINKS))}.`,
  },
  {
    ...{ title: 'The output, and heads', cell: at('output', IT, 0), after: at('weights', IT, CAT) },
    text: ({ list, row }) =>
      `Each word has a value: what it hands on. It is its row of X, multiplied by W_V. The value of cat is ${list(row('V', CAT))}: its first number is ${write(row('V', CAT)[0])}. The output of “it” mixes all values by its weights.`,
    ask: () => 'Which word adds most to the output of “it”?',
    answer: ({ sum, row, column, list }) =>
      `The first number is ${sum(row('weights', IT), column('V', 0))}. The largest of these products is the one of cat, because “it” gives most to cat. ` +
      `The output is ${list(row('output', IT))}.`,
    change: ['Use two heads', () => ({ heads: 2 })],
    changed: ({ row }, second) =>
      `A head is all of this with a W_Q, W_K and W_V of its own. Head 0 has the left half of their columns, and head 1 the right half, so d is ` +
      `${row('Q', IT).length} now. In head 0, the word “it” gives ${write(row('weights', IT)[CAT])} to cat. In head 1, which you can choose above the ` +
      `picture, cat gives ${write(second.row('weights', CAT)[DRINKS])} to drinks. W_O mixes the outputs of all heads, if there is one. The tour ` +
      `ends here. “${document.getElementById('drawer-open').innerText}” at the top opens the request, in which you can change every number.`,
  },
];

// Makes the tour in an empty, hidden section. opener: the button that starts it, or goes on where the user has left it. page: {begin(),
// change(make), show(cell, asking), leave(), answer()}. begin() shows the example, and resolves to whether the answer to it is there. change(make) changes
// the body of the request, make(body) returns the keys that change; it resolves when the answer is there. show(cell, asking) shows how the number of
// a cell is made, or, while the tour asks a question, only where it stands. leave() shows everything again.
export function createTour(root, opener, page) {
  let stop = -1; // the stop that is shown, or −1
  let last = 0; // the stop that was shown last
  let asked = 0; // how many times the user has asked for a stop, or closed the tour
  let own = false; // whether the tour itself changes the request now

  function card(title, texts, buttons) {
    root.replaceChildren();
    const words = makeWith('div', root, { className: 'tour-words' });
    const heading = title ? makeWith('h2', words, { textContent: title, tabIndex: -1 }) : null;
    for (const [textContent, className = ''] of texts) makeWith('p', words, { textContent, className });
    const line = makeWith('p', root, { className: 'tour-buttons' });
    const made = buttons.map(([text, does, quiet]) => makeButton(line, text, does, { className: quiet ? 'quiet' : '' }));
    root.hidden = false;
    return { heading, made };
  }

  // Shows a part of a stop: 'ask', 'answer' or 'changed'.
  function show(part, focus) {
    const one = STOPS[stop];
    const answer = page.answer();
    const numbers = numbersOf(answer);
    const end = stop === STOPS.length - 1;
    const texts =
      part === 'changed'
        ? [[one.changed(numbers, answer.heads > 1 ? numbersOf(answer, 1) : null), 'tour-answer']]
        : [[one.text(numbers)], [one.ask(numbers), 'tour-ask']];
    if (part === 'answer') texts.push([one.answer(numbers), 'tour-answer']);
    const first = { ask: ['Show the answer', () => show('answer', 0)], answer: [one.change[0], change], changed: ['Undo', undo] }[part];
    const buttons = [
      first,
      ...(stop ? [['Back', () => go(stop - 1)]] : []),
      ...(end ? [] : [['Next', () => go(stop + 1)]]),
      ['End the tour', finish, !end],
    ];
    const { heading, made } = card(`${stop + 1} of ${STOPS.length}: ${one.title}`, texts, buttons);
    page.show(part === 'changed' ? (one.after ?? one.cell) : one.cell, part === 'ask');
    (focus === undefined ? heading : made[focus]).focus({ preventScroll: true });
  }

  // Calls does(), which changes the request, and shows a part of the stop afterwards.
  async function afterwards(does, part, focus) {
    const mine = ++asked;
    own = true;
    const done = await does();
    own = false;
    if (done && mine === asked) show(part, focus);
  }

  const change = () => afterwards(() => page.change(STOPS[stop].change[1]), 'changed', 0);
  const undo = () => afterwards(page.begin, 'answer', 0);

  // Shows a stop as soon as the page has the numbers of the example.
  function go(to) {
    stop = last = to;
    return afterwards(page.begin, 'ask');
  }

  function close() {
    asked++;
    stop = -1;
    page.leave();
    if (root.contains(document.activeElement)) opener.focus({ preventScroll: true });
    root.hidden = true;
    root.replaceChildren();
    keep(DONE, 'closed');
  }

  // Ends the tour. The example is then as it was before.
  function finish() {
    close();
    page.begin();
  }

  root.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') (stop < 0 ? close : finish)();
    else if (stop >= 0 && step && STOPS[stop + step]) go(stop + step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  opener.addEventListener('click', () => go(last));

  return {
    // Offers the tour to somebody who has not closed it before.
    offer() {
      if (kept(DONE) !== null) return;
      card('', [['New to attention? Eight questions, eight minutes.']], [['Start the tour', () => go(0)], ['No, thanks', close, true]]); // prettier-ignore
    },
    // Closes the tour, because the user changes the request or chooses another example.
    leave() {
      if (stop >= 0 && !own) close();
    },
  };
}
