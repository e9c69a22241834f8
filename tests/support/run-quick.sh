#!/bin/bash
# run-quick.sh FOLDER runs the tests that a change is likely to break, with the programs built in FOLDER. The folders of
# the files that differ from the branch main choose the suites of the unit tests; on main itself, these are the files
# that differ from the last commit. BASE names another commit. The tests of the API always run, except the seven suites
# that take the longest. Tests that draw calls draw a tenth of them. `make test` runs everything.
set -uo pipefail

folder=$(realpath "$1")
unset OPENBLAS_CORETYPE
export ATTENTIOND_BIN=$folder/attentiond TEST_DIVISOR=10
base=${BASE:-$(git merge-base HEAD main 2>/dev/null || echo HEAD)}

# Each folder with code has suites of its own. The library has all those of no other folder.
declare -A suites=([codec]='codec_*' [http]='http_*' [layers]='layers_*|stored' [jobs]='jobs' [api]='api|comparison|metrics'
    [server]='account|limits|options')
others=$(IFS='|' && echo "${suites[*]}")
filters=() names=()

choose() { # NAME: adds the suites of a folder
    case " ${names[*]} " in *" $1 "*) return ;; esac
    names+=("$1")
    if [ "$1" = lib ]; then filters+=("!($others)"); else filters+=("${suites[$1]}"); fi
}

while read -r file; do
    case $file in
    server/codec/* | tests/unit/*codec*) choose codec ;;
    server/http/* | tests/unit/*http_*) choose http ;;
    server/layers/* | tests/unit/*layer* | tests/unit/test_stored.c) choose layers ;;
    server/jobs/* | tests/unit/test_jobs.c) choose jobs ;;
    server/api/* | tests/unit/test_api.c | tests/unit/test_comparison.c | tests/unit/test_metrics.c) choose api ;;
    server/*.[ch] | tests/unit/test_account.c | tests/unit/test_process.c | tests/unit/test_options.c) choose server ;;
    lib/*.[ch] | lib/*.inc | tests/unit/*) choose lib ;;
    esac
done < <(git diff --name-only "$base" && git ls-files --others --exclude-standard)

status=0
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
run() { # PROGRAM FILTER: runs these suites of a program, and keeps its output
    "$folder/$1" --jobs=$((2 * $(nproc))) --filter="$2/*" >"$log/$1" 2>&1
}
run api-tests '!(comparison_of_threads|drawn|excluded|extremes|same_bytes|truncation|verdicts)' &
api=$!
if [ ${#names[@]} = 0 ]; then
    echo "== unit-tests: none, because no file of lib, server or tests/unit differs from $(git describe --always --all "$base")"
else
    echo "== unit-tests: suites of ${names[*]}"
    run unit-tests "@($(IFS='|' && echo "${filters[*]}"))" || status=1
    if [ $status = 0 ]; then tail -n 1 "$log/unit-tests"; else cat "$log/unit-tests"; fi
fi
echo "== api-tests"
if wait "$api"; then tail -n 1 "$log/api-tests"; else cat "$log/api-tests" && status=1; fi
exit $status
