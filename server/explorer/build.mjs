// build.mjs OUT - writes the page and the reference of the API to OUT: index.html and docs.html, what they load to OUT/assets/
// under names that hold a hash of the content.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

const out = process.argv[2];
const here = import.meta.dirname ?? new URL('.', import.meta.url).pathname;
const assets = join(out, 'assets');
rmSync(out, { recursive: true, force: true });
mkdirSync(assets, { recursive: true });

// Bundles the entry points; returns where each has gone, by its own name.
async function bundle(names, define = {}) {
  const result = await build({
    entryPoints: names.map((name) => join(here, 'src', name)),
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    outdir: assets,
    bundle: true,
    minify: true,
    splitting: true,
    format: 'esm',
    target: 'es2022',
    legalComments: 'none',
    define,
    metafile: true,
    logLevel: 'warning',
  });
  const places = {};
  for (const [file, { entryPoint }] of Object.entries(result.metafile.outputs)) {
    if (entryPoint) {
      places[basename(entryPoint)] = basename(file);
    }
  }
  return places;
}

// "main.js" in src/NAME.html becomes "assets/main-HASH.js", and so on.
function page(name, places) {
  let text = readFileSync(join(here, 'src', name), 'utf8');
  for (const [from, to] of Object.entries(places)) {
    text = text.replaceAll(`"${from}"`, `"assets/${to}"`);
  }
  writeFileSync(join(out, name), text);
}

const worker = await bundle(['worker.js']);
const main = await bundle(['main.js', 'style.css'], { WORKER_NAME: JSON.stringify(worker['worker.js']) });
page('index.html', main);
