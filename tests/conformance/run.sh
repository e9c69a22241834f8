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

# The copy of the requirements is written last, so a broken installation is made anew.
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv" || { rm -rf "$venv" && python3 -m venv "$venv"; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/installed.txt"
fi
exec "$venv/bin/python" "$here/onnx_attention.py" "$@"
