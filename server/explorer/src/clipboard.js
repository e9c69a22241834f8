// Copies text. A page from plain HTTP has no clipboard of its own, except on localhost; there an old command of the browser is tried.
// If that fails too, the text stays selected beside the button, so that one key copies it.

function field(text) {
  const made = document.createElement('textarea');
  made.className = 'to-copy';
  made.readOnly = true;
  made.rows = 3;
  made.value = text;
  made.setAttribute('aria-label', 'The text to copy');
  return made;
}

// Whether the text was copied. Where it was not, it stands selected in a field after the button until the field loses the focus.
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // There is no clipboard, or it is not allowed.
  }
  const area = field(text);
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
