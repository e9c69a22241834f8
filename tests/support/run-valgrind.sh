#!/bin/bash
# run-valgrind.sh FOLDER runs FOLDER/unit-tests-forked under valgrind. Each test has a process of its
# own. It writes a file, and any error in a file is a failure.
set -uo pipefail

folder=$(realpath "$1")
rm -rf "$folder/valgrind"
mkdir -p "$folder/valgrind"

status=0
# The suites laws and overflow draw many calls, which take minutes under valgrind. They run
# under ASan instead, and so do the suites of stored layers, because valgrind does not know openat2().
# valgrind does not know AVX-512 either, so OpenBLAS must not choose it. BXFI_MAP keeps the first process
# from choosing kernels, which some tests choose themselves.
BXFI_MAP=forked OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 TEST_DIVISOR=100 TEST_PATIENCE=10 valgrind -q --trace-children=yes \
    --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --log-file="$folder/valgrind/%p.log" "$folder/unit-tests-forked" laws overflow 'layers_*' stored || status=$?

errors=$(find "$folder/valgrind" -name '*.log' -size +0 | wc -l)
find "$folder/valgrind" -name '*.log' -size +0 -exec cat {} +
echo "$errors processes with errors under valgrind"
[ $status = 0 ] && [ "$errors" = 0 ]
