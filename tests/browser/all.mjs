// all.mjs [NAME...] runs the tests in unit/*.test.mjs and *.test.mjs, or only those in the named files; the name `unit` stands for all that
// need no browser. It runs them one after the other in one process, so that all of them use one daemon and one browser, and the output ends
// with one sum.
import { readdirSync } from 'node:fs';
import { basename } from 'node:path';

const named = process.argv.slice(2);
const found = ['unit/', ''].flatMap((folder) =>
  readdirSync(new URL(`./${folder}`, import.meta.url))
    .filter((file) => file.endsWith('.test.mjs'))
    .map((file) => `./${folder}${file}`),
);
const chosen = found.filter(
  (file) =>
    named.length === 0 ||
    named.some(
      (name) => file === `./unit/${name}.test.mjs` || file === `./${name}.test.mjs` || (name === 'unit' && file.startsWith('./unit/')),
    ),
);
if (chosen.length === 0) {
  throw new Error(`no such test; there are ${found.map((file) => basename(file, '.test.mjs')).join(', ')}`);
}
for (const file of chosen) {
  await import(file);
}
