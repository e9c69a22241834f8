#!/bin/bash
# run.sh FOLDER [ARGUMENT...] gives the arguments to search.py. The daemon is $ATTENTIOND_BIN, or FOLDER/attentiond if that
# is not set. The first run downloads NumPy into build/verdicts.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$(realpath "$here/../..")/build/verdicts
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond} OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1

"$here/../support/venv.sh" "$venv" "$here/requirements.txt"
exec "$venv/bin/python" "$here/search.py" "$@"
