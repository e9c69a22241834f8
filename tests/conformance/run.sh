#!/bin/bash
# run.sh FOLDER [ARGUMENT...] asks $ATTENTIOND_BIN (FOLDER/attentiond if it is not set) the test
# cases of ONNX's Attention. Their package goes into the virtual environment FOLDER/venv-conformance,
# from the network the first time only. Further arguments are the script's.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-conformance
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond}

"$here/../support/venv.sh" "$venv" "$here/requirements.txt"
exec "$venv/bin/python" "$here/onnx_attention.py" "$@"
