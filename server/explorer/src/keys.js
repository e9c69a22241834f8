// Keys of the whole page. They do nothing while somebody types in a field.

// does: name of a key -> what it does.
export function listen(does) {
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
