// examples.js has the five notebooks as requests, and one without softmax, each with a note that says what to look at. The matrices of
// notebook 001 are drawn by the server from the seed of the notebook.
import { formatNumber } from './numbers.js';
import { formatJSON } from './snippets.js';

const say = (x) => formatNumber(x, 3);

// Returns the matrix that a text writes: numbers between spaces, rows between semicolons.
const m = (text) => text.split(';').map((row) => row.trim().split(' ').map(Number));

const SENTENCE =
  'Mathematics catalogues everything not self-contradictory; within its vast inventory, ' +
  'physics is an island of structures rich enough to contain their own beholders.';

const rand = (...shape) => ({ random: 'rand', shape });
const words = { random: { generator: 'torch', seed: 123 }, text: SENTENCE, embedding_dim: 64 };
const random = (what) => `See shapes and how numbers flow, not what words mean: ${what} are random. `;
const untrained = (what) => `${random(`vectors and projections${what}`)}Scores reach the hundreds, so one word gets nearly all of a row.`;
const randint = { random: 'randint', high: 3, shape: [3, 3] };
const LARGE = { random: 'randn', shape: [1024, 64] };
const SMALL = { random: 'normal', shape: [32, 32], std: 0.25 };
const oneHead = [rand(64, 32), rand(64, 32), rand(64, 48)];

const FROM_SCRATCH = {
  X: m('1 0 0; 0 1 0; 1 1 0; 0 0 1'),
  W_Q: m('2 0 2; 2 0 0; 2 1 2'),
  W_K: m('2 2 2; 0 2 1; 0 1 1'),
  W_V: m('1 1 0; 0 1 1; 0 0 0'),
};

const ANY_SIZE = {
  X: m('0 1 1 0 0 1 0; 1 0 1 0 1 1 1; 1 1 1 1 0 0 0; 0 1 1 1 0 0 0; 1 1 1 0 0 1 0'),
  heads: [
    {
      W_Q: m('0 0 0; 1 0 0; 1 0 0; 1 1 0; 1 1 1; 1 0 0; 0 1 0'),
      W_K: m('1 0 1; 0 0 0; 1 1 0; 0 1 1; 1 1 1; 1 0 0; 0 0 1'),
      W_V: m('1 1 1; 0 1 0; 1 1 1; 1 0 1; 0 1 1; 0 0 1; 1 0 0'),
    },
    {
      W_Q: m('0 0; 1 0; 0 1; 1 0; 0 1; 1 1; 1 0'),
      W_K: m('1 1; 1 0; 0 1; 1 0; 0 0; 1 1; 1 0'),
      W_V: m('0 0; 1 0; 1 0; 1 1; 0 0; 1 0; 1 1'),
    },
    {
      W_Q: m('1 1 0 1; 1 0 1 0; 0 1 1 1; 1 1 1 1; 1 0 1 0; 1 0 1 1; 1 1 0 0'),
      W_K: m('0 0 0 0; 1 1 1 1; 0 1 1 1; 0 0 1 0; 1 1 1 0; 0 0 0 1; 0 0 0 0'),
      W_V: m('1 1 1 1; 1 1 1 0; 0 1 1 0; 1 1 0 0; 0 1 0 1; 0 1 0 0; 0 0 1 1'),
    },
  ],
  dtype: 'float64',
};

const ONE_HEAD = {
  X: ANY_SIZE.X,
  W_Q: m('0 1 1; 1 0 0; 0 0 1; 1 1 1; 0 0 0; 0 0 0; 0 0 1'),
  W_K: m('1 1 1; 1 0 0; 0 1 0; 1 1 1; 0 1 1; 0 0 0; 1 1 1'),
  W_V: m('1 0 0; 0 0 1; 0 1 0; 0 0 0; 0 0 0; 0 0 0; 1 0 1'),
  dtype: 'float64',
};

