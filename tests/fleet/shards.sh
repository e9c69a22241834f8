#!/bin/bash
# shards.sh FOLDER [KEYS] tests the examples dask_shards.py and ray_shards.py with $ATTENTIOND_BIN (FOLDER/attentiond if it is
# not set). The first run downloads the packages into build/shards. The test makes four machines of one: each has a
# network of its own. All of its processes end with it.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: shards.sh FOLDER [KEYS]}")
shift
work=$(realpath "$here/../..")/build/shards
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here
# OpenBLAS of the daemon would take the kernels that this names.
unset OPENBLAS_CORETYPE

"$here/../support/venv.sh" "$work/venv" "$here/shards.txt"
# Who is not root becomes root of a namespace of users.
[ "$(id -u)" = 0 ] && private=() || private=(--user --map-root-user)
private+=(--net --mount --pid --fork --kill-child --mount-proc)
unshare "${private[@]}" true || { echo "shards.sh: this system allows no namespaces; run it as root" >&2; exit 1; }
trap 'rm -f "$work"/data/*.npy' EXIT
unshare "${private[@]}" "$work/venv/bin/python" "$here/test_shards.py" "$work/data" "$@"
