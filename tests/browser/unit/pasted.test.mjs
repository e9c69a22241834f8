// pasted.test.mjs tests how the explorer reads what people paste in place of a request. What PyTorch, NumPy and JAX print was made by
// PyTorch 1.13, by NumPy 1.24.2 and 2.4.6, and by JAX 0.10.2, and what pandas prints by pandas 3.1.1. What TensorFlow prints is
// written by hand after its documentation. Drawn tables are printed as pandas and Markdown have them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toCSV } from '../../../server/explorer/src/download.js';
import { readPasted } from '../../../server/explorer/src/pasted.js';
import { shell } from '../../../server/explorer/src/snippets.js';

// Returns the JSON of a text that is one matrix without a name and without labels, with all white space as one blank.
function one(text) {
  const { matrices, labels } = readPasted(text);
  assert.deepEqual([matrices.length, matrices[0][0], labels], [1, null, null], text);
  JSON.parse(matrices[0][1]);
  return matrices[0][1].replace(/\s+/g, ' ').replaceAll('[ ', '[').replaceAll(' ]', ']');
}

const print = "np.set_printoptions(threshold=sys.maxsize), torch.set_printoptions(profile='full') or df.to_string() prints all of them";
const gap = (line, word = '...') => `A matrix needs all its numbers (${print}), but line ${line} has ${word}.`;

const words = (text) => assert.deepEqual(readPasted(text), { words: text }, text);

// Checks that a text is refused with a message, and that the index is that of a part of the text.
function refused(text, message, part, nth = 0) {
  let index = -1;
  for (let i = 0; i <= nth; i++) index = text.indexOf(part, index + 1);
  assert.ok(index >= 0, part);
  assert.throws(() => readPasted(text), { message, index }, text);
}

test('JSON is not touched', () => {
  for (const text of ['{"Q": [[1]]}', ' \n\ufeff {"Q"', '{']) assert.equal(readPasted(text), null);
});

test('nested arrays of JSON and of Python are matrices, with each row on a line', () => {
  assert.deepEqual(readPasted('[[1,2],[3,4]]'), {
    matrices: [[null, '[\n    [1, 2],\n    [3, 4]\n  ]', [2, 2]]],
    labels: null,
    form: 'An array',
  });
  assert.deepEqual(readPasted('[[[1],[2]]]').matrices, [[null, '[\n    [\n      [1],\n      [2]\n    ]\n  ]', [1, 2, 1]]]);
  assert.equal(one('\ufeff [[0, -Infinity], [null, true]]\n'), '[[0, null], [null, true]]');
  assert.equal(one('[0.5, 1]'), '[0.5, 1]');
  assert.equal(one('[5]'), '[5]');
  assert.equal(one('[[1, 2], [3, 4],]'), '[[1, 2], [3, 4]]');
  assert.equal(
    one('[[0.1257302210933933, -0.1321048632913019, 0.6404226504432821], [0.10490011715303971, -0.535669373161111, 0.36159505490948474]]'),
    '[[0.1257302210933933, -0.1321048632913019, 0.6404226504432821], [0.10490011715303971, -0.535669373161111, 0.36159505490948474]]',
  );
});

test('the digits of a number stay as they are', () => {
  const given = '1. -2. .5 -.5 +3 007 00.10 1e5 1.E-5 -0 −2.5 0.1000000000000000055511151231257827 12345678901234567890 1.e+400';
  const read = '1.0 -2.0 0.5 -0.5 3 7 0.10 1e5 1.0E-5 -0 -2.5 0.1000000000000000055511151231257827 12345678901234567890 1.0e+400';
  assert.equal(one(`[[${given}]]`), `[[${read.replaceAll(' ', ', ')}]]`);
  assert.equal(one(given), `[[${read.replaceAll(' ', ', ')}]]`);
  assert.equal(one('[[-inf, -Infinity, −∞, null, True, false]]'), '[[null, null, null, null, true, false]]');
});