const MASKED = {
  Q: m(`
    -1.8216576 1.57630301 -0.20778506 -0.76956296 0.8582931 -0.19293435 1.36478309 -1.16379581;
    0.19526426 -1.1455688 0.82022973 -0.12065462 0.59703497 1.36787102 1.1080685 1.0466633;
    -0.39615992 0.45472356 0.3731153 -0.917862 -0.25715102 0.31966482 0.65316773 1.23238473;
    0.97518666 1.0072593 1.37378508 1.35722793 0.12906707 -1.46900382 -0.2785378 -0.66744096`),
  K: m(`
    1.27808408 0.10814351 -0.71982338 0.42554257 -0.9594835 0.88881091 -0.73726105 0.68289195;
    1.05186207 1.77090363 -1.71466956 -0.47977787 0.68470112 -0.94408477 -0.89386628 0.36465941;
    0.32049713 -0.51142799 0.07883858 -0.43990039 -1.52478932 -0.88887919 0.80722071 -2.00635035;
    1.36305392 0.85382501 -0.9313731 1.1714878 0.6679662 0.41030909 -0.29642096 1.89337655`),
  V: m(`
    0.82470654 1.01832051 -0.0742799 -1.0382902 1.47397322 1.17119684 -0.93415327 0.85873486;
    2.66896272 -0.04549671 1.40019354 0.44697015 -0.79854277 0.04474527 -0.68296445 1.97098558;
    -0.64020382 -0.10911464 0.95848003 -0.69247603 -0.51030663 -1.35656217 -0.32177026 0.55925046;
    -0.33430803 -0.67501889 -0.45962707 0.2391161 -1.69305168 -1.55507137 0.24472677 -1.42243927`),
  causal: true,
  dtype: 'float64',
};

const STEP_BY_STEP = {
  X: m('1 0 1 0; 0 1 0 1; 1 1 0 0'),
  W_Q: m(`
    0.05056170714293955 0.499951333237829 -0.9959089311068651;
    0.6935985082913116 -0.41830152002691007 -1.5845772351121241;
    -0.6477067671218505 0.5985751739673772 0.3322500326099644;
    -1.1474766329454797 0.6186696890268814 -0.08798692834027545`),
  W_K: m(`
    0.42507239648702144 0.33225314537233536 -1.1568162609191428;
    0.3509971530825316 -0.606887283097402 1.5469793290157272;
    0.7233416087478579 0.046135567230164806 -0.9829916534185322;
    0.054432738865157676 0.15989293507262803 -1.2089481591289206`),
  W_V: m(`
    2.2233602169111686 0.39429521471439166 1.6923577152381537;
    -1.1128121538537732 1.6357475418015288 -1.3609655918364936;
    -0.6512258333298 0.5424513084033299 0.04800624719068911;
    -2.358073633011557 -1.105584043819401 0.8378363539201328`),
  dtype: 'float64',
};

// Eight words: a noun, then what is said of it. The numbers are made by hand. What is said is stored under the key of the noun before it; its
// value has 1 or −1 in the column of its kind.
const SAID = {
  Q: m('1.92 0.56 0 0; 1.6 1.2 0 0; 0 0.56 1.92 0; 0 1.2 1.6 0; 1.92 0.56 0 0; 1.6 1.2 0 0; 0 0.56 1.92 0; 0 1.2 1.6 0'),
  K: m('0.28 0 0 0.96; 0.96 0.28 0 0; 0 0 0.28 0.96; 0 0.28 0.96 0; 0.28 0 0 0.96; 0.8 0.6 0 0; 0 0 0.28 0.96; 0 0.6 0.8 0'),
  V: m('0 0 1; 1 0 0; 0 0 -1; 0 1 0; 0 0 1; -1 0 0; 0 0 -1; 0 -1 0'),
  dtype: 'float64',
};
const FORGET = { decay: [-0.05, -0.05, -0.1, -0.05, -0.36, -0.05, -0.1, -0.05] };
const CORRECT = { beta: [0.2, 1, 0.2, 1, 0.2, 0.9, 0.2, 0.9] };
const byRule = (update, given, look) => ({
  id: update === 'gated_delta' ? '005' : `005-${update}`,
  ...{ title: update.replace('_', ' '), look, path: '/linear-attention', body: { ...SAID, update, ...given } },
});

