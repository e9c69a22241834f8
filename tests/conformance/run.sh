#!/bin/bash
# run.sh FOLDER [ARGUMENT...] sends the test cases of ONNX's operators of attention to $ATTENTIOND_BIN, or to
# FOLDER/attentiond if that is not set, then calls that onnxruntime computes, too, then PyTorch's samples of attention
# and softmax, then the backward tests of flash-attention and xformers, then calls in half precision, and then calls of
# linear attention and its relatives that functions of flash-linear-attention and transformers compute, too. The first
# run downloads their packages into the virtual environments FOLDER/venv-conformance and build/models, and into
# FOLDER/packages. Other arguments go to onnx_cases.py, which then runs alone.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
folder=$(realpath "${1:?usage: run.sh FOLDER}")
shift
venv=$folder/venv-conformance
export ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond}

"$here/../support/venv.sh" "$venv" "$here/requirements.txt"
"$venv/bin/python" "$here/onnx_cases.py" "$@"
[ $# = 0 ] || exit 0
"$venv/bin/python" "$here/onnxruntime_cases.py"
"$here/../models/run.sh" "$folder" ../conformance/torch_cases.py
"$here/../models/run.sh" "$folder" ../conformance/kernel_cases.py "$folder/packages"
"$here/../models/run.sh" "$folder" ../conformance/half_cases.py
"$here/../models/run.sh" "$folder" ../conformance/linear_cases.py "$folder/packages"
