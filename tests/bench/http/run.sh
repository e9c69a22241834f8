#!/bin/bash
# run.sh FOLDER [ARGUMENT...] measures FOLDER/attentiond over HTTP beside its peers. The first run
# downloads their packages, some 500 MB, into FOLDER/venv-http (PyPI) and FOLDER/node-http (npm).
# $HTTP_PEERS_PYTHON names a Python that has the packages already, and $HTTP_KSERVE_PYTHON one that
# has KServe. The other arguments go to run.py, whose --help lists them.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-http node=$folder/node-http
# These variables would choose OpenBLAS's kernels for us and for NumPy.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE

# The capacity of one core, and the instructions of a request, are measured without the peers.
case " $* " in *" --capacity "* | *" --instructions "*) exec /usr/bin/python3 "$here/run.py" --folder "$folder" "$@" ;; esac

# The copies of the requirements are written last, so a broken installation is made again.
install() { # FOLDER REQUIREMENTS WHAT
    cmp -s "$2" "$1/installed.txt" && return
    rm -rf "$1"
    /usr/bin/python3 -m venv "$1" || { rm -rf "$1" && python3 -m venv "$1"; }
    echo "Installing $3 into $1"
    "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
    cp "$2" "$1/installed.txt"
}
python=${HTTP_PEERS_PYTHON:-$venv/bin/python}
kserve=${HTTP_KSERVE_PYTHON:-$folder/venv-kserve/bin/python}
if [ -z "${HTTP_PEERS_PYTHON:-}" ]; then
    install "$venv" "$here/peers/requirements.txt" "FastAPI, uvicorn, orjson, NumPy, onnx"
fi
if [ -z "${HTTP_KSERVE_PYTHON:-}" ]; then
    install "$folder/venv-kserve" "$here/../../clients/stock/requirements-kserve.txt" "KServe"
fi

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
exec /usr/bin/python3 "$here/run.py" --folder "$folder" --python "$python" --kserve "$kserve" --node "$node" "$@"
