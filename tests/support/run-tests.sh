#!/bin/bash
# run-tests.sh FOLDER runs the test programs built in FOLDER (build/release, build/asan, ...) and
# checks the recorded HTTP exchanges against openapi.yaml. The status is 0 only if everything passes.
# The last lines have the names of what failed, and the sums. The daemon's log is printed only if the program or the check that
# caused it fails.
# Criterion passes a test whose process leaked or was reported by a sanitizer after the last
# assertion. So the sanitizers write files, and any file is a failure.
# OpenBLAS takes the kernels that suit this CPU, even if the environment asks for others. On a CPU
# with AVX-512, calls are cut in another way. There, the suites that compute run once more as on a CPU
# without AVX-512.
# Many tests wait for a deadline of the server. So more of them run at the same time than there are
# cores, and the two programs run beside each other. The short checks run beside them, one after the
# other. Only the check of the recorded exchanges waits for the tests that record them. Each of all
# these is reported later.
set -uo pipefail

folder=$(realpath "$1")
rm -rf "$folder"/{exchanges,sanitizer} "$folder"/*-tests*.xml
mkdir -p "$folder"/{exchanges,sanitizer}

unset OPENBLAS_CORETYPE
export ATTENTIOND_BIN=$folder/attentiond
export ASAN_OPTIONS=log_path=$folder/sanitizer/report
export UBSAN_OPTIONS=log_path=$folder/sanitizer/report:print_stacktrace=1

passed=0 failed=0 skipped=0 names=() short=()
jobs=$((2 * $(nproc)))
beside=$(mktemp -d)
node=$(command -v node)
declare -A started
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$beside"' EXIT

without_log() { # FILE: prints a file without the lines of the daemon's log, which may begin with a time
    grep -vE '^([^ ]+ )?attentiond: ' "$1"
}

output_of() { # NAME: prints the name of the file with the output of a check
    echo "$beside/${1//[ \/]/-}"
}

begin_check() { # NAME COMMAND...: starts a check that runs beside what follows
    "${@:2}" >"$(output_of "$1")" 2>"$(output_of "$1").log" &
    started[$1]=$!
}

in_turn() { # COMMAND...: runs a command while no other one of in_turn runs
    (flock 9 && "$@" 9>&-) 9>"$beside/turn"
}

begin_short() { # NAME COMMAND...: starts a check that takes its turn with other short ones
    begin_check "$1" in_turn "${@:2}"
    short+=("$1")
}

report_of() { # NAME: waits for a check that was begun, and prints its output
    local status=0
    wait "${started[$1]}" || status=$?
    cat "$(output_of "$1")"
    cat "$(output_of "$1").log" >&2
    return $status
}

begin_criterion() { # NAME REPORT [SUITE...]: starts a program, or these suites of it
    local suites
    suites=$(IFS='|' && echo "${*:3}")
    begin_check "$2" "$folder/$1" --jobs=$jobs --xml="$folder/$2.xml" ${suites:+--filter="@($suites)/*"}
}

end_criterion() { # REPORT [SUITE...]: waits for such a program, and adds its results to the sums
    local status=0 sums=() suites
    suites=$(IFS='|' && echo "${*:2}")
    echo "== $1${suites:+: $suites}"
    report_of "$1" 2>"$folder/$1.txt" || status=$?
    if [ $status = 0 ]; then without_log "$folder/$1.txt"; else cat "$folder/$1.txt"; fi
    # The failures include crashed tests. The disabled tests are skipped tests and those of other suites.
    read -ra sums < <(awk -F'"' -v suites="^(${suites:-.*})\$" '
        $1 ~ /<testsuite name=/ && $2 ~ suites { tests += $4; failures += $6; disabled += $10 }
        END { print tests + 0, failures + 0, disabled + 0 }' "$folder/$1.xml")
    if [ ${#sums[@]} != 3 ] || [ "${sums[0]}" = 0 ]; then
        fail "$1: no tests ran (status $status)"
        return
    fi
    passed=$((passed + sums[0] - sums[1] - sums[2]))
    failed=$((failed + sums[1]))
    mapfile -t -O ${#names[@]} names < <(awk -F'"' '
        $1 ~ /<testsuite name=/ { suite = $2 }
        $1 ~ /<testcase name=/ && $6 ~ /^(FAILED|ERRORED)/ { print suite "::" $2 }' "$folder/$1.xml")
    skipped=$((skipped + sums[2]))
    if [ $status != 0 ] && [ "${sums[1]}" = 0 ]; then
        fail "$1: ended with status $status"
    fi
}

fail() { # TEXT: counts a failure that is no failed test
    echo "$1"
    names+=("$1")
    failed=$((failed + 1))
}

run_check() { # NAME COMMAND...: runs a check, which counts as one test
    echo "== $1"
    if "${@:2}" 2>"$beside/log"; then
        without_log "$beside/log"
        passed=$((passed + 1))
    else
        cat "$beside/log"
        fail "$1: failed"
    fi
}

end_checks() { # NAME...: reports checks that were begun
    local name
    for name in "$@"; do
        run_check "$name" report_of "$name"
    done
}

no_memory() { # prints only the last line, because the server logs a line for each failure
    local status=0
    "$folder/no-memory" 2>"$folder/no-memory.txt" | tail -n 1 || status=$?
    without_log "$folder/no-memory.txt" | head -n 40
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

blas_core() {
    "$folder/unit-tests" --list 2>&1 | sed -nE 's/^OpenBLAS core ([^,]+),.*/\1/p'
}