test('tensors of PyTorch are read', () => {
  const cases = [
    [
      `tensor([[ 1.5410, -0.2934, -2.1788,  0.5684],
        [-1.0845, -1.3986,  0.4033,  0.8380]], dtype=torch.float64)`,
      '[[1.5410, -0.2934, -2.1788, 0.5684], [-1.0845, -1.3986, 0.4033, 0.8380]]',
    ],
    ['tensor([[0, 1, 2],\n        [3, 4, 5]])', '[[0, 1, 2], [3, 4, 5]]'],
    ['tensor([[ True, False],\n        [False,  True]])', '[[true, false], [false, true]]'],
    ['tensor([[0., -inf],\n        [0., 0.]])', '[[0.0, null], [0.0, 0.0]]'],
    [
      `tensor([[1.5000e+00,       -inf, 3.0000e+00],
        [1.0000e-09, 1.0000e+08, 2.0000e+00]])`,
      '[[1.5000e+00, null, 3.0000e+00], [1.0000e-09, 1.0000e+08, 2.0000e+00]]',
    ],
    [
      `tensor([[[-0.8567,  1.1006, -1.0712],
         [ 0.1227, -0.5663,  0.3731]],

        [[-0.8920, -1.5091,  0.3704],
         [ 1.4565,  0.9398,  0.7748]]])`,
      '[[[-0.8567, 1.1006, -1.0712], [0.1227, -0.5663, 0.3731]], [[-0.8920, -1.5091, 0.3704], [1.4565, 0.9398, 0.7748]]]',
    ],
    [
      `tensor([[-6.7309e-01,  8.7283e-01,  1.0554e+00,  1.7784e-01, -2.3034e-01,
         -3.9175e-01],
        [-1.4782e+00,  2.5672e+00, -4.7312e-01,  3.3555e-01, -3.3039e-03,
         -5.3444e-01]])`,
      '[[-6.7309e-01, 8.7283e-01, 1.0554e+00, 1.7784e-01, -2.3034e-01, -3.9175e-01], [-1.4782e+00, 2.5672e+00, -4.7312e-01, 3.3555e-01, -3.3039e-03, -5.3444e-01]]',
    ],
    ['tensor([[ 2.1985,  5.5131],\n        [ 0.3506, -1.8630]], grad_fn=<MulBackward0>)', '[[2.1985, 5.5131], [0.3506, -1.8630]]'],
    ["tensor([[1., 2.]], device='cuda:0', dtype=torch.float16, requires_grad=True)", '[[1.0, 2.0]]'],
    [
      'Parameter containing:\ntensor([[-0.2849, -0.1334],\n        [ 1.8929,  3.1110]], requires_grad=True)',
      '[[-0.2849, -0.1334], [1.8929, 3.1110]]',
    ],
    ['tensor([1., 2.])', '[1.0, 2.0]'],
    ['torch.nn.Parameter(torch.tensor([[1., 2.]], dtype=torch.float64), requires_grad=False)', '[[1.0, 2.0]]'],
  ];
  for (const [text, json] of cases) {
    assert.equal(one(text), json);
    assert.equal(one(text.replaceAll('\n', '\r\n')), json);
  }
});

