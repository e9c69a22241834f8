// tooltip.js has the box beside the pointer, which shows the numbers of a cell. The page has one such box.

const box = document.createElement('div');
box.id = 'tooltip';
box.hidden = true;
box.setAttribute('role', 'tooltip');
document.body.append(box);

// After a tap, scrolling hides the box, because the page does not know then where the finger is.
let tapped = false;
window.addEventListener('scroll', () => tapped && hideTooltip(), { passive: true, capture: true });

// Shows the box beside a pointer event. entries: [[name, value, strong]], where strong entries are set in bold.
export function showTooltip(title, entries, { clientX, clientY, pointerType }) {
  tapped = pointerType === 'touch';
  const list = document.createElement('dl');
  for (const [name, value, strong] of entries) {
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
