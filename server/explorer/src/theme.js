// theme.js chooses the light or the dark theme: that of the system, or the one that the user has chosen. The browser keeps the user's
// choice for the next visit if the page may store it.
import { keep, kept } from './dom.js';

const NAMES = ['auto', 'light', 'dark'];

// Sets the theme. The button shows it and changes it. onChange(dark) is called at every change, and once at the beginning.
export function createTheme(button, onChange) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let name = NAMES.includes(kept('theme')) ? kept('theme') : 'auto';

  function apply() {
    const dark = name === 'dark' || (name === 'auto' && system.matches);
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    button.textContent = `Theme: ${name}`;
    onChange(dark);
  }

  function next() {
    name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
    keep('theme', name);
    apply();
  }

  // Takes the light theme for a page of paper (true), or the theme as before (false).
  function print(printing) {
    if (!printing) return apply();
    document.documentElement.dataset.theme = 'light';
    onChange(false);
  }

  button.addEventListener('click', next);
  system.addEventListener('change', apply);
  apply();
  return { next, print };
}

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const names = { ink: '--ink-soft', paper: '--paper', hatch: '--hatch', bar: '--bar', track: '--track' };
  return Object.fromEntries(Object.entries(names).map(([name, property]) => [name, read(property)]));
}