test('arrays of NumPy, JAX and TensorFlow are read', () => {
  const cases = [
    [
      `array([[ 0.12573022, -0.13210486,  0.64042264],
       [ 0.10490011, -0.5356694 ,  0.36159506]], dtype=float32)`,
      '[[0.12573022, -0.13210486, 0.64042264], [0.10490011, -0.5356694, 0.36159506]]',
    ],
    ['array([[  0., -inf, -inf],\n       [  0.,   0., -inf]])', '[[0.0, null, null], [0.0, 0.0, null]]'],
    ['matrix([[1, 2],\n        [3, 4]])', '[[1, 2], [3, 4]]'],
    ['np.array([[1, 2], [3, 4]], np.float32)', '[[1, 2], [3, 4]]'],
    [
      `[[ 0.12573022 -0.13210486  0.64042264]
 [ 0.10490011 -0.5356694   0.36159506]]`,
      '[[0.12573022, -0.13210486, 0.64042264], [0.10490011, -0.5356694, 0.36159506]]',
    ],
    ['[[-3 -2 -1]\n [ 0  1  2]]', '[[-3, -2, -1], [0, 1, 2]]'],
    ['[[ True False  True]\n [ True False  True]]', '[[true, false, true], [true, false, true]]'],
    ['[[1.0e-10 2.5e+00]\n [1.0e+10 1.0e+00]]', '[[1.0e-10, 2.5e+00], [1.0e+10, 1.0e+00]]'],
    ['[[  0. -inf -inf]\n [  0.   0. -inf]\n [  0.   0.   0.]]', '[[0.0, null, null], [0.0, 0.0, null], [0.0, 0.0, 0.0]]'],
    ['[[1.]\n [2.]]', '[[1.0], [2.0]]'],
    ['[1. 2.]', '[1.0, 2.0]'],
    [
      `[[[ 1.3458754   0.7813114   0.26445562]
  [-0.31392282  1.4580207   1.9602584 ]]

 [[ 1.8016349   1.3151038   0.35738042]
  [-1.2083186  -0.00445413  0.65647495]]]`,
      '[[[1.3458754, 0.7813114, 0.26445562], [-0.31392282, 1.4580207, 1.9602584]], [[1.8016349, 1.3151038, 0.35738042], [-1.2083186, -0.00445413, 0.65647495]]]',
    ],
    ['[[[[0. 1.]\n   [2. 3.]]\n\n  [[4. 5.]\n   [6. 7.]]]]', '[[[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]]]'],
    [
      `[[-1.2883614   0.39512205  0.4298637   0.6960427  -1.1841179  -0.6617026
  -0.43643525 -1.169802    1.7393678  -0.49591073  0.32896963 -0.25857255]
 [ 1.5834728   1.320361    0.63335264 -2.2035098   0.05202897  0.6836862
   1.0039616  -0.61790705  1.8220114  -1.320431   -0.66152805  0.93505   ]]`,
      '[[-1.2883614, 0.39512205, 0.4298637, 0.6960427, -1.1841179, -0.6617026, -0.43643525, -1.169802, 1.7393678, -0.49591073, 0.32896963, -0.25857255], [1.5834728, 1.320361, 0.63335264, -2.2035098, 0.05202897, 0.6836862, 1.0039616, -0.61790705, 1.8220114, -1.320431, -0.66152805, 0.93505]]',
    ],
    ['Array([[  0., -inf],\n       [  0.,   0.]], dtype=float32, weak_type=True)', '[[0.0, null], [0.0, 0.0]]'],
    [
      'Array([[1.625, 2.03125, -0.433594],\n       [-0.0786133, 0.175781, -0.972656]], dtype=bfloat16)',
      '[[1.625, 2.03125, -0.433594], [-0.0786133, 0.175781, -0.972656]]',
    ],
    ['tf.Tensor(\n[[1. 2.]\n [3. 4.]], shape=(2, 2), dtype=float32)', '[[1.0, 2.0], [3.0, 4.0]]'],
    ['<tf.Tensor: shape=(1, 2), dtype=float32, numpy=array([[1., 2.]], dtype=float32)>', '[[1.0, 2.0]]'],
  ];
  for (const [text, json] of cases) assert.equal(one(text), json);
});

test('several matrices have names', () => {
  const named = (text) => readPasted(text).matrices.map(([name, json]) => [name, JSON.parse(json)]);
  assert.deepEqual(named('Q = tensor([[1., 2.]],\n       dtype=torch.float64)\nK=tensor([[3, 4]])\n\nW_Q: [[5. 6.]]\n'), [
    ['Q', [[1, 2]]],
    ['K', [[3, 4]]],
    ['W_Q', [[5, 6]]],
  ]);
  assert.deepEqual(named('"b_Q": [1],\n"b_K": [2],'), [
    ['b_Q', [1]],
    ['b_K', [2]],
  ]);
  assert.deepEqual(named('[[1]]\n[[2]]; V = [[3]]'), [
    [null, [[1]]],
    [null, [[2]]],
    ['V', [[3]]],
  ]);
  assert.deepEqual(named('attn.q_proj.weight = Parameter containing:\ntensor([[1.]], requires_grad=True)'), [
    ['attn.q_proj.weight', [[1]]],
  ]);
  assert.deepEqual(named('[1, 2]\n[3, 4]\n'), [
    [
      null,
      [
        [1, 2],
        [3, 4],
      ],
    ],
  ]);
  refused('[1, 2]\n[3]', 'Row 2 (line 2) has 1 number, and row 1 has 2.', '[3');
  refused('Q = [[1]]\nQ = [[2]]', 'A name stands for one matrix, but line 2 has Q again.', 'Q', 1);
});

