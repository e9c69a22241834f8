#!/bin/bash
# run.sh FOLDER [ARGUMENT...] measures FOLDER/bench_attention beside its peers. The first run downloads
# their packages from PyPI into the virtual environment FOLDER/venv-peers. These are some 6 GB,
# because PyTorch's wheel depends on CUDA's libraries. $PEERS_PYTHON names a Python that has the
# packages already. The other arguments go to peers.py, whose --help lists them.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-peers
# This variable would choose OpenBLAS's kernels for us and for NumPy.
unset OPENBLAS_CORETYPE

if [ -z "${PEERS_PYTHON:-}" ]; then
    "$here/../../support/venv.sh" "$venv" "$here/requirements.txt"
fi
exec "${PEERS_PYTHON:-$venv/bin/python}" "$here/peers.py" --bench "$folder/bench_attention" "$@"
