#!/bin/bash
# run.sh FOLDER SECONDS TARGET... runs libFuzzer for SECONDS on each TARGET. It starts from the
# target's corpus and from drawn calls. New inputs go to FOLDER/found/TARGET, and an input that fails goes to
# FOLDER/failed-TARGET-*. This adds the fewest new inputs that have the same coverage to the corpus:
#     FOLDER/fuzz_TARGET -merge=1 tests/fuzz/corpus/TARGET FOLDER/found/TARGET
set -euo pipefail

folder=$1 seconds=$2
export OPENBLAS_NUM_THREADS=1
python3 - "$folder/table.json" >"$folder/words.dict" <<'END' # the keys, the choices and the samples of the table
import json, sys
for row in json.load(open(sys.argv[1]))["fields"]:
    words = [f'"{row["key"]}":', *(f'"{choice}"' for choice in row["choices"]), *row["sample"].split("|")]
    for word in filter(str.isascii, filter(None, words)):
        print(json.dumps(word))
END
for target in "${@:3}"; do
    echo "== fuzz_$target, $seconds s"
    found=$folder/found/$target dict=json
    mkdir -p "$found"
    case $target in
    framing) dict=http ;;
    inference | safetensors) dict=tensors ;;
    esac
    cat "$folder/words.dict" "tests/fuzz/$dict.dict" >"$folder/$target.dict"
    "$folder/fuzz_$target" -max_total_time="$seconds" -dict="$folder/$target.dict" -max_len=4096 \
        -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$folder/failed-$target-" "$found" "tests/fuzz/corpus/$target" "$folder/seeds/$target"
done
