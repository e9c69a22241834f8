// clipboard.js copies text. Browsers have no navigator.clipboard on a page from plain HTTP, except on localhost. There, the old command
// "copy" is tried. If it fails, too, the text is shown beside the button and selected, so that the user can copy it with a key.
import { makeWith } from './dom.js';

// Copies a text. Resolves to whether it was copied. If not, a field after the button has the text until it loses the focus.
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The page has no clipboard, or it may not write to it.
  }
  const area = makeWith('textarea', null, { className: 'to-copy', readOnly: true, rows: 3, value: text, ariaLabel: 'The text to copy' });
  button.after(area);
  area.select();
  if (document.execCommand('copy')) {
    area.remove();
    button.focus();
    return true;
  }
  area.addEventListener('blur', () => area.remove());
  return false;
}
