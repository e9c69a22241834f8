// dom.js makes elements of the page.

// Makes an element with a class and a text, and appends it to its parent. Each of the three may be left out.
export function make(tag, className, parent, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

// Makes an element with these properties, and appends it to its parent if there is one.
export function makeWith(tag, parent, properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  parent?.append(made);
  return made;
}
