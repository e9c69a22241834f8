// files.js reads what the user gives besides JSON: NumPy's .npy, .safetensors, and text such as Python prints. The page loads it with the
// first of these.
import { isCaptured, wordsOf } from './hiddenstates.js';
import { members, parse } from './jsontext.js';
import { readNpy } from './npy.js';
import { readPasted } from './pasted.js';
import { MATRICES, PATHS, PROJECTIONS } from './request.js';
import { readSafetensors } from './safetensors.js';
import { formatJSON } from './snippets.js';
import { countOf, fail, shapeText, straight, textOf } from './tensortext.js';

const ROOM = 150_000; // characters of all matrices of a file; longer ones are held as bytes, and the editor shows what stands for them
const FEW = 256; // elements; a matrix that has no more is text in any case
const MOST_HEADER = 4_000_000; // bytes
const KEYS = [...new Set(['Q', 'K', 'V', ...MATRICES, ...PROJECTIONS, 'alibi', 'sink', 'lengths'])];
const NPY = /\.npy$/i;
const described = (name, { type, shape }) => `${name} (${type}, ${shapeText(shape)})`;

// Returns the key that has the name of a file, or undefined.
export function keyOf(name) {
  const stem = name.replace(NPY, '');
  return KEYS.find((key) => key === stem) ?? KEYS.find((key) => key.toLowerCase() === stem.toLowerCase());
}

// Asks the user which key a file becomes. Resolves to the key, or to null.
async function ask(name, chosen) {
  const dialog = document.createElement('dialog');
  dialog.setAttribute('aria-labelledby', 'file-title');
  dialog.innerHTML =
    '<h2 id="file-title"></h2><p class="note">A file that has the name of a key, such as Q.npy, becomes this key at once.</p>' +
    '<form method="dialog"><label>Key <select></select></label><button value="use">Use it</button>' +
    '<button value="cancel" class="quiet">Not now</button></form>';
  dialog.querySelector('h2').textContent = `Which matrix is ${name}?`;
  const select = dialog.querySelector('select');
  select.append(...KEYS.map((key) => new Option(key, key, key === chosen, key === chosen)));
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => (dialog.onclose = resolve));
  dialog.remove();
  return dialog.returnValue === 'use' ? select.value : null;
}

// Resolves to the members that matrices become, as {texts: [[key, JSON]], tensors}. Long matrices are held: tensors has a Blob for each, by
// the JSON that stands for it (request.js). given: [key, tensor, file]. wide: whether the request computes in float64.
async function membersOf(given, wide) {
  const texts = [];
  const tensors = new Map();
  const isDotted = (key) => key.includes('.'); // JSON has no such key
  let room = given.some(([key]) => isDotted(key)) ? 0 : ROOM;
  for (const [key, tensor] of given) {
    const text = room > 0 ? await textOf({ ...tensor, name: key }, { room, wide }) : null;
    room = text === null ? 0 : room - text.length;
    texts.push([key, text]);
  }
  if (room > 0) return { texts, tensors };
  for (const [at, [key, tensor, { name: file }]] of given.entries()) {
    const { name, type, shape } = tensor;
    if (countOf(shape) <= FEW && !isDotted(key)) {
      texts[at][1] ??= await textOf({ ...tensor, name: key }, { room: ROOM, wide });
      continue;
    }
    const standing = { file, ...(name && { tensor: name }), dtype: type, shape };
    tensors.set(JSON.stringify(standing), new Blob([await straight(tensor)]));
    texts[at][1] = formatJSON(standing);
  }
  return { texts, tensors };
}

// Writes the request that has these members, pairs [key, JSON].
const objectOf = (pairs) =>
  `{\n${pairs.map(([key, text]) => `  ${JSON.stringify(key)}: ${text.replaceAll('\n}', '\n  }')}`).join(',\n')}\n}\n`;

// Writes a request. options: pairs [key, JSON]. given: [key, tensor, file]. Resolves to {text, tensors}.
async function requestOf(options, given) {
  const { dtype = given.some(([, { type }]) => type === 'F64') ? '"float64"' : null, ...others } = Object.fromEntries(options);
  const { texts, tensors } = await membersOf(given, dtype === '"float64"');
  return { text: objectOf([...(dtype ? [['dtype', dtype]] : []), ...Object.entries(others), ...texts]), tensors };
}

