// measure.mjs prints what the page costs on a slow machine, its processor slowed by four: the bytes of the first view, the blocking
// time (what each task takes over 50 ms, in sum), the same as a multiple of a fixed piece of work, and the layout shift. It asserts
// nothing; explorer.test.mjs holds the bytes and the layout shift to their bounds.
import { median, newPage, watch } from './harness.mjs';

const RUNS = Number(process.env.RUNS ?? 5);
const SLOWED = 4;
const VIEWS = {
  'first view': {},
  'phone': { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true },
  '1024 × 1024': { hash: '#example=own', body: { random: { generator: 'numpy', seed: 5 }, ...drawn(1024, 16), causal: true } },
};

function drawn(n, d) {
  const matrix = { random: 'randn', shape: [n, d] };
  return { Q: matrix, K: matrix, V: matrix };
}

// Milliseconds for a fixed piece of work of the kind that a page does: text, objects, numbers.
function work() {
  const begin = performance.now();
  let sum = 0;
  for (let i = 0; i < 40; i++) {
    const rows = JSON.parse(JSON.stringify(Array.from({ length: 200 }, (_, at) => ({ at, name: `row ${at}`, value: Math.sqrt(at + i) }))));
    sum += rows.reduce((total, { value }) => total + value, 0);
  }
  return sum > 0 ? performance.now() - begin : NaN;
}

async function once({ hash = '', body, ...options }) {
  const { page, context, requests, close } = await newPage(options);
  const session = await context.newCDPSession(page);
  await session.send('Emulation.setCPUThrottlingRate', { rate: SLOWED });
  const seen = await watch(page);
  const settled = async () => {
    await page.waitForSelector('#status[data-state="done"]');
    await page.waitForLoadState('networkidle');
    await page.waitForTimeout(1500);
  };
  await page.goto(`/${hash}`);
  await settled();
  if (body) {
    await seen.forget();
    const buffer = Buffer.from(JSON.stringify(body));
    await page.evaluate(() => (document.getElementById('status').dataset.state = 'of the measurement'));
    await page.setInputFiles('#file', { name: 'body.json', mimeType: 'application/json', buffer });
    await settled();
  }
  const { blocking, longest, shift, shifts } = await seen.read();
  const unit = Math.min(...(await page.evaluate(`Array.from({ length: 3 }, ${work})`)));
  const sizes = await Promise.all(requests.filter(({ method }) => method).map((request) => request.sizes()));
  const bytes = sizes.reduce((sum, { responseBodySize, responseHeadersSize }) => sum + responseBodySize + responseHeadersSize, 0);
  await close();
  return { bytes, blocking, longest, ratio: blocking / unit, shift, shifts };
}

const digits = { bytes: 0, blocking: 0, longest: 0, ratio: 1, shift: 3 };
console.log(`${'median of ' + RUNS} | bytes | blocking, ms | longest task, ms | blocking / fixed work | layout shift`);
for (const [name, options] of Object.entries(VIEWS)) {
  const runs = [];
  for (let i = 0; i < RUNS; i++) runs.push(await once(options));
  const figures = Object.entries(digits).map(([key, places]) => median(runs.map((run) => run[key])).toFixed(places));
  console.log([name, ...figures].join(' | '));
  if (process.env.SHIFTS) for (const line of runs[0].shifts) console.log(`    ${line}`);
}
process.exit(0);