test('CSV is a matrix, with or without labels', () => {
  const table = (text) => {
    const { matrices, labels } = readPasted(text);
    return [JSON.parse(matrices[0][1]), labels];
  };
  const square = [
    [1, 2],
    [3, 4],
  ];
  const cases = [
    ['1,2\n3,4', square],
    ['1,2\r\n3,4\r\n', square],
    ['\ufeff1;2\r3;4', square],
    ['1\t2\n3\t4\n', square],
    ['  1   2\n\n 3 4 ', square],
    ['1 2\t\n3 4', square],
    ['a,b\n1,2\n3,4', square],
    ['"a ""b"", c";"d"\n1;2\n3;4', square],
    ['the,1,2\ncat,3,4', square, ['the', 'cat']],
    ['\ufeffthe,1,2\ncat,3,4', square, ['the', 'cat']],
    ['token,a,b\nthe,1,2\ncat,3,4', square, ['the', 'cat']],
    ['\ta\tb\nthe\t1\t2\ncat\t3\t4', square, ['the', 'cat']],
    [',0,1\n0,1,2\n1,3,4', square, ['0', '1']], // as to_csv of pandas writes it
    [',the,2024\nthe,1,2\n2024,3,4', square, ['the', '2024']],
    ['2024-01-01,1,2\n2024-01-02,3,4', square, ['2024-01-01', '2024-01-02']],
    ['1, 2, 3', [[1, 2, 3]]],
    ['1 2 3', [[1, 2, 3]]],
    ['7', [[7]]],
    ['1\n2', [[1], [2]]],
    ['TRUE,False\nfalse,true', [[true, false], [false, true]]], // prettier-ignore
    ['0,-inf\n0,0', [[0, null], [0, 0]]], // prettier-ignore
    [
      '1.257302210933932962e-01 -1.321048632913018883e-01\n1.049001171530397070e-01 -5.356693731611109621e-01\n', // savetxt of NumPy
      [[0.12573022109339330, -0.13210486329130189], [0.10490011715303971, -0.53566937316111096]], // prettier-ignore
    ],
    ['# a,b\n1,2\n3,4', square], // savetxt with header=
    ['1,5;2,5', [[1.5, 2.5]]],
    [';a;b\nx;-1,25;2\n', [[-1.25, 2]], ['x']],
    ['1,5\t2\n3\t4,25', [[1.5, 2], [3, 4.25]]], // prettier-ignore
  ];
  for (const [text, rows, labels = null] of cases) assert.deepEqual(table(text), [rows, labels], text);
});

test('what the page saves as CSV comes back', () => {
  const rowLabels = ['the', ' cat;', '=1+1', '-2', 'say "a, b"', 'two\r\nlines', '2024', "it's", '', '\tx'];
  const numbers = Float64Array.from({ length: 20 }, (_, i) => (i % 7 ? Math.sqrt(i) * 10 ** (i - 10) : -Infinity));
  const rows = rowLabels.map((_, row) => [...numbers.slice(2 * row, 2 * row + 2)].map((x) => (x === -Infinity ? null : x)));
  const { matrices, labels } = readPasted(toCSV({ rows: 10, cols: 2, data: numbers, rowNames: rowLabels, colNames: ['1', '=k"'] }));
  assert.deepEqual(labels, rowLabels);
  assert.deepEqual(JSON.parse(matrices[0][1]), rows);
  const broken = toCSV({ rows: 1, cols: 2, data: Float64Array.of(1, NaN), rowNames: ['q'], colNames: ['a', 'b'] });
  assert.throws(() => readPasted(broken), {
    message: 'A table has a number in every cell, but row 2, column 3 is empty.',
  });
});

test('a sentence is words', () => {
  assert.deepEqual(readPasted(''), { words: '' });
  assert.deepEqual(readPasted(' \n\t\ufeff'), { words: '' });
  assert.deepEqual(readPasted(' the  cat\n\tsat \r\n'), { words: 'the cat sat' });
  words('the cat sat, and 3 dogs');
  words('Hello, 3');
  words('Chapters 1, 2, 3');
  words('1,2,3, go!');
  words('In 1990 the 2 of us; not 3.');
  words('[CLS] the cat sat [SEP]');
  words('[1] Vaswani et al.');
  words('[[Attention]] is all you need');
  words('Note: [see below]');
  words('True');
  words('nan');
  words('1 or 2');
  words('tensor(s) and array(s)');
  words('torch.zeros([2, 3])');
  words('Q = K');
  words('"quoted, 1');
  assert.deepEqual(readPasted('Hello, 3\nworld, 4 cats'), { words: 'Hello, 3 world, 4 cats' });
  assert.deepEqual(readPasted('Yes, I have 3.\nNo, you have 4,\nand we wait.'), { words: 'Yes, I have 3. No, you have 4, and we wait.' });
});