page_modules() { # tests the modules of the pages that need no browser. A loop without end is ended after 20 s of CPU time.
    local status=0 report=$folder/page-modules.txt
    (ulimit -t 20 && exec node --test-reporter=spec tests/browser/all.mjs unit) >"$report" 2>&1 || status=$?
    if [ $status = 0 ]; then grep ' tests [0-9]' "$report"; else tail -n 60 "$report"; fi
    [ $status -lt 128 ] || echo "the test after the last one here does not end"
    return $status
}

replay() { # TARGET: runs the corpus of a fuzz target
    OPENBLAS_NUM_THREADS=1 "$folder/replay_$1" "tests/fuzz/corpus/$1" "$folder/seeds/$1"
}

begin_criterion unit-tests unit-tests
TEST_RECORD=$folder/exchanges begin_criterion api-tests api-tests
begin_short "every allocation fails in turn" no_memory
[ -z "$node" ] || begin_short "the modules of the pages" page_modules
for program in "$folder"/replay_*; do
    [ -x "$program" ] || continue
    begin_short "corpus of the fuzz target ${program##*/replay_}" replay "${program##*/replay_}"
done
# This is Debian's own Python, because the modules come from its packages.
begin_short "Grafana's dashboard against the metrics" \
    /usr/bin/python3 tests/support/check-dashboard.py docker/grafana-dashboard.json --daemon "$folder/attentiond"
begin_short "the page /docs and llms.txt against openapi.yaml" /usr/bin/python3 server/explorer/docs.py --check
begin_short "the options in the documents" /usr/bin/python3 tests/api/check_options.py --daemon "$folder/attentiond"
begin_short "whether a port is taken" /usr/bin/python3 tests/api/check_port.py
begin_short "the names of other libraries" /usr/bin/python3 tests/api/check_libraries.py --daemon "$folder/attentiond"
begin_short "the trained model" /usr/bin/python3 tests/models/check_story.py --daemon "$folder/attentiond"
# A program that uses the library is linked without a sanitizer.
library=()
[ "${folder##*/}" != release ] || library=(--library "$folder/libattention.a")
begin_short "links, commands and answers in the documents" \
    /usr/bin/python3 tests/api/check_documents.py --daemon "$folder/attentiond" "${library[@]}"
end_criterion unit-tests
again=()
if [ "$(blas_core)" != Haswell ] && [ "$(OPENBLAS_CORETYPE=Haswell blas_core)" = Haswell ]; then
    again=(attention engine laws overflow)
    OPENBLAS_CORETYPE=Haswell ATTENTION_ISA=avx2 begin_criterion unit-tests unit-tests-again "${again[@]}"
fi
end_criterion api-tests
begin_check "openapi.yaml against the routes and the recorded exchanges" \
    /usr/bin/python3 tests/api/check_openapi.py openapi.yaml --table "$folder/table.json" --exchanges "$folder/exchanges" \
    --daemon "$folder/attentiond"
[ ${#again[@]} = 0 ] || end_criterion unit-tests-again "${again[@]}"
end_checks "${short[@]}" "openapi.yaml against the routes and the recorded exchanges"
[ "${folder##*/}" != asan ] || run_check "no sanitizer report" no_sanitizer_report

[ $failed = 0 ] || printf 'failed: %s\n' "${names[@]}"
[ $skipped = 0 ] || echo "$skipped skipped"
[ -n "$node" ] || echo "left out: the modules of the pages, because there is no Node.js"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
