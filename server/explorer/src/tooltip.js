// The box beside the pointer, with words and numbers about the cell: one for the whole page.

const box = document.createElement('div');
box.id = 'tooltip';
box.hidden = true;
box.setAttribute('role', 'tooltip');
document.body.append(box);

// After a tap, scrolling hides the box, because a finger does not report where it is.
let tapped = false;
window.addEventListener('scroll', () => tapped && hideTooltip(), { passive: true, capture: true });

// lines: [[name, value], ...]; the first are set larger.
export function showTooltip(title, lines, { clientX, clientY, pointerType }) {
  tapped = pointerType === 'touch';
  const list = document.createElement('dl');
  for (const [name, value, strong] of lines) {
    const term = document.createElement('dt');
    const text = document.createElement('dd');
    term.textContent = name;
    text.textContent = value;
    if (strong) text.className = 'strong';
    list.append(term, text);
  }
  const head = document.createElement('p');
  head.textContent = title;
  box.replaceChildren(head, list);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const edge = 14;
  const left = clientX + edge + width > window.innerWidth ? clientX - edge - width : clientX + edge;
  const top = clientY + edge + height > window.innerHeight ? clientY - edge - height : clientY + edge;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}

export function hideTooltip() {
  box.hidden = true;
}