test('a matrix that cannot be used is refused with the rule, the line and the place', () => {
  refused('[[1, 2, 3],\n [4, 5, 6],\n [7, 8]]', 'Row 3 (line 3) has 2 numbers, and row 1 has 3.', '[7');
  refused('[[[1], [2]],\n\n [[3]]]', 'Block 2 (line 3) has 1 row, and block 1 has 2.', '[[3');
  refused('[[[[1]], [[2]]], [[[3]]]]', 'Block 2 (line 1) has 1 block, and block 1 has 2.', '[[[3');
  refused('1,2,3\r\n4,5', 'Row 2 (line 2) has 2 numbers, and row 1 has 3.', '4');
  refused('1 2\n\n3', 'Row 2 (line 3) has 1 number, and row 1 has 2.', '3');
  refused('a;b\nx;1,25;2', 'Row 2 (line 2) has 3 fields, and row 1 has 2.', 'x');
  refused('a,b\n1,2\n3', 'Row 3 (line 3) has 1 field, and row 1 has 2.', '3');
  refused(
    `tensor([[-0.8834, -0.4189, -0.8048,  ..., -1.3962, -0.0661, -0.3584],
        ...,
        [ 1.8023,  0.3397, -0.0454,  ...,  0.4274, -0.0352,  1.1598]])`,
    gap(1),
    '...',
  );
  refused('array([[0., 0.],\n       [0., 0.],\n       ...,\n       [0., 0.]], shape=(2000, 2))', gap(3), '...');
  refused('[[0. 0. 0. ... 0. 0. 0.]\n [0. 0. 0. ... 0. 0. 0.]]', gap(1), '...');
  refused('[[1, 2], [3, 4]', 'Every [ needs a ], but line 1 has a [ without one.', '[');
  refused('[[1, 2],\n [3, 4', 'Every [ needs a ], but line 2 has a [ without one.', '[3');
  refused('tensor([[1, 2], [3, 4])', 'Every [ needs a ], but line 1 has a ) where a ] is missing.', ')');
  refused('[[1, 2, [3, 4]]', 'A row has numbers only, but line 1 has a [ in a row, and perhaps a ] is missing before it.', '[3');
  refused('[[1, 2], 3, 4]]', 'Every number stands in a row, but line 1 has 3 outside of the rows.', '3');
  refused('tensor([[1, 2],\n [3, 4]]', 'Every ( needs a ), but line 2 has the end of an array without one.', ']', 2);
  refused('[[1, 2]]]', 'A matrix ends with its last bracket, but line 1 has ] after it.', ']', 2);
  refused('tensor([[1, 2]]).T', 'A matrix ends with its last bracket, but line 1 has .T after it.', '.T');
  refused('Q = [[1, 2]]\nand more', 'A matrix ends with its last bracket, but line 2 has and after it.', 'and');
  refused('[[1, 2],\n [x, 4]]', 'A matrix has numbers only, but line 2 has x.', 'x');
  refused('[[1, 2; 3, 4]]', 'A matrix has numbers only, but line 1 has 2;.', '2;');
  refused('array([[1.+2.j]])', 'A matrix has numbers only, but line 1 has 1.+2.j.', '1.+');
  refused('[[1,, 2]]', 'A matrix has numbers only, but line 1 has ,.', ',', 1);
  refused('[[1, 2], [, 3]]', 'A matrix has numbers only, but line 1 has ,.', ', 3');
  refused('[[1, "2"]]', 'A matrix has numbers only, but line 1 has "2".', '"2');
  refused(`[[1, ${'x'.repeat(50)}]]`, `A matrix has numbers only, but line 1 has ${'x'.repeat(40)}….`, 'x');
  refused('tensor([], size=(0, 3))', 'A matrix has at least one row and one column, but line 1 has a [] without numbers.', '[');
  refused('[[[[[[[[[1, 2]]]]]]]]]', 'A matrix has at most 8 axes, but line 1 has one [ more.', '[1');
  refused('1,2\n3,x\n5,6', 'A matrix has numbers only, but line 2 has x.', 'x');
  refused('1,5;2,5\n3,5;x', 'A matrix has numbers only, but line 2 has x.', 'x');
  refused('1,2,x\n3,4,5', 'A matrix has numbers only, but line 1 has x.', 'x');
  refused('q0,1,x\nq1,3,4', 'A matrix has numbers only, but line 1 has x.', 'x');
  refused('1,2\nx,3\n4,5', 'A matrix has numbers only, but line 2 has x.', 'x');
});

test('the first empty cell of a table is named, and no label takes its place', () => {
  const empty = (row, col) => `A table has a number in every cell, but row ${row}, column ${col} is empty.`;
  refused('1,2,\n3,4,', empty(1, 3), '\n');
  refused('Name\tA\tB\nAnna\t4\t\nBen\t\t3', empty(2, 3), '\nBen');
  refused('\tA\tB\n1\t\t3\n2\t\t4', empty(2, 2), '\t3');
  refused('1\t\n\t3', empty(1, 2), '\n');
  refused('1;;2\n3;4;5', empty(1, 2), ';2');
  refused('| | a | b |\n|---|---|---|\n| x | 1 | |\n| y | | 2 |', empty(2, 3), ' |\n| y');
});