// The examples. Each opens with the first of its variants. look: the note that the page shows while the request is
// unchanged, or a function of its answer that returns the note.
export const EXAMPLES = [
  {
    ...{ id: '000', title: 'Attention from scratch', labels: ['word 1', 'word 2', 'word 3', 'word 4'] },
    variants: [
      {
        ...{ id: '000', title: 'four words', path: '/self-attention' },
        look: (answer) => {
          const row = (name) => answer.matrix(name, 0, 0).data.subarray(0, 3);
          const [[a, , c], [b, , d], [, , weight]] = [row('scores'), row('scaled_scores'), row('weights')];
          return (
            `Word 1 scores ${say(a)} against itself and ${say(c)} against word 3. Divided by √3, these are ${say(b)} and ${say(d)}. ` +
            `Softmax turns this small lead into ${say(weight)} of its attention. Point at any number to see how it is made.`
          );
        },
        body: FROM_SCRATCH,
      },
      {
        ...{ id: '000-seed', title: 'from the seed', path: '/self-attention' },
        look: 'The server draws the weight matrices with NumPy’s generator and seed 42. They are the ones that the notebook prints.',
        body: { random: { generator: 'numpy', seed: 42 }, X: FROM_SCRATCH.X, W_Q: randint, W_K: randint, W_V: randint },
      },
    ],
  },
  {
    ...{ id: '001', title: 'A sentence' },
    variants: [
      {
        ...{ id: '001-heads', title: 'four heads', path: '/multi-head-attention' },
        look: untrained(' of all heads'),
        body: {
          ...{ ...words, W_Q: { ...rand(4, 32, 64), discard: oneHead }, W_K: rand(4, 32, 64), W_V: rand(4, 48, 64) },
          weight_layout: 'out_in',
        },
      },
      {
        ...{ id: '001-head', title: 'one head', path: '/self-attention' },
        look: untrained(''),
        body: { ...words, W_Q: oneHead[0], W_K: oneHead[1], W_V: oneHead[2] },
      },
      {
        ...{ id: '001-vanilla', title: 'no projections', path: '/attention' },
        look: `${random('vectors')}Without projections, each word is most similar to itself: see the diagonal.`,
        body: words,
      },
      {
        ...{ id: '001-raw', title: 'no softmax', path: '/attention' },
        look: `${random('vectors')}Without softmax, scores are the weights. Some are negative, and no row sums to 1.`,
        body: { ...words, scale: 1, normalization: 'none' },
      },
    ],
  },
  {
    ...{ id: '002', title: 'Heads of any size' },
    variants: [
      {
        ...{ id: '002-heads', title: 'three heads', path: '/multi-head-attention' },
        look: (answer) => {
          const [a, b, c] = [0, 1, 2].map((head) => answer.matrix('V', 0, head)?.cols);
          return `Three heads with ${a}, ${b} and ${c} columns read the same five words. Their outputs stand side by side in ${answer.matrix('output', 0, 0).cols} columns.`;
        },
        body: ANY_SIZE,
      },
      {
        ...{ id: '002-head', title: 'one head', path: '/self-attention' },
        look: (answer) =>
          `One head projects the five words to ${answer.matrix('Q', 0, 0).cols} columns. Its output has ${answer.matrix('output', 0, 0).cols} columns, too.`,
        body: ONE_HEAD,
      },
    ],
  },
  {
    ...{ id: '003', title: 'A masked head', labels: ['My', 'name', 'is', 'Grant'] },
    variants: [
      {
        ...{ id: '003', title: 'causal', path: '/attention' },
        look: ({ statistics }) =>
          'No word sees what comes after it: see the hatched triangle. The first word attends to itself alone. ' +
          `Scaling reduces the variance from ${formatNumber(statistics.variance.scores, 2)} to ${formatNumber(statistics.variance.scaled_scores, 2)}.`,
        body: MASKED,
      },
    ],
  },
  {
    ...{ id: '004', title: 'Step by step', labels: ['Word 1', 'Word 2', 'Word 3'] },
    variants: [
      {
        ...{ id: '004', title: 'three words', path: '/self-attention' },
        look:
          'Follow one row. The factor 1/√3 keeps the order of the scores. Softmax turns the scores into shares. ' +
          'The output is the values, weighted by these shares.',
        body: STEP_BY_STEP,
      },
    ],
  },
  {
    ...{ id: '005', title: 'Without softmax', name: 'without softmax' },
    rules: true, // the variants are rules for the same words and matrices
    labels: ['door', 'open', 'cat', 'in', 'door', 'shut', 'cat', 'out'],
    variants: [
      {
        ...{ id: '005-softmax', title: 'softmax', path: '/attention' },
        look:
          'Softmax keeps a list of all keys: the second “cat” compares itself with every word before it, and some weight goes to each. ' +
          'The other rules keep one state in place of the list.',
        body: { ...SAID, causal: true },
      },
      byRule(
        'linear',
        {},
        'Without softmax, the state adds up what all words write. Nothing is forgotten: for “out”, “in” and “out” weigh nearly the same, ' +
          'and their values, 1 and −1, cancel each other out.',
      ),
      byRule(
        'gated',
        FORGET,
        'At each word, a gate multiplies the state by a number below 1, so that older words fade. ' +
          'The second “door” forgets most. But “open” and “in” are still there.',
      ),
      byRule(
        'delta',
        CORRECT,
        'A word first looks up what the state holds under its key, and writes only the difference. ' +
          'So “shut” replaces “open”: point at “open” in the row of “shut” to see the correction.',
      ),
      byRule(
        'gated_delta',
        { ...FORGET, ...CORRECT },
        'The state forgets and corrects, as in Qwen3-Next and Kimi Linear. Point at a weight to see how gates and corrections made it, ' +
          'and open the state to see it change from word to word.',
      ),
    ],
  },
];

