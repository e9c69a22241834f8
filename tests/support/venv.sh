#!/bin/bash
# venv.sh FOLDER REQUIREMENTS [OPTION...] makes a virtual environment of Python in FOLDER, with the packages from
# PyPI that the file REQUIREMENTS lists. pip gets the options. If FOLDER has the packages already, it needs no network.
# Two tests may share FOLDER: the second one waits until the first one has made it. $VENVS names a folder that outlives
# build/. Then FOLDER is a link to an environment there, and only the first checkout downloads the packages.
set -euo pipefail

venv=${1:?usage: venv.sh FOLDER REQUIREMENTS [OPTION...]}
requirements=${2:?usage: venv.sh FOLDER REQUIREMENTS [OPTION...]}
shift 2
mkdir -p "$(dirname "$venv")"
if [ -n "${VENVS:-}" ]; then
    build=$(realpath "$(dirname "$0")/../../build")
    name=$(realpath --no-symlinks --relative-to="$build" "$venv")
    kept=$VENVS/$(/usr/bin/python3 -c 'import platform; print(platform.python_version())')-${name//\//-}
    mkdir -p "$kept"
    [ -e "$venv" ] || [ -L "$venv" ] || ln -sn "$kept" "$venv" || [ -L "$venv" ]
    venv=$(realpath --canonicalize-missing "$venv")
fi
exec 9>"$venv.lock"
flock 9

# The copy of the requirements is written last, so a broken installation is made again.
cmp -s "$requirements" "$venv/installed.txt" && exit
rm -rf "$venv"
/usr/bin/python3 -m venv "$venv" || { rm -rf "$venv" && python3 -m venv "$venv"; }
"$venv/bin/pip" install --quiet --disable-pip-version-check "$@" -r "$requirements"
cp "$requirements" "$venv/installed.txt"
