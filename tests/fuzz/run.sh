#!/bin/bash
# run.sh FOLDER SECONDS TARGET... lets libFuzzer look for inputs, for so many seconds each target,
# from its corpus on. New finds go to FOLDER/found/TARGET, an input that fails to
# FOLDER/failed-TARGET-*. To take the finds over, as few as cover the same:
#     FOLDER/fuzz_TARGET -merge=1 tests/fuzz/corpus/TARGET FOLDER/found/TARGET
set -euo pipefail

folder=$1 seconds=$2
export OPENBLAS_NUM_THREADS=1
for target in "${@:3}"; do
    echo "== fuzz_$target, $seconds s"
    found=$folder/found/$target dict=json
    mkdir -p "$found"
    [ "$target" != framing ] || dict=http
    "$folder/fuzz_$target" -max_total_time="$seconds" -dict="tests/fuzz/$dict.dict" -max_len=4096 \
        -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$folder/failed-$target-" "$found" "tests/fuzz/corpus/$target"
done