// Four words whose numbers are made by hand for the tour. The columns of X say whether a word is an animal, a thing, an action or a pronoun.
export const PRONOUN = {
  ...{ id: 'it', title: 'A pronoun', name: 'a pronoun', labels: ['cat', 'drinks', 'milk', 'it'] },
  columns: ['animal', 'thing', 'action', 'pronoun'], // what the columns of X mean
  row: 3, // the word that is chosen at first
  variants: [
    {
      ...{ id: 'it', title: 'it', path: '/self-attention' },
      look: (answer) => {
        const [cat, , milk] = answer.matrix('weights', 0, 0).data.subarray(12);
        return `“it” looks for an animal, and a little for a thing. So it gives ${say(cat)} to cat, and only ${say(milk)} to milk. The tour explains each number.`;
      },
      body: {
        X: m('1 1 0 0; 0 0 1 0; 0 1 0 0; 0 0 0 1'),
        W_Q: m('0 0 1 0; 0 0 1 0; 2 2 0 0; 3 1 0 0'),
        W_K: m('1 0 0 0; 0 1 0 0; 0 0 1 0; 0 0 0 1'),
        W_V: m('2 0; 0 1; 1 1; 0 0'),
      },
    },
  ],
};

// The trained model (story.js). Its request is the layer of a head; story.js sets it, and the labels, for the words that are typed.
export const MODEL = {
  ...{ id: 'model', title: 'A trained model', name: 'the trained model' },
  words: 'Anna Smith did not cross the street because it was too wide . she met Ben Nelson . Anna',
  variants: [
    {
      ...{ id: 'model', title: 'words', path: '/multi-head-attention' },
      look:
        'Two layers of attention, trained on made-up stories. Type a sentence, and see what each head looks at: a pronoun at whom it stands for, “the” ' +
        'at what was named before, and a name that comes again at the word after it. Switch a head off to see what the model no longer expects.',
      body: {},
    },
  ],
};

export const OWN = {
  ...{ id: 'own', title: 'Your own' },
  look: 'Paste a text, a table, CSV, JSON, or matrices as Python prints them, or drop a file. The page computes while you type.',
  variants: [
    {
      ...{ id: 'own', title: 'a sentence', path: '/multi-head-attention' },
      look: `${random('vectors and projections')}Paste a text, a table, CSV, JSON, or matrices as Python prints them.`,
      body: {
        random: { generator: 'torch', seed: 1 },
        text: 'The animal did not cross the street because it was too tired.',
        embedding_dim: 32,
        heads: 4,
        ...{ W_Q: SMALL, W_K: SMALL, W_V: SMALL },
      },
    },
    {
      ...{ id: 'own-matrices', title: 'matrices', path: '/attention' },
      body: { Q: m('1 0 1; 0 2 0; 1 1 0'), K: m('1 0 0; 0 1 1; 2 0 1; 0 0 1'), V: m('1 0; 0 1; 1 1; 0.5 -1') },
    },
    {
      ...{ id: 'own-large', title: '1024 × 1024', path: '/attention' },
      body: { random: { generator: 'numpy', seed: 7 }, Q: LARGE, K: LARGE, V: LARGE, window: [255, 127] },
    },
  ],
};

export const ALL = [...EXAMPLES, PRONOUN, MODEL, OWN];

// Finds an example or a variant by its name, as {example, variant}. An unknown name gives the first example.
export function find(name) {
  for (const example of ALL) {
    const variant = example.variants.find(({ id }) => id === name) ?? (example.id === name ? example.variants[0] : null);
    if (variant) return { example, variant };
  }
  return { example: EXAMPLES[0], variant: EXAMPLES[0].variants[0] };
}

export const requestText = (variant) => variant.text ?? formatJSON(variant.body);