test('a text with more signs than letters is no sentence', () => {
  const few = (line, what) => `A sentence has more letters than signs, but line ${line} has ${what}.`;
  refused('asdf;;{{[[1,2', few(1, 'asdf;;{{[[1,2'), 'asdf');
  refused('\n ((a)); {{', few(2, '((a)); {{'), '((');
  for (const text of ['Hi!!!', 'a, b, c', '[CLS] hi [SEP]', '1) 2)', 'wait...what?!', '“你好，”他说。', 'Why?? - “No!”']) words(text);
});

test('NaN, +∞ and numbers that are not clear are refused', () => {
  const finite = (line, word) => `A number is finite or -inf, but line ${line} has ${word}.`;
  refused('array([[ 1.5, -inf],\n       [ inf,  nan]])', finite(2, 'inf'), 'inf', 1);
  refused('tensor([[1., nan]])', finite(1, 'nan'), 'nan');
  refused('[[1, NaN]]', finite(1, 'NaN'), 'NaN');
  refused('[[1, Infinity]]', finite(1, 'Infinity'), 'Infinity');
  refused('[[1, -nan]]', finite(1, '-nan'), '-nan');
  refused('1,2\n3,inf', finite(2, 'inf'), 'inf');
  const clear = (word) => `A number has at most one point and no comma, but line 1 has ${word}.`;
  refused('1,5;2.5\n3;4', clear('1,5'), '1');
  refused('1,5 2,5', clear('1,5'), '1');
  refused('1.234,56;7\n2.345,67;8', clear('1.234,56'), '1');
});

test('brackets and quotes without end do not take the stack or the time', () => {
  for (const part of [
    '[',
    '[1,',
    '|',
    '-|',
    'a 1\n',
    ' 1 \\\n',
    "curl '",
    '...',
    '>>> ',
    'A =\n',
    '"a,',
    '""",',
    'tensor(',
    '<tf.Tensor: numpy=',
    ' ',
    '1',
  ]) {
    const text = part.repeat(20_000);
    try {
      readPasted(text);
    } catch (error) {
      assert.ok(error.index >= 0, `${part}: ${error.message}`);
    }
  }
});

// Reads a text that is one matrix. Returns {name, rows, shape, labels, form}.
function read(text) {
  const { matrices, labels, form } = readPasted(text);
  assert.equal(matrices?.length, 1, text);
  const [[name, json, shape]] = matrices;
  return { name, rows: JSON.parse(json), shape, labels, form };
}

test('tables that pandas prints are read', () => {
  const square = [[0.5, -1], [2, 30]]; // prettier-ignore
  const cases = [
    ['       a     b\nthe  0.5  -1.0\ncat  2.0  30.0', square, ['the', 'cat']],
    ['a     b\nthe  0.5  -1.0\ncat  2.0  30.0', square, ['the', 'cat']], // without the blanks before its first word
    ['       a     b\nthe  0.5  -1\ncat  2.0  30.0', square, ['the', 'cat']], // edited by hand
    ['Out[7]: \n     0     1\n0  0.5  -1.0\n1  2.0  30.0', square, ['0', '1']],
    ['        a     b\ntoken          \nthe   0.5  -1.0\ncat   2.0  30.0', square, ['the', 'cat']],
    ['key          a     b\ntoken               \nNew York   0.5  -1.0\ncat        2.0  30.0', square, ['New York', 'cat']],
    ['     x y     b\nthe  0.5  -1.0\ncat  2.0  30.0', square, ['the', 'cat']],
    ['  word    a     b\n0  the  0.5  -1.0\n1  cat  2.0  30.0', square, ['the', 'cat']],
    ['       a  \\\nthe  0.5   \ncat  2.0   \n\n        b  \nthe  -1.0  \ncat  30.0  ', square, ['the', 'cat']],
    ['the    0.5\ncat    2.0\nName: a, dtype: float64', [[0.5], [2]], ['the', 'cat']], // prettier-ignore
    ['the 0.5 -1\ncat 2 30', square, ['the', 'cat']],
    [' a     b\n0.5  -1.0\n2.0  30.0', square, null],
  ];
  for (const [text, rows, labels] of cases) {
    const found = read(text);
    assert.deepEqual([found.rows, found.labels, found.shape], [rows, labels, [rows.length, rows[0].length]], text);
  }
  assert.equal(read(cases[0][0]).form, 'A pandas table');
  const long = '     0   1   2\n0   1   2   3\n1   4   5   6\n..  ..  ..  ..\n98  7   8   9\n\n[99 rows x 3 columns]';
  refused(long, gap(4, '..'), '..');
  refused('          0   ...        13\n0 -0.781908  ... -1.112021\n1  0.307605  ...  0.095483\n\n[2 rows x 14 columns]', gap(1), '...');
  refused('     a    b\nthe  1  NaN\ncat  2  3.0', 'A number is finite or -inf, but line 2 has NaN.', 'NaN');
  assert.deepEqual(readPasted('Scores:\nAnn 3\nBob 4'), { words: 'Scores: Ann 3 Bob 4' });
  assert.ok(readPasted('Hello there\nI am 3\nyou are 4').words);
  assert.ok(readPasted('       x a     b\nthe  0.5  -1\ncat  2.0  30.0').words, 'no number becomes part of a label');
});

