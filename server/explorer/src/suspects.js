// suspects.js has the requests that a wrong result of a user's own kernel may be the answer to. It needs no page.
import { withMember } from './jsontext.js';

// Returns the requests as [{says, text, more}]. text: the right request. options, shapes: those of its summary (request.js). more: tensors
// that belong to the request. says: what is different, as the end of a sentence that begins with "if".
export function suspects(text, { options, shapes }, rows, keys) {
  if (options.update) return [];
  const list = [];
  const add = (says, key, value, from = text) => list.push({ says, text: withMember(from, key, value), more: [] });
  const free = withMember(text, 'causal', undefined);
  if (options.causal) {
    if (!options.window) add('each query also attends to the key after its own', 'window', '[-1, 1]', free);
    const earlier = Uint8Array.from({ length: rows * keys }, (_, at) => Number(at % keys < Math.floor(at / keys)));
    const mask = { name: 'mask', type: 'BOOL', shape: [rows, keys], data: earlier };
    if (!shapes.mask) list.push({ says: 'no query attends to its own key', text, more: [mask] });
    add('there is no causal mask', 'causal', undefined);
    const other = options.causal === true ? '"bottom_right"' : 'true';
    if (rows !== keys) add(`causal is ${other}`, 'causal', other);
  } else add('causal is true', 'causal', 'true');
  if (shapes.mask) add('there is no mask', 'mask', undefined);
  if (options.scale !== 1) add('the scale is 1', 'scale', '1');
  return list;
}
