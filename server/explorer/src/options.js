// The options of the API as controls. Each edits the request's text, where it belongs. What does not apply is off and says why, but
// one that is set all the same can be taken back.
import { inapplicable } from './request.js';

const number = (text) => (text.trim() === '' || Number.isNaN(Number(text)) ? undefined : String(Number(text)));

function list(text) {
  const parts = text.split(/[\s,]+/).filter(Boolean);
  if (!parts.length || parts.some((part) => Number.isNaN(Number(part)))) return undefined;
  return parts.length === 1 ? String(Number(parts[0])) : `[${parts.map(Number).join(', ')}]`;
}

const CAUSAL = [
  ['', 'off', undefined],
  ['true', 'on', 'true'],
  ['bottom_right', 'bottom right', '"bottom_right"'],
];
const NORMALIZATION = [
  ['', 'softmax', undefined],
  ['none', 'none', '"none"'],
];
const DTYPE = [
  ['', 'float32', undefined],
  ['float64', 'float64', '"float64"'],
];
const LAYOUT = [
  ['', 'X W', undefined],
  ['out_in', 'X Wᵀ', '"out_in"'],
];

// kind: choice, switch, number, list, pair. `SELDOM` and what follows it fold away.
const OPTIONS = [
  { key: 'causal', label: 'Causal', kind: 'choice', values: CAUSAL, title: 'No query sees what comes after it' },
  { key: 'window', label: 'Window', kind: 'pair', title: 'How many keys to the left and right of itself a query sees; empty is all' },
  { key: 'scale', label: 'Scale', kind: 'number', hint: '1/√d', title: 'What the scores are multiplied with' },
  { key: 'softcap', label: 'Softcap', kind: 'number', hint: 'off', title: 'Keeps scaled scores between −softcap and softcap' },
  { key: 'alibi', label: 'ALiBi', kind: 'switch', title: 'A penalty that grows with distance, with the slopes of the paper' },
  { key: 'sink', label: 'Sink', kind: 'list', hint: 'none', title: 'A logit that takes part in softmax only; one for each head' },
  { key: 'lengths', label: 'Lengths', kind: 'list', hint: 'all keys', title: 'How many keys are valid; one number for each batch item' },
  { key: 'normalization', label: 'Normalization', kind: 'choice', values: NORMALIZATION, title: 'How weights come from masked scores' },
  { key: 'heads', label: 'Heads', kind: 'number', hint: '1', title: 'Into how many heads the columns are split' },
  { key: 'kv_heads', label: 'Key heads', kind: 'number', hint: 'as heads', title: 'Fewer heads of K and V than of Q' },
  { key: 'mean_over_heads', label: 'Mean over heads', kind: 'switch', title: 'One matrix of weights for all heads' },
  { key: 'weight_layout', label: 'Projections', kind: 'choice', values: LAYOUT, title: 'How the projections are laid out' },
  { key: 'dtype', label: 'Numbers', kind: 'choice', values: DTYPE, title: 'What is calculated with' },
  { key: 'digits', label: 'Digits', kind: 'number', hint: 'exact', title: 'Significant digits of the answer, 1 to 17' },
  { key: 'timeout', label: 'Timeout', kind: 'number', hint: 'server’s', title: 'Seconds that the computation may take' },
];

const SELDOM = 'kv_heads'; // this option and those after it

function input(option, attributes) {
  const made = Object.assign(document.createElement('input'), { type: 'text', autocomplete: 'off', ...attributes });
  made.dataset.option = option.key;
  return made;
}

// The control of one option: {element, read() -> JSON text or undefined, write(value)}.
const KINDS = {
  choice(option) {
    const select = document.createElement('select');
    select.append(...option.values.map(([value, label]) => new Option(label, value)));
    select.dataset.option = option.key;
    return {
      element: select,
      read: () => option.values.find(([value]) => value === select.value)[2],
      write: (value) =>
        (select.value = value === undefined || value === false ? '' : (option.values.find((one) => one[0] === String(value))?.[0] ?? '')),
    };
  },
  switch(option) {
    const box = input(option, { type: 'checkbox' });
    return {
      element: box,
      read: () => (box.checked ? 'true' : undefined),
      write(value) {
        box.checked = Boolean(value);
        box.indeterminate = Array.isArray(value);
      },
    };
  },
  number(option) {
    const field = input(option, { placeholder: option.hint, inputMode: 'decimal' });
    return { element: field, read: () => number(field.value), write: (value) => (field.value = Number.isFinite(value) ? value : '') };
  },
  list(option) {
    const field = input(option, { placeholder: option.hint, inputMode: 'decimal' });
    const write = (value) => (field.value = Array.isArray(value) ? value.join(', ') : (value ?? ''));
    return { element: field, read: () => list(field.value), write };
  },
  pair(option) {
    const sides = ['left', 'right'].map((side) => {
      const field = input(option, { placeholder: side, inputMode: 'numeric' });
      field.dataset.side = side;
      field.setAttribute('aria-label', `${option.label}, ${side}`);
      return field;
    });
    const element = document.createElement('span');
    element.className = 'pair';
    element.append(...sides);
    return {
      element,
      fields: sides,
      read() {
        const values = sides.map(({ value }) => number(value));
        return values.every((value) => value === undefined) ? undefined : `[${values.map((value) => value ?? -1).join(', ')}]`;
      },
      write(value) {
        sides.forEach((field, i) => (field.value = Array.isArray(value) && value[i] >= 0 ? value[i] : ''));
      },
    };
  },
};

// onChange(key, JSON text or undefined) when a control has been used.
export function createOptions(container, onChange) {
  const rows = OPTIONS.map((option) => {
    const control = KINDS[option.kind](option);
    const row = document.createElement('div');
    row.className = 'option';
    row.title = option.title;
    const label = document.createElement('label');
    const reason = document.createElement('small');
    const fields = control.fields ?? [control.element];
    const name = document.createElement('span');
    label.textContent = option.label;
    name.append(label, reason);
    fields[0].id = `option-${option.key}`;
    label.htmlFor = fields[0].id;
    reason.id = `reason-${option.key}`;
    for (const field of fields) field.setAttribute('aria-describedby', reason.id);
    row.append(name, control.element);
    container.append(row);
    const change = () => onChange(option.key, control.read());
    const event = option.kind === 'choice' || option.kind === 'switch' ? 'change' : 'input';
    control.element.addEventListener(event, change);
    return { option, control, row, reason, fields };
  });

  const more = document.createElement('details');
  const title = document.createElement('summary');
  const seldom = rows.slice(OPTIONS.findIndex(({ key }) => key === SELDOM));
  more.className = 'more';
  more.append(title, ...seldom.map(({ row }) => row));
  container.append(more);

  // Shows what a request has. heads: as many as its answer has.
  function update(summary, heads) {
    const reasons = summary ? inapplicable(summary, heads) : {};
    for (const { option, control, row, reason, fields } of rows) {
      const why = summary ? (reasons[option.key] ?? '') : 'not JSON';
      const set = summary && option.key in summary.options;
      for (const field of fields) field.disabled = why !== '' && (!set || summary.options[option.key]?.own !== undefined);
      row.classList.toggle('off', why !== '');
      reason.textContent = why;
      if (summary && !fields.includes(document.activeElement)) control.write(summary.options[option.key]);
    }
    const set = summary ? seldom.filter(({ option }) => option.key in summary.options).length : 0;
    title.textContent = set ? `More, of which ${set} set` : 'More';
  }
  return { update };
}
