// recurrence.test.mjs tests how the weights of attention without softmax are made, for every pair of words, and the change of a request from
// one rule to another. NumPy has computed the expected numbers (../data/gen/make_linear_words.py).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { normalised, partsOf, stepOf, weightsOf } from '../../../server/explorer/src/recurrence.js';
import { EXAMPLES, requestText } from '../../../server/explorer/src/examples.js';
import { carried, ruleOf } from '../../../server/explorer/src/rules.js';
import { pathFor } from '../../../server/explorer/src/request.js';
import { drawing } from '../draw.mjs';

const { cases } = JSON.parse(readFileSync(new URL('../../data/golden_linear_words.json', import.meta.url)));
const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-12, `${what}: ${a} is not ${b}`);
const matrix = (rows) => ({ rows: rows.length, cols: rows[0].length, data: Float64Array.from(rows.flat()) });
const sum = (values) => values.reduce((total, value) => total + value, 0);

// Returns the heads of a case, as recurrence.js takes them.
function headsOf({ request: { Q, K, V, beta = null, scale, normalize_QK }, expect }) {
  const one = !Array.isArray(Q[0][0]);
  const of = (value, head) => (one ? value : value?.[head]);
  return expect.map((wanted, head) => {
    let [q, k] = [Q, K].map((value) => matrix(of(value, head)));
    if (normalize_QK) [q, k] = [q, k].map((value) => normalised(value, 1e-6));
    const gates = wanted.gates ? matrix(wanted.gates) : null;
    const shares = beta && Float64Array.from(of(beta, head));
    return { wanted, head: { Q: q, K: k, V: matrix(of(V, head)), gates, beta: shares, scale: scale ?? 1 / Math.sqrt(q.cols) } };
  });
}

for (const one of cases.filter(({ path }) => path === '/linear-attention')) {
  test(`the weights of ${one.id} and their parts are those of NumPy`, () => {
    for (const { wanted, head } of headsOf(one)) {
      const n = head.Q.rows;
      const made = weightsOf(head);
      for (const name of ['scores', 'scaled_scores', 'weights', ...(head.beta ? ['uncorrected'] : [])]) {
        wanted[name].flat().forEach((value, at) => near(made[name][at], value, `${name} ${at}`));
      }
      for (let i = 0; i < n; i++) {
        for (let j = 0; j <= i; j++) {
          const parts = partsOf(head, i, j);
          near(parts.weight, wanted.weights[i][j], `weight ${i} ${j}`);
          near(parts.score, wanted.scores[i][j], 'score');
          near(parts.stored, wanted.scaled_scores[i][j] * (head.beta ? head.beta[j] : 1), 'stored');
          assert.deepEqual(parts.steps.map(({ word }) => word), Array.from({ length: i - j }, (_, at) => j + 1 + at)); // prettier-ignore
          const between = parts.steps.map(({ word }) => wanted.gates?.[word]);
          parts.steps.forEach(({ gate }, at) =>
            assert.deepEqual(gate, between[at] ? [Math.min(...between[at]), Math.max(...between[at])] : null),
          );
          if (head.gates?.cols === 1)
            near(parts.stored * between.reduce((product, [gate]) => product * gate, 1), parts.uncorrected, 'gates');
          if (!head.beta) {
            near(parts.uncorrected, wanted.weights[i][j], 'only gates');
            assert.ok(parts.steps.every(({ correction }) => correction === null));
            continue;
          }
          near(parts.uncorrected, wanted.uncorrected[i][j], 'uncorrected');
          near(parts.corrected, wanted.corrections[i][j], 'corrected');
          near(sum(parts.steps.map(({ correction }) => correction)), parts.corrected, 'the sum of the corrections');
          for (const { word, correction } of parts.steps) near(correction, wanted.changes[word][i][j], `what ${word} changed in ${i} ${j}`);
        }
      }
    }
  });

  test(`what each word of ${one.id} writes leads from state to state`, () => {
    headsOf(one).forEach(({ wanted, head }, index) => {
      const { past_state } = one.request;
      let before = past_state ? Float64Array.from(past_state[index].flat()) : new Float64Array(head.K.cols * head.V.cols);
      wanted.states.forEach((state, t) => {
        const { kept, held, share } = stepOf(head, before, t);
        const wrote = held.map((value, col) => share * (head.V.data[t * head.V.cols + col] - (head.beta ? value : 0)));
        assert.equal(share, head.beta ? head.beta[t] : 1);
        assert.deepEqual(kept, wanted.gates ? [Math.min(...wanted.gates[t]), Math.max(...wanted.gates[t])] : null);
        state.forEach((row, i) =>
          row.forEach((value, j) => {
            const gate = wanted.gates ? wanted.gates[t][wanted.gates[t].length === 1 ? 0 : i] : 1;
            near(gate * before[i * row.length + j] + head.K.data[t * head.K.cols + i] * wrote[j], value, `state ${t}`);
          }),
        );
        before = Float64Array.from(state.flat());
      });
    });
  });
}

