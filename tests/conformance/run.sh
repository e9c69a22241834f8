#!/bin/bash
# run.sh FOLDER [ARGUMENT...] sends the test cases of ONNX's Attention and RotaryEmbedding to $ATTENTIOND_BIN, or to
# FOLDER/attentiond if that is not set. The first run downloads their package into the virtual
# environment FOLDER/venv-conformance. The other arguments go to onnx_cases.py.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-conformance
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond}

"$here/../support/venv.sh" "$venv" "$here/requirements.txt"
exec "$venv/bin/python" "$here/onnx_cases.py" "$@"