// Returns whether these are names of results that no request has, so that their file is the output of a kernel.
const areOutputs = (names) => names.every((name) => /^(output|weights|(scaled_|masked_)?scores)$/.test(name));

async function safetensorsRequest(file) {
  const { metadata, tensors } = await readSafetensors(file, MOST_HEADER);
  if (areOutputs(tensors.map(({ name }) => name))) return { outputs: true };
  const captured = tensors.some(isCaptured);
  const hidden = metadata.some(([key]) => key === 'words' || key === 'model') && tensors.some(({ name }) => name === 'X');
  if (hidden && !captured) return { hidden };
  for (const { name } of tensors)
    if (metadata.some(([key]) => key === name)) fail(`${name} is the name of a tensor, and it stands in __metadata__, too.`);
  if (captured) return capturedRequest(file, metadata, tensors);
  const given = tensors.map((tensor) => [tensor.name, tensor, file]);
  return { ...(await tensorsRequest(metadata, given)), note: `${file.name} is the request now.` };
}

// Resolves to the request of tensors, [key, tensor, file], and of the strings of the metadata.
function tensorsRequest(metadata, tensors) {
  const place = ([key]) => (KEYS.includes(key) ? KEYS.indexOf(key) : KEYS.length);
  tensors.sort((a, b) => place(a) - place(b));
  // A string of the metadata that is JSON is this JSON; any other is a string. "format" names the library that wrote the file.
  const optionOf = ([name, text]) => [name, parse(text) === undefined ? JSON.stringify(text) : text.trim()];
  const options = metadata.filter(([name]) => name !== 'format').map(optionOf);
  return requestOf(options, tensors);
}

// Resolves to the request of the first layer of a captured file, whose names end with the number of the layer. layers: the names of all
// layers by their numbers, the number `at` of the one that is shown, what they are (`look`), and request(at), which resolves to the request
// of another one.
async function capturedRequest(file, metadata, tensors) {
  const texts = new Map(metadata);
  const names = [].concat(parse(texts.get('layers') ?? '[]') ?? []);
  const numbers = tensors.filter(isCaptured).map(({ name }) => Number(name.slice(2)));
  const entries = numbers.sort((a, b) => a - b).map((at) => [at, names[at] ?? '']);
  async function request(at) {
    const own = (all, nameOf) =>
      all.filter((one) => nameOf(one).endsWith(`.${at}`)).map((one) => [nameOf(one).replace(/\.\d+$/, ''), one, file]);
    const given = own(tensors, ({ name }) => name);
    const options = own(metadata, ([name]) => name).map(([name, [, text]]) => [name, text]);
    const [n, m] = ['Q', 'K'].map((key) => given.find(([name]) => name === key)?.[1].shape.at(-2));
    const { words, note } = wordsOf(n && texts.get('words'), n, 'Q', m);
    const labels = words ?? [];
    return { ...(await tensorsRequest(options, given)), labels, note: `${file.name}, layer ${at}, is the request now.${note}` };
  }
  const [[at]] = entries;
  const look = `Each layer has the queries, keys and values that ${texts.get('model') ?? 'a model'} computed for one text.`;
  return { ...(await request(at)), layers: { names: new Map(entries), at, look, request } };
}

// Resolves to the keys of .npy files as [key, tensor, file], or to null if the user does not say a key.
async function keysOf(files, has) {
  const found = [];
  for (const file of files) {
    const tensor = await readNpy(file).catch(({ message }) => fail(files.length > 1 ? `${file.name}: ${message}` : message));
    const free = KEYS.filter((key) => !found.some(([other]) => other === key));
    const key = keyOf(file.name) ?? (await ask(file.name, free.find(has) ?? free[0]));
    if (!key) return null;
    if (!free.includes(key)) fail(`Two files are ${key}.`);
    found.push([key, tensor, file]);
  }
  return found;
}

