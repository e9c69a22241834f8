// keyboard.js has the keyboard shortcuts of the page. They do nothing while the user types in a field, except for Escape.

// Calls does[name]() when the key with this name is pressed.
export function listenToKeyboard(does) {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector('dialog[open]')) return;
    const typing = event.target.closest?.('textarea, select, input:not([type=checkbox]):not([type=range])');
    if (typing && event.key !== 'Escape') return;
    if (typing) typing.blur();
    if (!(event.key in does)) return;
    does[event.key]();
    event.preventDefault();
  });
}
