#!/bin/bash
# run-tests.sh FOLDER runs the test programs built in FOLDER (build/release, build/asan, ...) and
# checks the recorded HTTP exchanges against openapi.yaml. Status 0 only if all of it passes. The
# last line is the sum. Criterion passes a test whose process leaked or was reported by a
# sanitizer after the last assertion, so the sanitizers write files and any file is a failure.
set -uo pipefail

folder=$(realpath "$1")
rm -rf "$folder"/{exchanges,sanitizer} "$folder"/*-tests.xml
mkdir -p "$folder"/{exchanges,sanitizer}

export ATTENTIOND_BIN=$folder/attentiond
export ASAN_OPTIONS=log_path=$folder/sanitizer/report
export UBSAN_OPTIONS=log_path=$folder/sanitizer/report:print_stacktrace=1

passed=0 failed=0 skipped=0

run_criterion() { # NAME: runs it and adds its report to the sums
    local report=$folder/$1.xml status=0 sums=()
    echo "== $1"
    "$folder/$1" --xml="$report" || status=$?
    # failures counts crashed tests too; disabled counts the skipped ones
    read -ra sums < <(sed -nE 's/^<testsuites .* tests="([0-9]+)" failures="([0-9]+)" .* disabled="([0-9]+)".*/\1 \2 \3/p' "$report")
    if [ ${#sums[@]} != 3 ] || [ "${sums[0]}" = 0 ]; then
        echo "$1: no tests ran (status $status)"
        failed=$((failed + 1))
        return
    fi
    passed=$((passed + sums[0] - sums[1] - sums[2]))
    failed=$((failed + sums[1]))
    skipped=$((skipped + sums[2]))
    if [ $status != 0 ] && [ "${sums[1]}" = 0 ]; then
        echo "$1: ended with status $status"
        failed=$((failed + 1))
    fi
}

run_check() { # NAME COMMAND...: counts as one test
    echo "== $1"
    if "${@:2}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

no_memory() { # what the server says of each failure is not for the reader
    local status=0
    "$folder/no-memory" 2>"$folder/no-memory.txt" | tail -n 1 || status=$?
    grep -v '^attentiond: ' "$folder/no-memory.txt" | head -n 40
    return $status
}

no_sanitizer_report() {
    local report status=0
    for report in "$folder"/sanitizer/*; do
        [ -s "$report" ] || continue
        cat "$report"
        status=1
    done
    return $status
}

run_criterion unit-tests
ATTENTIOND_RECORD=$folder/exchanges run_criterion api-tests
# Debian's own Python: the modules come from its packages.
run_check "openapi.yaml against the routes and the recorded exchanges" \
    /usr/bin/python3 tests/api/check_openapi.py openapi.yaml --routes "$folder/routes.txt" --exchanges "$folder/exchanges" \
    --daemon "$folder/attentiond"
run_check "every allocation fails in turn" no_memory
case $folder in
*/asan) run_check "no sanitizer report" no_sanitizer_report ;;
esac

[ $skipped = 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
