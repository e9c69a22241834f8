// build.mjs OUT - makes what the daemon serves to browsers. In OUT: index.html, docs.html and openapi.yaml; in OUT/assets what
// the pages load, under names that hold a hash of the content; beside each file NAME.gz and NAME.br, empty if that is not
// shorter. OUT/assets.inc, written last, lists them all for server/api/embed.S and server/api/assets.c.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

const out = process.argv[2];
const here = dirname(fileURLToPath(import.meta.url));
const bundled = new Set(); // folders of packages: others hold rights in them
const types = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.yaml': 'application/yaml',
};
const files = new Map(); // what is made, by its place in OUT

const hash = (bytes, size) => createHash('sha256').update(bytes).digest('base64url').slice(0, size);

// plotly.js asks for the style of maps, which nothing here shows.
const withoutMaps = {
  name: 'without-maps',
  setup: ({ onLoad }) => onLoad({ filter: /maplibre-gl\.css$/ }, () => ({ contents: '', loader: 'empty' })),
};

// Bundles the entry points; returns where each has gone, by its own name.
async function bundle(names, define = {}) {
  const { metafile, outputFiles } = await build({
    entryPoints: names.map((name) => join(here, 'src', name)),
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    assetNames: '[name]-[hash]',
    outdir: 'assets',
    loader: { '.svg': 'file' },
    plugins: [withoutMaps],
    bundle: true,
    minify: true,
    splitting: true,
    format: 'esm',
    target: 'es2022',
    legalComments: 'none',
    define: { global: 'globalThis', ...define },
    metafile: true,
    write: false,
    logLevel: 'warning',
  });
  for (const { path, contents } of outputFiles) {
    files.set(`assets/${basename(path)}`, Buffer.from(contents));
  }
  for (const input of Object.keys(metafile.inputs)) {
    const [folder] = input.match(/^.*node_modules\/(@[^/]+\/)?[^/]+/) ?? [];
    if (folder) bundled.add(folder);
  }
  const places = {};
  for (const [file, { entryPoint }] of Object.entries(metafile.outputs)) {
    if (entryPoint) {
      places[basename(entryPoint)] = basename(file);
    }
  }
  return places;
}

// The licences of what is bundled, in one file. Returns its place, as bundle does.
function licences() {
  let text = '';
  for (const folder of [...bundled].sort()) {
    const { name, version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const parts = readdirSync(folder).filter((file) => /^(licen[cs]e|notice)/i.test(file));
    for (const part of parts.sort()) {
      text += `${name} ${version}, ${part}\n\n${readFileSync(join(folder, part), 'utf8').trim()}\n\n\n`;
    }
  }
  const place = `licences-${hash(text, 8)}.txt`;
  files.set(`assets/${place}`, Buffer.from(text));
  return { 'licences.txt': place };
}

// "main.js" in src/NAME.html becomes "assets/main-HASH.js", and so on.
function page(name, places) {
  let text = readFileSync(join(here, 'src', name), 'utf8');
  for (const [from, to] of Object.entries(places)) {
    text = text.replaceAll(`"${from}"`, `"assets/${to}"`);
  }
  files.set(name, Buffer.from(text));
}

// Compressing takes most of the time: what is there already, of the same content, stays.
async function write(place, bytes) {
  const path = join(out, place);
  if (existsSync(path) && readFileSync(path).equals(bytes)) {
    return;
  }
  rmSync(path, { force: true });
  const forms = await Promise.all([
    promisify(gzip)(bytes, { level: 9 }),
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }), // quality 11
  ]);
  ['gz', 'br'].forEach((suffix, i) => {
    writeFileSync(`${path}.${suffix}`, forms[i].length < bytes.length ? forms[i] : '');
  });
  writeFileSync(path, bytes);
}

// ASSET(number, path, gzip, brotli, their three sizes, media type, entity tag, immutable): see server/api/assets.c.
function row([place, bytes], number) {
  const size = (path) => readFileSync(join(out, path)).length;
  const forms = [place, `${place}.gz`, `${place}.br`];
  const tag = `W/\\"${hash(bytes, 16)}\\"`;
  const strings = [...forms, types[extname(place)], tag].map((text) => `"${text}"`);
  const columns = [number, ...strings.slice(0, 3), ...forms.map(size), ...strings.slice(3), place.startsWith('assets/')];
  return `ASSET(${columns.join(', ')})\n`;
}

const worker = await bundle(['worker.js']);
const main = await bundle(['main.js', 'style.css'], { WORKER_NAME: JSON.stringify(worker['worker.js']) });
const docs = await bundle(['docs.css']);
const texts = licences();
page('index.html', { ...main, ...texts });
page('docs.html', docs);
files.set('openapi.yaml', readFileSync(join(here, '../../openapi.yaml')));

mkdirSync(join(out, 'assets'), { recursive: true });
for (const file of readdirSync(out, { recursive: true, withFileTypes: true })) {
  const path = join(file.parentPath ?? file.path, file.name);
  if (file.isFile() && !files.has(path.slice(join(out, '/').length).replace(/\.(gz|br)$/, ''))) {
    rmSync(path);
  }
}
await Promise.all([...files].map(([place, bytes]) => write(place, bytes)));
writeFileSync(join(out, 'assets.inc'), [...files].map(row).join(''));
