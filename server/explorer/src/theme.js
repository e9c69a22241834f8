// Light or dark: the system's choice or the user's. The browser keeps the user's choice for the next visit if it may.

const NAMES = ['auto', 'light', 'dark'];

function stored() {
  try {
    return localStorage.getItem('theme');
  } catch {
    return null;
  }
}

// button shows and changes it; onChange(dark) at every change, and once at the beginning.
export function createTheme(button, onChange) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let name = NAMES.includes(stored()) ? stored() : 'auto';

  function apply() {
    const dark = name === 'dark' || (name === 'auto' && system.matches);
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    button.textContent = `Theme: ${name}`;
    onChange(dark);
  }

  function next() {
    name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
    try {
      localStorage.setItem('theme', name);
    } catch {
      // The choice then holds for this visit only.
    }
    apply();
  }

  button.addEventListener('click', next);
  system.addEventListener('change', apply);
  apply();
  return { next };
}
