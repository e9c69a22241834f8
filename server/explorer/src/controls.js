// controls.js sets the controls beside the steps to the state of the page. main.js binds what they do.
import { rangeOf } from './colour.js';
import { bodyText, fileOf, snippet } from './snippets.js';
import { state } from './state.js';
import { isSigned } from './steps.js';

const $ = (id) => document.getElementById(id);

export function setControls() {
  const heads = state.answer ? state.answer.matrices.weights[0].length : 1;
  $('path').value = state.path;
  for (const name of ['log', 'numbers', 'every']) $(name).checked = state[name];
  $('palette').value = state.palette;
  $('range').value = rangeOf(state.range, state.answer?.keys ?? 0);
  $('range').disabled = Boolean(state.summary) && isSigned('weights', state.summary.options);
  $('compare-box').hidden = heads < 2 || state.mean || state.step !== 'weights';
  const others = Array.from({ length: heads }, (_, at) => new Option(`head ${at}`, at)).filter((_, at) => at !== state.head);
  $('compare').replaceChildren(new Option('nothing', ''), ...others);
  $('compare').value = state.compare ?? '';
  $('line-tools').hidden = !state.lines || state.step !== 'weights';
  $('every-box').hidden = heads < 2;
  $('threshold').value = state.threshold;
  $('line-mode').value = state.mass ? 'mass' : 'weight';
  $('threshold-value').textContent = state.mass ? `${Math.round(state.threshold * 100)} %` : state.threshold.toFixed(2);
  $('mask-edit').ariaPressed = state.editMask;
  $('mask-edit').disabled = Boolean(state.summary?.options.update);
  $('mask-clear').hidden = !state.summary?.shapes.mask;
  document.body.classList.toggle('editing-mask', state.editMask);
  $('sentence-box').hidden = !state.summary?.words;
  const text = state.summary?.options.text ?? [state.summary?.options.tokens ?? []].flat().join(' ');
  if (state.summary?.words && document.activeElement !== $('sentence')) $('sentence').value = text;
  if (document.activeElement !== $('labels')) $('labels').value = (state.labels ?? []).join(', ');
  setCode();
}

export function setCode() {
  const request = { base: state.base, path: state.path, body: state.sent ?? state.text, key: state.needsKey };
  $('code').textContent = snippet(state.language, request);
  const file = fileOf(bodyText(request.body));
  for (const button of $('languages').children) button.ariaPressed = button.dataset.language === state.language;
  $('save-body').hidden = !file;
  $('save-body').textContent = `Save ${file}`;
}