test('Markdown tables are read', () => {
  const tables = [
    '| | a | b |\n|---|:-:|--:|\n| the | 0.5 | **-1** |\n| ca\\|t | `2` | 30 |',
    ' word | a | b\n---|---|---\nthe | 0.5 | -1\n ca\\|t|2|30',
  ];
  for (const text of tables) {
    const { rows, labels, form } = read(text.replaceAll('\n', '\r\n'));
    assert.deepEqual([rows, labels, form], [[[0.5, -1], [2, 30]], ['the', 'ca|t'], 'A Markdown table'], text); // prettier-ignore
  }
  assert.deepEqual(read('| 0 | 1 |\n|---|---|\n| 5 | 6 |').rows, [[5, 6]], 'the first line has names even if they are numbers');
  refused('|a|b|\n|-|-|\n|1|2|\n|3|', 'Row 3 (line 4) has 1 number, and row 1 has 2.'.replace('number', 'field'), '3');
  words('true | false and 3 | or');
});

test('what stands after prompts of Python and names is read', () => {
  const square = [[0.5, -1], [2, 30]]; // prettier-ignore
  const cases = [
    ['      a  b\nthe 0.5 -1\ncat 2.0 30\n', null, ['the', 'cat'], 'A pandas table'],
    ['Q =\n\n    0.5000   -1.0000\n    2.0000   30.0000\n', 'Q', null, 'A table'],
    ['Out[5]: array([[ 0.5, -1. ],\n       [ 2. , 30. ]])', null, null, 'An array'],
    ['In [4]: W_Q\nOut[4]: \narray([[ 0.5, -1. ],\n       [ 2. , 30. ]])', 'W_Q', null, 'An array'],
    ['>>> print(K)\n[[ 0.5 -1. ]\n [ 2.  30. ]]', 'K', null, 'An array'],
    ['>>> K = np.array([[0.5, -1],\n...               [2, 30]])', 'K', null, 'An array'],
    ['In [4]: df\nOut[4]: \n       a     b\nthe  0.5  -1.0\ncat  2.0  30.0', 'df', ['the', 'cat'], 'A pandas table'],
  ];
  for (const [text, ...expected] of cases) {
    const { rows, name, labels, form } = read(text);
    assert.deepEqual([rows, name, labels, form], [square, ...expected], text);
  }
  refused('Out[5]:\narray([[1, 2],\n  [3, x]])', 'A matrix has numbers only, but line 3 has x.', 'x');
});

