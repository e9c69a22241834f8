#!/bin/bash
# run-valgrind.sh FOLDER runs FOLDER/unit-tests under valgrind. Criterion runs each test in a process
# of its own and does not look at its exit status after the test, so each process writes a
# file and any error in any file is a failure.
set -uo pipefail

folder=$(realpath "$1")
rm -rf "$folder/valgrind"
mkdir -p "$folder/valgrind"

status=0
# The laws of attention draw thousands of calls: they take minutes here, and run under ASan.
# valgrind knows no AVX-512, which OpenBLAS would choose on a CPU that has it.
OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 TEST_DIVISOR=100 valgrind -q --trace-children=yes \
    --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --log-file="$folder/valgrind/%p.log" "$folder/unit-tests" --filter='!(laws|overflow)/*' || status=$?

errors=$(find "$folder/valgrind" -name '*.log' -size +0 | wc -l)
find "$folder/valgrind" -name '*.log' -size +0 -exec cat {} +
echo "$errors processes with errors under valgrind"
[ $status = 0 ] && [ "$errors" = 0 ]
