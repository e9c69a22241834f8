// state.js has the state of the explorer in one object. main.js changes it; other modules read it.

// How an answer is shown before the user has changed anything.
export const FRESH = {
  step: 'flow', // a step, or `flow` for all matrices
  head: 0,
  compare: null,
  mean: false,
  batch: 0,
  row: null,
  editMask: false,
  position: null, // the position after which the state of attention without softmax is shown; null for the last one
  threshold: 0,
  mass: false,
  lines: false,
  every: false,
  words: '', // what the user has typed for the trained model
  layer: 1, // the layer of the trained model whose request is shown
  unseen: null, // the place of the word of the trained model that no other word sees
  off: '', // the heads of the trained model that are switched off, such as 0.1,1.2
};

// The request and how its answer is shown: the address of the page has most of it, and window.explorer.state has a copy of it.
const shown = {
  example: null, // the name of the variant of an example that the request came from
  path: '',
  text: '', // the request as the user wrote it
  labels: [],
  ...FRESH,
  palette: 'viridis',
  range: null,
  log: false,
  numbers: false,
  model: null, // the model, or the layer, of the map of stored layers that is shown large
  map: null, // this map: LAYER.HEAD or `rollout`; null if none is large
  dark: false,
};

export const state = {
  ...shown,
  base: '', // the address that the paths of the API follow
  answer: null, // the last Answer
  summary: null, // the summary of the last request (request.js), or null if it was not an object
  sent: null, // the text of the last request as the worker sent it, or null if it was too long to keep
  needsKey: false, // the server has asked for a key
  asked: 0, // how many times compute() has been called
  read: 0, // how many times the page has read its address
  live: false, // the user moves a slider, and the request that it makes is on its way
  focus: null, // the element that had the focus when the last answer was hidden
  hiding: 0, // the timer that hides the last answer
  timer: 0, // the timer that calls compute() after a change
  written: Promise.resolve(), // resolves when the address has the latest state
  language: 'curl', // the language of the code that is shown
  curve: null, // the softmax curve, once it has come into sight
  expected: '[]', // the results that the last request expects
  compared: null, // the comparison (compare.js), once it has been used
  captured: null, // the layers of the captured file whose request is shown (files.js)
  layers: null, // the section of stored layers (layers.js), if the server has any
  story: null, // what shows the trained model (story.js), once it has been used
  stash: new Map(), // the values that the present rule of an example does not take (rules.js)
  drafts: new Map(), // for each edited variant of an example, what the user made of it: {path, text, labels, captured}; of the model also {words, layer, off, unseen}
  latest: new Map(), // for each example, the name of the variant that was shown last
};

// Returns a copy of the part of the state that says what is shown.
export const shownState = () => structuredClone(Object.fromEntries(Object.keys(shown).map((name) => [name, state[name]])));
