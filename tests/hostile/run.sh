#!/bin/bash
# run.sh NAME... runs these hostile tests one after the other. Each is a Python program beside this file. The status is 1
# if one fails. The tests measure times, so the machine should have nothing else to do.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

export PYTHONDONTWRITEBYTECODE=1
failed=
for name in "$@"; do
    echo "==== $name"
    timeout "$((${MINUTES:-10} * 60 + 3600))" python3 "tests/hostile/$name.py" || failed="$failed $name"
done
[ -z "$failed" ] || { echo "Failed:$failed" >&2; exit 1; }
