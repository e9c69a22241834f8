#!/bin/bash
# shards.sh FOLDER [KEYS] tests dask_shards.py and ray_shards.py with $ATTENTIOND_BIN, or FOLDER/attentiond if that is
# not set. The first run downloads the packages into build/shards. With fewer KEYS it is quicker.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: shards.sh FOLDER [KEYS]}")
shift
work=$(realpath "$here/../..")/build/shards
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond}
# The workers of the engines import the examples from here.
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
# OpenBLAS of the daemon would take the kernels that this names.
unset OPENBLAS_CORETYPE

"$here/../support/venv.sh" "$work/venv" "$here/shards.txt"
# A user who is not root becomes root of a namespace of users.
private=(unshare --net --mount --pid --fork --kill-child --mount-proc)
[ "$(id -u)" = 0 ] || private+=(--user --map-root-user)
"${private[@]}" true || { echo "shards.sh: this system lets only root make namespaces" >&2; exit 1; }
rm -rf "$work/run"
mkdir "$work/run"
trap 'rm -f "$work"/run/*.npy' EXIT
timeout 1800 "${private[@]}" "$work/venv/bin/python" "$here/test_shards.py" "$work/run" "$@" ||
    { echo "shards.sh: the test failed; the logs of the daemons and of the engines are in $work/run" >&2; exit 1; }
