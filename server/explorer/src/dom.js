// dom.js makes elements of the page, and knows the storage and the clipboard of the browser.

// Makes an element with a class and a text, and appends it to its parent. Each of the three may be left out.
export function make(tag, className, parent, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

// Makes an element with these properties, and appends it to its parent if there is one.
export function makeWith(tag, parent, properties) {
  const made = Object.assign(document.createElement(tag), properties);
  parent?.append(made);
  return made;
}

// Fills an element with HTML of this page. Returns its elements that have a data-part, by these names.
export function fill(root, html) {
  root.innerHTML = html;
  return Object.fromEntries(Array.from(root.querySelectorAll('[data-part]'), (element) => [element.dataset.part, element]));
}

// Makes an element of SVG with these attributes and a text, and appends it to its parent. The last two may be left out.
export function makeSVG(tag, attributes, parent, text = '') {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent?.append(made);
  return made;
}

// Makes a button that calls does(event), with its text and perhaps other properties.
export function makeButton(parent, textContent, does, properties) {
  const made = makeWith('button', parent, { type: 'button', textContent, ...properties });
  made.addEventListener('click', does);
  return made;
}

// Sets the place and the size of an element as far as they are given: {left, top, width, height} in pixels.
export function setBox({ style }, box) {
  for (const [side, pixels] of Object.entries(box)) style[side] = `${pixels}px`;
}

// Returns what the browser has kept under a key since the last visit. Returns null if there is nothing, or if the page may not store it.
export function kept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

// Keeps a value for the next visit, if the page may store it.
export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The next visit begins without it.
  }
}

// Copies a text. Resolves to whether it was copied. Browsers have no navigator.clipboard on a page from plain HTTP, except on localhost. There,
// the old command "copy" is tried. If it fails, too, a field after the button has the text until it loses the focus; the text is selected, so
// that the user can copy it with a key.
async function isCopied(text, button) {
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

// Copies a text, and says on the button for a while whether it could. Resolves to that.
export async function copyText(text, button) {
  const copied = await isCopied(text, button);
  button.dataset.label ??= button.textContent;
  button.textContent = copied ? 'Copied' : 'Not copied';
  setTimeout(() => (button.textContent = button.dataset.label), 1500);
  return copied;
}