test('a curl command has a body and a path', () => {
  const body = `{"text": "it's \\"so\\" $5", "x": "a\\\\b"}`;
  const double = body.replace(/["\\$`]/g, '\\$&');
  const cases = [
    `curl http://127.0.0.1:8080/self-attention -d ${shell(body)}`,
    `$ curl -sS -X POST -H 'Content-Type: application/json' 'https://host/base/self-attention?x=1' \\\n  --data-binary ${shell(body)} | grep don't`,
    `curl --json "${double}" --max-time 5 localhost:8080/self-attention > out.json`,
    `curl 'http://h/self-attention' --data-raw $'${body.replaceAll('\\', '\\\\').replaceAll("'", '\\u0027').replaceAll('\n', '\\n')}'`,
    `curl -XPOST -d${shell(body)} --url "http://h/self-attention"`,
    `curl -sd ${shell(body)} \\\r\n --header "A: b" http://h/self-attention && echo done`,
  ];
  for (const text of cases) {
    const found = readPasted(text);
    assert.deepEqual([found.body, found.form], [body, 'A curl command'], text);
    assert.match(found.path, /^(\/base)?\/self-attention$/, text);
  }
  const fenced = '```json\n{"X": [[1]]}\n```';
  assert.deepEqual(readPasted(fenced), { body: '{"X": [[1]]}', form: 'JSON' });
  refused('curl http://h/attention --data-binary @big.json', 'The command sends the file big.json. A page cannot read it: open the file or drop it here.', '@'); // prettier-ignore
  refused('curl http://h/healthz', 'The body of a curl command stands after -d, but line 1 has a command without one.', 'c');
  refused("curl h:1/attention \\\n -d '{", 'Every quote needs another one, but line 2 has the end of the command without it.', "'{");
  words('curl is a program');
});

// Draws a whole number from 0 to before `count`.
let seed = 20260; // the same tables at each run
const draw = (count) => (seed = (seed * 48271) % 2147483647) % count;
const pick = (list) => list[draw(list.length)];
const columnWise = (head, labels, texts) => {
  const widths = head.map((name, col) => Math.max(name.length, ...texts.map((row) => row[col].length)));
  const first = Math.max(...labels.map(({ length }) => length));
  const line = (label, row) => [label.padEnd(first), ...row.map((text, col) => text.padStart(widths[col]))];
  return [line('', head), ...labels.map((label, row) => line(label, texts[row]))];
};
const PRINTERS = {
  pandas: (head, labels, texts) => columnWise(head, labels, texts).map((line) => line.join('  ')).join('\n'), // prettier-ignore
  wrapped(head, labels, texts) {
    const [at, rest] = [Math.ceil(head.length / 2), Math.floor(head.length / 2)];
    const block = (from, to) => PRINTERS.pandas(head.slice(from, to), labels, texts.map((row) => row.slice(from, to))); // prettier-ignore
    return rest ? `${block(0, at).replace('\n', '  \\\n')}\n\n${block(at)}` : block(0);
  },
  notebook: (...given) => `Out[${draw(99)}]: \n${PRINTERS.pandas(...given)}`,
  pipes: (head, labels, texts) => {
    const [first, ...rest] = columnWise(head, labels, texts).map((line) => `| ${line.join(' | ')} |`);
    return [first, first.replace(/[^|]/g, '-'), ...rest].join('\n');
  },
  tabs: (head, labels, texts) => [['', ...head], ...texts.map((row, at) => [labels[at], ...row])].map((line) => line.join('\t')).join('\n'), // prettier-ignore
};

test('drawn tables come back from each form of print', () => {
  const words = ['the', 'cat', 'New York', 'self-contradictory', '[CLS]', 'x', "it's", 'a b c'];
  for (let call = 0; call < 200; call++) {
    const [rows, cols] = [1 + draw(8), 2 + draw(7)];
    const whole = draw(2);
    const number = () => (whole ? draw(90) - 9 : (draw(2e6) - 1e6) / 10 ** draw(12));
    const values = Array.from({ length: rows }, () => Array.from({ length: cols }, number));
    const texts = values.map((row) => row.map((value) => (whole ? String(value) : value.toExponential(9))));
    const labels = Array.from({ length: rows }, (_, at) => `${pick(words)}${draw(2) ? `-${at}` : ''}`);
    const head = Array.from({ length: cols }, (_, at) => (draw(9) ? `${pick('abcdefg'.split(''))}${at}` : `x ${at}z`));
    for (const [name, written] of Object.entries(PRINTERS)) {
      const text = written(head, labels, texts);
      const found = read(text);
      const expected = texts.map((row) => row.map(Number));
      assert.deepEqual([found.rows, found.labels, found.shape], [expected, labels, [rows, cols]], `${name}\n${text}`);
    }
    const flat = texts.map((row) => `[${row.join(' ')}]`).join('\n ');
    assert.deepEqual(read(`Out[1]:\n[${flat}]`).rows, texts.map((row) => row.map(Number))); // prettier-ignore
    const size = Math.max(...texts.flat().map(({ length }) => length));
    const named = `A =\n\n${texts.map((row) => row.map((text) => `   ${text.padStart(size)}`).join('')).join('\n')}\n\n`;
    assert.deepEqual(read(named).rows, texts.map((row) => row.map(Number))); // prettier-ignore
    const body = JSON.stringify({ X: values, text: labels.join(' ') });
    assert.equal(readPasted(`curl h:1/attention -d ${shell(body)}`).body, body);
  }
});
