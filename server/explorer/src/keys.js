// Keys that hold for the whole page, but not where somebody types.

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
