// options.js shows the options of the API as controls. Each control edits the text of the request. The control of an option that does not
// apply is disabled and says why; but if the request has the option, the user can remove it. If the text of a field cannot be read, it
// stays in the field, the rule stands beside it, and the request keeps its old value.
import { make, makeWith } from './dom.js';
import { inapplicable } from './request.js';
import listed from './parts/options.json';
import { readFraction, readList, readNumber, readWhole } from './fieldtext.js';

// The kinds of text that fields accept: the function that reads it, and its rule in words.
const TEXTS = {
  number: { read: readNumber, rule: 'a number, such as 0.5' },
  fraction: { read: readFraction, rule: 'a number or fraction, such as 0.5, 1/8 or 1/√8', letters: true },
  whole: { read: readWhole, rule: 'a whole number, such as 2' },
  numbers: { read: readList, rule: 'a number, or one for each head, such as 0.5, 1' },
  wholes: { read: (text) => readList(text, readWhole), rule: 'a whole number, or one for each batch item, such as 3, 5' },
};

// The options: {key, label, kind, takes, hint, title, values}. kind: choice, switch, field or pair. takes: the kind of text. values: the choices,
// what the request has and how it is called here; '' is the default, which the request leaves out.
const OPTIONS = listed.map((option) => ({ kind: 'field', ...option, takes: TEXTS[option.takes] }));

const SELDOM = 'kv_heads'; // this option and the ones after it are folded away

function input(option, attributes) {
  const made = makeWith('input', null, { type: 'text', autocomplete: 'off', ...attributes });
  made.dataset.option = option.key;
  return made;
}

