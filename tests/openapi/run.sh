#!/bin/bash
# run.sh FOLDER [ARGUMENT...] runs Schemathesis on $ATTENTIOND_BIN (FOLDER/attentiond if it is not set):
# requests made from openapi.yaml, good and bad ones, and every answer held to it. It goes into the
# virtual environment FOLDER/venv-openapi, from the network the first time only. Further arguments are
# those of `schemathesis run`: -n 1000, --seed 2, --include-path /softmax.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-openapi
"$here/../support/venv.sh" "$venv" "$here/requirements.txt"

export HYPOTHESIS_STORAGE_DIRECTORY=$venv/hypothesis
export ATTENTIOND_KEY=a-key-for-schemathesis # for schemathesis.toml
echo "$ATTENTIOND_KEY" >"$venv/keys"
coproc DAEMON { exec "${ATTENTIOND_BIN:-$folder/attentiond}" --port 0 --api-key-file "$venv/keys"; }
daemon=$DAEMON_PID
trap 'kill "$daemon" 2>/dev/null || true' EXIT
read -r line <&"${DAEMON[0]}"
# Which files there are under /assets, the pages know: hooks.py asks for one of them.
ATTENTIOND_ASSET=$("$venv/bin/python" -c 'import re, sys, urllib.request
page = urllib.request.urlopen(sys.argv[1]).read().decode()
print(re.search("\"assets/([^\"]+)\"", page)[1])' "${line##* }/docs")
export ATTENTIOND_ASSET
cd "$here"
"$venv/bin/schemathesis" --config-file schemathesis.toml run --url "${line##* }" ../../openapi.yaml "$@"

kill "$daemon"
wait "$daemon" # 0: it has lived through all that and ended as it should
