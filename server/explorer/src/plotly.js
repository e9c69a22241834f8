// plotly.js, fetched once the first view is there. The page owns all pointer and key events; of plotly.js it takes drawing, axes and
// zoom. Draws one plot in a task, so that the page stays quick while many wait.
import { FONT } from './geometry.js';
import { plotlyScale, position } from './colour.js';

const [, size, family] = FONT.match(/^(\d+)px (.*)$/);
const CONFIG = { displayModeBar: false, responsive: false, showTips: false, doubleClick: false, scrollZoom: false };

let library = null;
const queue = new Map();
let running = false;

// The policy of the page forbids style attributes; the same through the CSSOM is allowed, and d3 does not care.
function styleThroughCSSOM() {
  const { setAttribute } = Element.prototype;
  Element.prototype.setAttribute = function (name, value) {
    if (name === 'style' && this.style) this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
}

function idle() {
  return new Promise((resolve) => {
    if (window.requestIdleCallback) requestIdleCallback(resolve, { timeout: 2000 });
    else setTimeout(resolve, 200);
  });
}

// Fetches the library when the page has nothing else to do: to start it takes longer than anything else here. Null where it cannot be
// loaded: then the canvas stays.
async function load() {
  await idle();
  styleThroughCSSOM();
  try {
    const module = await import('./plotly-heatmap.js');
    return module.default ?? module;
  } catch (error) {
    console.error(error);
    return null;
  }
}

// A heat map of some thousand numbers; masked cells are holes, through which the canvas below shows its hatching.
export function cells({ matrix, mask, scale, gap }) {
  const { rows, cols, data } = matrix;
  const z = [];
  for (let row = 0; row < rows; row++) {
    const line = [];
    for (let at = row * cols; at < (row + 1) * cols; at++) {
      line.push(mask?.[at] || data[at] === -Infinity ? null : scale.log ? position(scale, data[at]) : data[at]);
    }
    z.push(line);
  }
  return {
    type: 'heatmap',
    z,
    colorscale: plotlyScale(scale.table),
    zmin: scale.log ? 0 : scale.lo,
    zmax: scale.log ? 1 : scale.hi,
    zsmooth: false,
    showscale: false,
    hoverinfo: 'skip',
    xgap: gap,
    ygap: gap,
  };
}

function axis(range, list, extra) {
  return {
    range,
    tickmode: 'array',
    tickvals: list.map(({ at }) => at),
    ticktext: list.map(({ text }) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')),
    ticks: '',
    ticklabelstandoff: 3,
    showgrid: false,
    zeroline: false,
    showline: false,
    automargin: false,
    ...extra,
  };
}

export function layout({ box, range, axes, ink, zoomable }) {
  const fixed = { fixedrange: !zoomable };
  return {
    width: box.width,
    height: box.height,
    margin: { l: box.left, t: box.top, r: 2, b: 2, pad: 0, autoexpand: false },
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    font: { family, size: Number(size), color: ink },
    xaxis: axis([range.col0 - 0.5, range.col1 - 0.5], axes.cols, { side: 'top', tickangle: box.across ? -90 : 0, ...fixed }),
    yaxis: axis([range.row1 - 0.5, range.row0 - 0.5], axes.rows, { scaleanchor: false, ...fixed }),
    dragmode: zoomable ? 'zoom' : false,
    hovermode: false,
    showlegend: false,
  };
}

const nextTask = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));

// One plot after the other: those in sight first, the others when there is nothing else to do.
async function run() {
  running = true;
  library ??= load();
  const plotly = await library;
  const inSight = () => [...queue].find(([, { near }]) => near());
  while (queue.size) {
    await (inSight() ? nextTask() : idle());
    const [element, { make, done }] = inSight() ?? queue.entries().next().value;
    queue.delete(element);
    if (!plotly || !element.isConnected) continue;
    try {
      const { traces, layout: shape } = make();
      await plotly.react(element, traces, shape, CONFIG);
      done();
    } catch (error) {
      console.error(error); // The canvas stays, and the others have their turn.
    }
  }
  running = false;
}

// Draws when its turn has come; the latest for an element takes the place of earlier ones. job: {near() -> whether it is in sight,
// make() -> {traces, layout}, done()}.
export function draw(element, job) {
  queue.set(element, job);
  if (!running) run();
}