// Steps a state whose values are the words themselves: row t of V is 1 at t. So what a query reads is its row of weights. Returns that row,
// for the query i, of a state into which only the words of `writers` write.
function readBy({ Q, K, gates, beta, scale }, i, writers = null) {
  const [n, d] = [K.rows, K.cols];
  const cell = ({ cols, data }, row, col) => data[row * cols + (cols === 1 ? 0 : col)];
  let state = Array.from({ length: d }, () => Array(n).fill(0));
  for (let t = 0; t <= i; t++) {
    const faded = state.map((row, c) => row.map((x) => x * (gates ? cell(gates, t, c) : 1)));
    const held = Array.from({ length: n }, (_, j) => sum(faded.map((row, c) => row[j] * K.data[t * d + c])));
    const value = (j) => Number(j === t) * (beta ? beta[t] : 1) - (beta && (!writers || writers(t)) ? beta[t] * held[j] : 0);
    state = faded.map((row, c) => row.map((x, j) => x + K.data[t * d + c] * value(j)));
  }
  return Array.from({ length: n }, (_, j) => scale * sum(state.map((row, c) => row[j] * Q.data[i * d + c])));
}

test('drawn weights and their parts are what a state that holds each word apart gives back', () => {
  const { whole, pick, random, matrix } = drawing(11);
  for (let round = 0; round < 150; round++) {
    const [n, d] = [whole(1, 6), whole(1, 4)];
    const gate = pick([null, 1, d]);
    const gates = gate && { rows: n, cols: gate, data: Float64Array.from({ length: n * gate }, () => 0.2 + 0.8 * random()) };
    const beta = pick([null, Float64Array.from({ length: n }, random)]);
    const head = { Q: matrix(n, d), K: matrix(n, d), gates, beta, scale: 0.1 + random() };
    const made = weightsOf(head);
    const close = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-9 * (1 + Math.abs(b)), `${what}: ${a} is not ${b}`);
    for (let i = 0; i < n; i++) {
      const weights = readBy(head, i);
      const plain = readBy(head, i, () => false);
      for (let j = 0; j < n; j++) {
        const at = i * n + j;
        const score = sum([...head.Q.data.subarray(i * d, (i + 1) * d)].map((x, c) => x * head.K.data[j * d + c]));
        close(made.scores[at], score, 'score');
        close(made.scaled_scores[at], head.scale * score, 'scaled');
        close(made.weights[at], weights[j], `weight ${i} ${j}`);
        close(made.uncorrected[at], plain[j], `uncorrected ${i} ${j}`);
        if (j > i) continue;
        const parts = partsOf(head, i, j);
        close(parts.score, score, 'score');
        close(parts.scaled, head.scale * score, 'scaled');
        assert.equal(parts.share, beta ? beta[j] : 1);
        close(parts.stored, head.scale * score * parts.share, 'stored');
        close(parts.weight, weights[j], 'weight');
        close(parts.uncorrected, plain[j], 'uncorrected');
        close(parts.corrected, weights[j] - plain[j], 'corrected');
        assert.deepEqual(parts.steps.map(({ word }) => word), Array.from({ length: i - j }, (_, more) => j + 1 + more)); // prettier-ignore
        for (const { word, gate: range } of parts.steps) {
          const own = gates && [...gates.data.subarray(word * gate, (word + 1) * gate)];
          assert.deepEqual(range, own && [Math.min(...own), Math.max(...own)]);
        }
        // What the words up to each one have corrected is the sum of the corrections up to there.
        let corrected = 0;
        for (const { word, correction } of parts.steps) {
          if (!beta) assert.equal(correction, null);
          corrected += correction;
          close(corrected, readBy(head, i, (t) => t <= word)[j] - plain[j], `corrections up to ${word}`);
        }
        if (gate === 1)
          close(parts.gate, parts.steps.reduce((product, { word }) => product * gates.data[word], 1), 'the gates'); // prettier-ignore
        else assert.equal(parts.gate, null);
      }
    }
    const norms = normalised(head.K, 0.5);
    norms.data.forEach((x, at) => {
      const row = head.K.data.subarray(Math.floor(at / d) * d, (Math.floor(at / d) + 1) * d);
      close(x, head.K.data[at] / Math.sqrt(sum([...row].map((y) => y * y)) + 0.5), 'normalised');
    });
  }
});

