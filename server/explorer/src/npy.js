// npy.js reads NumPy's files of one array, versions 1 to 3. It needs no page. The format: numpy.lib.format.
import { countOf, fail, shapeText, TYPES } from './tensortext.js';

const MOST_HEADER = 10_000; // bytes; NumPy reads no longer header either
const MOST_AXES = 4;

// Returns the name in TYPES of a type as NumPy writes it, such as <f4, or undefined.
function typeOf(descr) {
  const [, kind, bytes] = /^[<>=|]([fiub])([1248])$/.exec(descr) ?? [];
  const type = kind === 'b' && bytes === '1' ? 'BOOL' : `${kind?.toUpperCase()}${8 * bytes}`;
  return type in TYPES ? type : undefined;
}

// Reads the header, which is a dictionary of Python with three keys in any order.
function readHeader(text) {
  let rest = text;
  const take = (key, value) => {
    const found = new RegExp(`(['"])${key}\\1\\s*:\\s*${value}`).exec(rest);
    if (!found) fail(`Its header has no ${key} that this page can read: ${text.trim().slice(0, 200)}`);
    rest = rest.replace(found[0], '');
    return found[2];
  };
  if (/(['"])descr\1\s*:\s*\[/.test(text)) fail('Its elements are records with fields. The page reads arrays of plain numbers.');
  const descr = take('descr', `['"]([^'"]*)['"]`);
  const fortran = take('fortran_order', '(True|False)') === 'True';
  const shape = take('shape', '\\(([\\d\\s,]*)\\)').split(/\s*,\s*/).map((size) => size.trim()); // prettier-ignore
  if (shape.at(-1) === '') shape.pop();
  if (!/^\s*\{[\s,]*\}\s*$/.test(rest) || shape.includes('')) fail(`Its header is none of NumPy's: ${text.trim().slice(0, 200)}`);
  return { descr, fortran, shape };
}

// Reads a .npy file, a Blob. Resolves to a tensor (tensortext.js) without a name. Throws an Error with a sentence.
export async function readNpy(file) {
  const head = new Uint8Array(await file.slice(0, 12).arrayBuffer());
  const view = new DataView(head.buffer);
  if (head.length < 6 || String.fromCharCode(...head.subarray(0, 6)) !== '\x93NUMPY')
    fail('It is no .npy file: such a file begins with the bytes 93 4E 55 4D 50 59.');
  const [major, minor] = head.subarray(6);
  const start = major === 1 ? 10 : 12;
  if (head.length < start) fail(`The file is cut: it has ${file.size} bytes, and its header begins after more.`);
  if (major < 1 || major > 3 || minor !== 0) fail(`It is of version ${major}.${minor} of the format. The page reads 1.0, 2.0 and 3.0.`);
  const size = major === 1 ? view.getUint16(8, true) : view.getUint32(8, true);
  if (size > MOST_HEADER) fail(`Its header has ${size} bytes. The page reads at most ${MOST_HEADER}.`);
  if (start + size > file.size) fail(`The file is cut: its header has ${size} bytes, and ${file.size - start} bytes follow.`);
  const text = new TextDecoder(major === 3 ? 'utf-8' : 'latin1').decode(await file.slice(start, start + size).arrayBuffer());
  const { descr, fortran, shape } = readHeader(text);
  const type = typeOf(descr);
  if (!type) fail(`Its elements have the type ${descr}. The page reads f2, f4, f8, i1 to i8, u1 to u8 and bool.`);
  if (shape.length < 1 || shape.length > MOST_AXES) fail(`Its shape has ${shape.length} axes. A matrix has 1 to ${MOST_AXES}.`);
  const data = file.slice(start + size);
  const needed = countOf(shape) * BigInt(TYPES[type][0]);
  if (needed !== BigInt(data.size)) fail(`Its shape ${shapeText(shape)} of ${type} needs ${needed} bytes, and the file has ${data.size}.`);
  return { type, shape: shape.map(Number), data, little: descr[0] !== '>', fortran };
}
