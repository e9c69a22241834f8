// files.js reads what the user gives besides JSON: NumPy's .npy, .safetensors, and text such as Python prints. The page loads it with the
// first of these.
import { members, parse } from './jsontext.js';
import { readNpy } from './npy.js';
import { readPasted } from './pasted.js';
import { MATRICES, pathFor, PROJECTIONS } from './request.js';
import { readSafetensors } from './safetensors.js';
import { shell } from './snippets.js';
import { fail, shapeText, textOf } from './tensortext.js';

const ROOM = 4_000_000; // characters; the page shows the code of no longer request either
const KEYS = [...new Set(['Q', 'K', 'V', ...MATRICES, ...PROJECTIONS, 'alibi', 'sink', 'lengths'])];
const NPY = /\.npy$/i;

// Says that a file is too long for the page. shapes: a body with the shapes of its matrices, which says the path.
function tooLong(name, shapes, base) {
  const way = NPY.test(name) ? 'Save the matrices of the request as one .safetensors file and send that' : 'Send the file itself';
  const file = NPY.test(name) ? 'request.safetensors' : name;
  const send = `curl ${shell(`${base}${pathFor(shapes).slice(1)}`)} -H 'Content-Type: application/vnd.safetensors' --data-binary ${shell(`@${file}`)}`;
  fail(`As text it has more than ${ROOM / 1e6} MB, which is too much for this page. ${way}: ${send}`);
}

const described = (name, { type, shape }) => `${name} (${type}, ${shapeText(shape)})`;

// Returns the key that has the name of a file, or undefined.
export function keyOf(name) {
  const stem = name.replace(NPY, '');
  return KEYS.find((key) => key === stem) ?? KEYS.find((key) => key.toLowerCase() === stem.toLowerCase());
}

// Asks the user which key a file becomes. Resolves to the key, or to null.
function ask(name, chosen) {
  const dialog = document.createElement('dialog');
  dialog.setAttribute('aria-labelledby', 'file-title');
  dialog.innerHTML =
    '<h2 id="file-title"></h2><p class="note">A file that has the name of a key, such as Q.npy, becomes this key at once.</p>' +
    '<form method="dialog"><label>Key <select></select></label><button value="use">Use it</button>' +
    '<button value="cancel" class="quiet">Not now</button></form>';
  dialog.querySelector('h2').textContent = `Which matrix is ${name}?`;
  const select = dialog.querySelector('select');
  select.replaceChildren(...KEYS.map((key) => new Option(key)));
  select.value = chosen;
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'use' ? select.value : null);
    });
  });
}

// Writes a request. options: pairs [key, JSON]. tensors: [key, tensor].
async function requestOf(name, options, tensors, base) {
  const given = new Map(options);
  if (!given.has('dtype') && tensors.some(([, { type }]) => type === 'F64')) options.unshift(['dtype', '"float64"']);
  options.sort(([a], [b]) => (b === 'dtype') - (a === 'dtype')); // the service needs dtype before the matrices
  const wide = new Map(options).get('dtype') === '"float64"';
  const shapes = Object.fromEntries([...options.map(([key, text]) => [key, JSON.parse(text)]), ...tensors]);
  const all = [...options];
  let room = ROOM - options.reduce((sum, [key, text]) => sum + key.length + text.length, 0);
  for (const [key, tensor] of tensors) {
    const text = room > 0 ? await textOf({ ...tensor, name: key }, { room, wide }) : null;
    if (text === null) tooLong(name, shapes, base);
    room -= text.length;
    all.push([key, text]);
  }
  return `{\n${all.map(([key, text]) => `  ${JSON.stringify(key)}: ${text}`).join(',\n')}\n}\n`;
}

// A string of the metadata that is JSON is this JSON; any other is a string.
function optionOf([name, text]) {
  try {
    JSON.parse(text);
    return [name, text.trim()];
  } catch {
    return [name, JSON.stringify(text)];
  }
}

