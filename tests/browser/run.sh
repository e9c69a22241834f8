#!/bin/bash
# run.sh FOLDER [NAME...] tries the explorer of $ATTENTIOND_BIN (FOLDER/attentiond if it is not set) in a browser. NAMEs limit
# it to these files *.test.mjs. $BROWSER names a Chromium other than Debian's. The packages go to FOLDER/node-browser, from npm
# the first time only; screenshots to build/browser. With STRICT=yes it also asserts what depends on the machine's speed.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER [NAME...]}")
shift
node=$folder/node-browser
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond}
export BROWSER=${BROWSER:-/usr/bin/chromium}
export BROWSER_PACKAGES=$node BROWSER_PICTURES=$here/../../build/browser
mkdir -p "$BROWSER_PICTURES"

# The copy of the lock is written last, so a broken installation is made anew.
if ! cmp -s "$here/package-lock.json" "$node/installed.json"; then
    rm -rf "$node"
    mkdir -p "$node"
    cp "$here"/package*.json "$here/.npmrc" "$node"
    (cd "$node" && npm ci --no-audit --no-fund --loglevel=error)
    cp "$here/package-lock.json" "$node/installed.json"
fi
exec node --test-reporter=spec "$here/all.mjs" "$@"
