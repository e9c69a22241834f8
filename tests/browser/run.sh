#!/bin/bash
# run.sh FOLDER [NAME...] tests the explorer of $ATTENTIOND_BIN, or of FOLDER/attentiond, in a browser. With NAMEs, it
# runs only the files NAME.test.mjs. $BROWSER names a Chromium other than Debian's. The first run installs packages from
# npm in FOLDER/node-browser. Screenshots go to build/browser. With STRICT=yes, the tests also assert times, which depend
# on the machine.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER [NAME...]}")
shift
node=$folder/node-browser
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond}
export BROWSER=${BROWSER:-/usr/bin/chromium}
export BROWSER_PACKAGES=$node BROWSER_PICTURES=$here/../../build/browser
mkdir -p "$BROWSER_PICTURES"

# The copy of the lock file is written last. So an installation that was interrupted is repeated.
if ! cmp -s "$here/package-lock.json" "$node/installed.json"; then
    rm -rf "$node"
    mkdir -p "$node"
    cp "$here"/package*.json "$here/.npmrc" "$node"
    (cd "$node" && npm ci --no-audit --no-fund --loglevel=error)
    cp "$here/package-lock.json" "$node/installed.json"
fi
exec node --test-reporter=spec "$here/all.mjs" "$@"