// One file becomes a member of the present request.
async function npyMember(file, present) {
  const all = members(present);
  if (!all) fail('A .npy file becomes a matrix of the present request, but this is no JSON object. Correct the request first.');
  const found = await keysOf([file], (key) => all.has(key));
  if (!found) return null;
  const [[key, tensor]] = found;
  const dtype = all.get('dtype');
  const wide = dtype !== undefined && parse(present.slice(dtype.start, dtype.end)) === 'float64';
  const { texts, tensors } = await membersOf(found, wide);
  const loses = tensor.type === 'F64' && !wide;
  const more = loses ? ' It has float64; the request computes in float32 unless it has "dtype": "float64".' : '';
  return { key, value: texts[0][1], tensors, note: `${described(file.name, tensor)} is ${key} now.${more}` };
}

// Reads files. present: the text of the request. Resolves to {text, tensors, note}, a new request and the matrices that it holds, with
// {labels, layers} for the first layer of a captured file; to {key, value, tensors, note}, a member of the present request with its JSON; to {hidden: true} for hidden states (hiddenstates.js), which are no
// request; to {outputs: true} for results of a user's own kernel; or to null if the user does not say which key a file becomes. Throws an Error with a sentence for the user.
export async function readFiles(files, present) {
  if (files.length === 1 && areOutputs([files[0].name.replace(NPY, '')])) return { outputs: true };
  if (files.length === 1) return NPY.test(files[0].name) ? npyMember(files[0], present) : safetensorsRequest(files[0]);
  if (!files.every(({ name }) => NPY.test(name))) fail('Open one file, or several .npy files. Several .npy files become a new request.');
  const found = await keysOf(files, () => false);
  if (!found) return null;
  return {
    ...(await requestOf([], found)),
    note: `${found.map(([key, tensor]) => described(key, tensor)).join(', ')} are the request now.`,
  };
}

const UNNAMED = ['Q', 'K', 'V']; // the keys of two or three matrices that have no names

// Makes a request of a text that is no JSON object: matrices and tables as programs print them, CSV, a curl command, or words. sentence(words)
// returns the request for words. Returns {text, labels, path, note, choices}; {key, value, note, choices}, a member of the present request with
// its JSON; or null if the text is meant to be JSON. choices: as what else the text can be taken. as: the choice of the user. present: the text
// of the request. one: the text goes into a request that is there, so the result for one matrix without a name is {value}, its JSON. Throws an
// Error with a sentence and `index`, the place in the text.
export function requestOfText(text, sentence, { one = false, as, present = '' } = {}) {
  const found = as === 'words' ? { words: text.replace(/\s+/g, ' ').trim() } : readPasted(text);
  const { words, body, path, form, matrices, labels } = found ?? {};
  if (!found || (one && !matrices)) return null;
  const choices = ['X', 'Q', 'K', 'V', 'words'];
  if (words !== undefined)
    return { text: sentence(words), labels: [], note: 'The words are the sentence now.', choices: as ? choices.slice(0, -1) : [] };
  if (body !== undefined) {
    const known = PATHS.find((each) => path?.endsWith(each));
    if (path?.length > 1 && !known) fail(`This page shows the answers of ${PATHS.join(', ')}, and the command asks ${path}.`);
    return { text: body, path: known, note: `${form} is the request now${known ? `, for ${known}` : ''}.` };
  }
  const [[first, json, shape], ...others] = matrices;
  if (one) return !others.length && first === null ? { value: json } : null;
  if (!others.length) {
    const key = as ?? (KEYS.includes(first) ? first : 'X');
    const more = { note: `${form} of ${shapeText(shape)} is ${key} now.`, choices: choices.filter((choice) => choice !== key) };
    // X begins a new request, and so does the first of Q, K and V, because none of them stands beside X or words.
    const has = members(present);
    if (has && key !== 'X' && (!UNNAMED.includes(key) || UNNAMED.some((name) => has.has(name)))) return { key, value: json, ...more };
    const note = `${more.note}${labels ? ` Its ${form === 'A pandas table' ? 'index is' : 'first words are'} the labels.` : ''}`;
    return { text: objectOf([[key, json]]), labels: labels ?? [], ...more, note };
  }
  const names = matrices.every(([name]) => name === null) ? UNNAMED.slice(0, matrices.length) : matrices.map(([name]) => name);
  if (names.length < matrices.length || names.includes(null))
    fail(`The text has ${matrices.length} matrices, and some have no name. Write the name of its key before each, as in Q = [[1, 2]].`);
  return { text: objectOf(matrices.map(([, json], at) => [names[at], json])), labels: [], note: `The text is ${names.join(', ')} now.` };
}