// Functions that make the control of an option: {element, read(), write(value)}. read() returns JSON text, undefined for the default, or
// null for a text that cannot be read.
const KINDS = {
  choice(option) {
    const select = document.createElement('select');
    select.append(...Object.entries(option.values).map(([value, label]) => new Option(label, value)));
    select.dataset.option = option.key;
    return {
      element: select,
      read: () => (select.value === '' ? undefined : select.value === 'true' ? 'true' : JSON.stringify(select.value)),
      write: (value) => (select.value = value in option.values ? value : ''),
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
  field(option) {
    const field = input(option, { placeholder: option.hint, inputMode: option.takes.letters ? 'text' : 'decimal' });
    const write = (value) => (field.value = [value].flat().every(Number.isFinite) ? [value].flat().join(', ') : '');
    return { element: field, read: () => option.takes.read(field.value), write };
  },
  pair(option) {
    const sides = ['left', 'right'].map((side) => {
      const field = input(option, { placeholder: side, inputMode: 'numeric', ariaLabel: `${option.label}, ${side}` });
      field.dataset.side = side;
      return field;
    });
    const element = make('span', 'pair');
    element.append(...sides);
    return {
      element,
      fields: sides,
      read() {
        const values = sides.map(({ value }) => option.takes.read(value));
        if (values.includes(null)) return null;
        return values.every((value) => value === undefined) ? undefined : `[${values.map((value) => value ?? -1).join(', ')}]`;
      },
      write: (value) => sides.forEach((field, i) => (field.value = Array.isArray(value) && value[i] >= 0 ? value[i] : '')),
    };
  },
};

// The sliders beside fields. range(sizes) returns {min, max, step}; sizes: {keys, d, heads} of the answer. toText(place, sizes) returns the
// text of the field, which is empty for the default. toPlace(value, sizes) returns the place of a number, and of undefined.
const REST = 400; // milliseconds after which a slider is at rest
const digits = (value) => String(Number(value.toPrecision(3)));
const SLIDERS = {
  // From 1/32 to 32 times 1/√d, which is in the middle.
  scale: {
    range: () => ({ min: -50, max: 50, step: 1 }),
    toText: (place, { d }) => (place === 0 ? '' : digits(2 ** (place / 10) / Math.sqrt(d))),
    toPlace: (value, { d }) => (value > 0 ? 10 * Math.log2(value * Math.sqrt(d)) : 0),
  },
  // From 0.1 to 100; the right end is off.
  softcap: {
    range: () => ({ min: -20, max: 41, step: 1 }),
    toText: (place) => (place > 40 ? '' : digits(10 ** (place / 20))),
    toPlace: (value) => (value > 0 ? 20 * Math.log10(value) : 41),
  },
  // From −10 to 10; the left end is none.
  sink: {
    range: () => ({ min: -10.1, max: 10, step: 0.1 }),
    toText: (place, { heads }) => (place < -10 ? '' : new Array(heads).fill(digits(place)).join(', ')),
    toPlace: (value) => (typeof value === 'number' ? value : -10.1),
  },
  // Up to the number of keys, which is the right end and means all.
  window: {
    range: ({ keys }) => ({ min: 0, max: keys, step: 1 }),
    toText: (place, { keys }) => (place >= keys ? '' : String(place)),
    toPlace: (value, { keys }) => (value >= 0 ? value : keys),
  },
};

// Makes the slider of a field. write(text) puts a text into the field as the user would. rest() is called when the slider is at rest.
// The returned set(value, sizes, disabled, kept) moves the slider; kept: it stays where the user has put it.
function createSlider(key, label, write, rest) {
  const slider = makeWith('input', null, { type: 'range', className: 'slider', ariaLabel: `${label}, slider` });
  const { range, toText, toPlace } = SLIDERS[key];
  let sizes = { keys: 1, d: 1, heads: 1 };
  let timer = 0;
  slider.dataset.slider = key;
  const tell = () => (slider.ariaValueText = toText(Number(slider.value), sizes) || 'default');
  slider.addEventListener('input', () => {
    tell();
    write(toText(Number(slider.value), sizes));
  });
  // A key that is held makes many changes. The history of the browser gets one step for all of them.
  slider.addEventListener('change', () => {
    clearTimeout(timer);
    timer = setTimeout(rest, REST);
  });
  return {
    slider,
    set(value, now, disabled, kept) {
      sizes = now;
      slider.disabled = disabled;
      Object.assign(slider, range(sizes));
      if (!kept || document.activeElement !== slider) slider.value = toPlace(value, sizes);
      tell();
    },
  };
}

// Makes the controls. onChange(key, value, live) is called when the user has changed a control; value is JSON text, or undefined. live: the
// user moves a slider. onRest() is called when the slider is at rest.
export function createOptions(container, onChange, onRest) {
  const rows = OPTIONS.map((option) => {
    const control = KINDS[option.kind](option);
    const fields = control.fields ?? [control.element];
    const row = makeWith('div', container, { className: 'option', title: option.title });
    const name = make('span', '', row);
    fields[0].id = `option-${option.key}`;
    makeWith('label', name, { textContent: option.label, htmlFor: fields[0].id });
    const reason = makeWith('small', name, { id: `reason-${option.key}` });
    row.append(control.element);
    const error = makeWith('small', row, { id: `error-${option.key}`, className: 'wrong', role: 'status' });
    for (const field of fields) field.setAttribute('aria-describedby', `${reason.id} ${error.id}`);
    const one = { option, control, row, reason, error, fields, sliders: [] };
    const change = (live = false) => {
      const value = control.read();
      complain(one, value === null);
      if (value !== null) onChange(option.key, value, live);
    };
    if (option.key in SLIDERS) {
      row.classList.add('with-slider');
      const place = make('span', 'sliders');
      one.sliders = fields.map((field) => {
        const slide = (text) => {
          field.value = text;
          change(true);
        };
        const made = createSlider(option.key, field.ariaLabel ?? option.label, slide, onRest);
        place.append(made.slider);
        return made;
      });
      row.insertBefore(place, error);
    }
    const event = option.kind === 'choice' || option.kind === 'switch' ? 'change' : 'input';
    control.element.addEventListener(event, () => change());
    return one;
  });

  let kept = true; // whether the field and the slider that the user is at keep what the user has given
  const more = make('details', 'more', container);
  const title = make('summary', '', more);
  const seldom = rows.slice(OPTIONS.findIndex(({ key }) => key === SELDOM));
  more.append(...seldom.map(({ row }) => row));

  function complain({ option, row, error, fields }, wrong) {
    row.classList.toggle('invalid', wrong);
    error.textContent = wrong ? `This needs ${option.takes.rule}.` : '';
    for (const field of fields) field.ariaInvalid = wrong && option.takes.read(field.value) === null;
  }

  // Sets the controls to the options of a request; null disables every option. sizes: {keys, d, heads}: how many keys, columns of Q and
  // heads the answer has.
  function update(summary, sizes) {
    const reasons = summary ? inapplicable(summary, sizes.heads) : {};
    for (const one of rows) {
      const { option, control, row, reason, fields } = one;
      const why = reasons[option.key] ?? '';
      const off = !summary || why !== '';
      const set = summary && option.key in summary.options;
      const value = summary?.options[option.key];
      for (const field of fields) field.disabled = off && (!set || value?.own !== undefined);
      row.classList.toggle('off', off);
      reason.textContent = why;
      if (summary && !row.classList.contains('invalid') && !(kept && fields.includes(document.activeElement))) control.write(value);
      const values = option.kind === 'pair' ? value : [value].flat(); // one for each slider
      one.sliders.forEach((slider, i) => slider.set(values?.[i], sizes, fields[0].disabled, kept));
    }
    kept ||= Boolean(summary);
    const set = summary ? seldom.filter(({ option }) => option.key in summary.options).length : 0;
    title.textContent = set ? `More (${set} changed)` : 'More';
  }

  // Empties the fields that could not be read. It is called when another request is shown, whose options stand in all fields then.
  function forget() {
    kept = false;
    for (const one of rows.filter(({ row }) => row.classList.contains('invalid'))) {
      for (const field of one.fields) field.value = '';
      complain(one, false);
    }
  }
  return { update, forget };
}