const { variants } = EXAMPLES.find(({ id }) => id === '005');
const variantOf = (rule) => variants.find(({ path, body }) => ruleOf(path, body) === rule);

test('the rule of a request is the one it names, or the one that follows from what is given', () => {
  const path = '/linear-attention';
  assert.deepEqual(
    [{}, { decay: [0] }, { beta: [1] }, { decay: [0], beta: [1] }, { decay: [0], update: 'linear' }].map((body) => ruleOf(path, body)),
    ['linear', 'gated', 'delta', 'gated_delta', 'linear'],
  );
  assert.equal(ruleOf('/attention', { decay: [0], causal: true }), 'softmax');
  for (const { path: expected, body } of variants) assert.equal(pathFor(body), expected);
});

test('an edited request goes through all rules and comes back as it was', () => {
  const stash = new Map();
  const edited = { ...variantOf('gated_delta').body, scale: 0.25, decay: [0, -1, 0, 0, 0, 0, 0, -2] };
  edited.V = edited.V.map((row, at) => (at === 3 ? [5, 6, 7] : row));
  let text = JSON.stringify(edited);
  for (const rule of ['softmax', 'linear', 'gated', 'delta', 'softmax', 'gated_delta']) {
    text = carried(text, variantOf(rule), stash);
    const body = JSON.parse(text);
    const { path } = variantOf(rule);
    assert.equal(pathFor(body), path, rule);
    assert.equal(ruleOf(path, body), rule);
    for (const key of ['Q', 'K', 'V', 'scale', 'dtype']) assert.deepEqual(body[key], edited[key], `${rule}: ${key}`);
    assert.deepEqual(body.decay, rule.startsWith('gated') ? edited.decay : undefined);
    assert.deepEqual(body.beta, rule.endsWith('delta') ? edited.beta : undefined);
    if (rule === 'softmax') assert.equal(body.causal, true);
  }
  const { causal, ...rest } = JSON.parse(text);
  assert.equal(causal, true, 'without softmax, causal says what holds anyway');
  assert.deepEqual(rest, edited);
});

test('options of softmax wait while another rule is shown; gates and shares fit to another number of words', () => {
  const stash = new Map();
  const { Q, K, V } = variantOf('softmax').body;
  const six = { Q: Q.slice(0, 6), K: K.slice(0, 6), V: V.slice(0, 6) };
  const softmax = { ...six, causal: 'bottom_right', window: [2, 0], normalization: 'sigmoid' };
  const gated = JSON.parse(carried(JSON.stringify(softmax), variantOf('gated_delta'), stash));
  assert.deepEqual(Object.keys(gated), ['Q', 'K', 'V', 'update', 'decay', 'beta']);
  assert.deepEqual([gated.decay, gated.beta], [variantOf('gated').body.decay.slice(0, 6), variantOf('delta').body.beta.slice(0, 6)]);
  const back = JSON.parse(carried(JSON.stringify(gated), variantOf('softmax'), stash));
  assert.deepEqual(back, { ...softmax, causal: true });
  const ten = Object.fromEntries(Object.entries(six).map(([name, rows]) => [name, [...rows, ...rows.slice(0, 4)]]));
  const longer = JSON.parse(carried(JSON.stringify(ten), variantOf('gated'), new Map())).decay;
  const own = variantOf('gated').body.decay;
  assert.deepEqual(longer, [...own, ...Array(10 - own.length).fill(own.at(-1))], 'the last number is repeated');
  assert.equal(carried('no JSON', variantOf('delta'), stash), 'no JSON');
  assert.equal(requestText(variantOf('delta')).includes('decay'), false);
});