async function safetensorsRequest(file, base) {
  const found = await readSafetensors(file, ROOM);
  if (!found) tooLong(file.name, {}, base);
  const { metadata, tensors } = found;
  if (metadata.some(([key]) => key === 'words' || key === 'model') && tensors.some(({ name }) => name === 'X')) return { hidden: true };
  for (const { name } of tensors) {
    if (metadata.some(([key]) => key === name)) fail(`${name} is the name of a tensor, and it stands in __metadata__, too.`);
  }
  const place = ({ name }) => (KEYS.includes(name) ? KEYS.indexOf(name) : KEYS.length);
  tensors.sort((a, b) => place(a) - place(b));
  const text = await requestOf(
    file.name,
    metadata.filter(([name]) => name !== 'format').map(optionOf), // "format" names the library that wrote the file
    tensors.map((tensor) => [tensor.name, tensor]),
    base,
  );
  return { text, note: `${file.name} is the request now.` };
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
async function npyMember(file, present, base) {
  const all = members(present);
  if (!all) fail('A .npy file becomes a matrix of the present request, but this is no JSON object. Correct the request first.');
  const found = await keysOf([file], (key) => all.has(key));
  if (!found) return null;
  const [[key, tensor]] = found;
  const dtype = all.get('dtype');
  const wide = dtype !== undefined && parse(present.slice(dtype.start, dtype.end)) === 'float64';
  const value = await textOf({ ...tensor, name: key }, { room: ROOM, wide });
  if (value === null) tooLong(file.name, { ...parse(present), [key]: tensor }, base);
  const loses = tensor.type === 'F64' && !wide;
  const more = loses ? ' It has float64; the request computes in float32 unless its first key is "dtype": "float64".' : '';
  return { key, value, note: `${described(file.name, tensor)} is ${key} now.${more}` };
}

// Reads files. present: the text of the request. base: the URL that the paths of the API follow. Resolves to {text, note}, a new request;
// to {key, value, note}, a member of the present request with its JSON; to {hidden: true} for hidden states (hiddenstates.js), which are no
// request; or to null if the user does not say which key a file becomes. Throws an Error with a sentence for the user.
export async function readFiles(files, present, base) {
  if (files.length === 1) return NPY.test(files[0].name) ? npyMember(files[0], present, base) : safetensorsRequest(files[0], base);
  if (!files.every(({ name }) => NPY.test(name))) fail('Open one file, or several .npy files. Several .npy files become a new request.');
  const found = await keysOf(files, () => false);
  if (!found) return null;
  const text = await requestOf('.npy', [], found, base);
  return { text, note: `${found.map(([key, tensor]) => described(key, tensor)).join(', ')} are the request now.` };
}

// The keys of matrices that have no names, by their number.
const UNNAMED = [[], ['X'], ['Q', 'K'], ['Q', 'K', 'V']];

// Makes a request of a text that is no JSON object: matrices as Python prints them, CSV, or words. sentence(words) returns the request for
// words. Returns {text, labels, note}, or null if the text is meant to be JSON. one: the text goes into a request that is there, so the
// result for one matrix without a name is {value}, its JSON. Throws an Error with a sentence and `index`, the place in the text.
export function requestOfText(text, sentence, one = false) {
  const found = readPasted(text);
  if (!found) return null;
  if (found.words !== undefined) return one ? null : { text: sentence(found.words), labels: [], note: 'The words are the sentence now.' };
  const { matrices, labels } = found;
  if (one) return matrices.length === 1 && matrices[0][0] === null ? { value: matrices[0][1] } : null;
  const names = matrices.every(([name]) => name === null) ? UNNAMED[matrices.length] : matrices.map(([name]) => name);
  if (!names || names.includes(null)) {
    fail(`The text has ${matrices.length} matrices, and some have no name. Write the name of its key before each, as in Q = [[1, 2]].`);
  }
  const all = matrices.map(([, json], at) => `  ${JSON.stringify(names[at])}: ${json}`);
  return { text: `{\n${all.join(',\n')}\n}\n`, labels: labels ?? [], note: `The text is ${names.join(', ')} now.` };
}
