#!/bin/bash
# run.sh FOLDER [ARGUMENT...] measures FOLDER/attentiond over HTTP beside its peers. The first run
# downloads their packages, some 500 MB, into FOLDER/venv-http (PyPI) and FOLDER/node-http (npm).
# $HTTP_PEERS_PYTHON names a Python that has the packages already. The other arguments go to run.py,
# whose --help lists them.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-http node=$folder/node-http
# These variables would choose OpenBLAS's kernels for us and for NumPy.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE

# The copies of the requirements are written last, so a broken installation is made again.
if [ -z "${HTTP_PEERS_PYTHON:-}" ] && ! cmp -s "$here/peers/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv" || { rm -rf "$venv" && python3 -m venv "$venv"; }
    echo "Installing FastAPI, uvicorn, orjson, NumPy, onnx into $venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/peers/requirements.txt"
    cp "$here/peers/requirements.txt" "$venv/installed.txt"
fi
python=${HTTP_PEERS_PYTHON:-$venv/bin/python}

# The install script of onnxruntime-node would only download CUDA's libraries.
if ! cmp -s "$here/peers/package-lock.json" "$node/installed.json"; then
    rm -rf "$node"
    mkdir -p "$node"
    cp "$here"/peers/package*.json "$node"
    echo "Installing onnxruntime-node into $node"
    (cd "$node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    cp "$here/peers/package-lock.json" "$node/installed.json"
fi
"$python" "$here/peers/make_model.py" "$node/attention.onnx"
exec /usr/bin/python3 "$here/run.py" --folder "$folder" --python "$python" --node "$node" "$@"
