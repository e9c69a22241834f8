#!/bin/bash
# run.sh FOLDER [ARGUMENT...] runs Schemathesis on $ATTENTIOND_BIN (FOLDER/attentiond if it is not set).
# Schemathesis makes good and bad requests from openapi.yaml, and checks every answer against it. The
# first run downloads it into the virtual environment FOLDER/venv-openapi. The other arguments go to
# `schemathesis run`, such as -n 1000, --seed 2 or --include-path /softmax.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-openapi
"$here/../support/venv.sh" "$venv" "$here/requirements.txt"

export HYPOTHESIS_STORAGE_DIRECTORY=$venv/hypothesis
export ATTENTIOND_KEY=a-key-for-schemathesis # schemathesis.toml reads it
echo "$ATTENTIOND_KEY" >"$venv/keys"
layers=$(mktemp -d)
cp "$here/../data/layers/small.safetensors" "$here/../../server/models/story.safetensors" "$layers"
coproc DAEMON { exec "${ATTENTIOND_BIN:-$folder/attentiond}" --port 0 --api-key-file "$venv/keys" \
    --layers "$layers"; }
daemon=$DAEMON_PID
trap 'kill "$daemon" 2>/dev/null || true; rm -rf "$layers"' EXIT
read -r line <&"${DAEMON[0]}"
# The pages have the names of the files under /assets. hooks.py asks for one of these files.
ATTENTIOND_ASSET=$("$venv/bin/python" -c 'import re, sys, urllib.request
page = urllib.request.urlopen(sys.argv[1]).read().decode()
print(re.search("\"assets/([^\"]+)\"", page)[1])' "${line##* }/docs")
export ATTENTIOND_ASSET
cd "$here"
PYTHONPATH=$here "$venv/bin/schemathesis" --config-file schemathesis.toml run --url "${line##* }" ../../openapi.yaml "$@"

kill "$daemon"
wait "$daemon" # the script fails here if the daemon has crashed or its exit status is not 0
