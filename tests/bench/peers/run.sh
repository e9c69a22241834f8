#!/bin/bash
# run.sh FOLDER [ARGUMENT...] measures FOLDER/bench_attention beside its peers. Their packages go
# into the virtual environment FOLDER/venv-peers, from PyPI, the first time only: some 6 GB, because
# PyTorch's wheel brings CUDA's libraries along. $PEERS_PYTHON names an interpreter that has them
# already. Further arguments are those of peers.py; --help tells them.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-peers
# It would decide the kernels of ours and NumPy's OpenBLAS.
unset OPENBLAS_CORETYPE

if [ -z "${PEERS_PYTHON:-}" ]; then
    "$here/../../support/venv.sh" "$venv" "$here/requirements.txt"
fi
exec "${PEERS_PYTHON:-$venv/bin/python}" "$here/peers.py" --bench "$folder/bench_attention" "$@"
