#!/bin/sh
# build.sh FOLDER makes in FOLDER what the daemon serves to browsers (see build.mjs). npm works on a copy in
# build/explorer, so that nothing of its own comes into the tree; it needs the network the first time, and
# when package-lock.json has changed. Without npm, Debian's is installed.
set -eu

here=$(realpath "$(dirname "$0")")
root=$here/../..
mkdir -p "$1" "$root/build/explorer"
out=$(realpath "$1")
command -v npm >/dev/null || "$root/docker/packages.sh" page
cd "$root/build/explorer"
rm -rf src
cp -R "$here/src" "$here/build.mjs" "$here/package.json" "$here/package-lock.json" "$here/.npmrc" .
if ! cmp -s package-lock.json node_modules/installed; then
    npm ci --loglevel=error
    cp package-lock.json node_modules/installed
fi
node build.mjs "$out"
