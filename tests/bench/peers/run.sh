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

# The copy of the requirements is written last, so a broken installation is made anew.
if [ -z "${PEERS_PYTHON:-}" ] && ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv" || { rm -rf "$venv" && python3 -m venv "$venv"; }
    echo "Installing PyTorch, onnxruntime, OpenVINO, NumPy into $venv: some 6 GB"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/installed.txt"
fi
exec "${PEERS_PYTHON:-$venv/bin/python}" "$here/peers.py" --bench "$folder/bench_attention" "$@"
