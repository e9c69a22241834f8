#!/bin/bash
# test-container.sh [trixie|bookworm] builds the image and runs it as a careful operator would, with a
# read-only root, without capabilities and with 512 MB. It uses Docker if Docker's daemon answers.
# Otherwise it installs podman and uses that. Podman's images stay in build/container/ as a cache.
# Everything else is removed.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:-trixie}
image=localhost/attentiond:test-$suite
name=attentiond-test-$$
say() { echo "test-container: $*"; }
# shellcheck source=docker/engine.sh
. docker/engine.sh

fail() {
    say "$*" >&2
    engine logs "$name" >&2 2>/dev/null || true
    exit 1
}

clean_up() {
    engine rm -f "$name" >/dev/null 2>&1 || true
    engine rmi -f "$image" >/dev/null 2>&1 || true
    remove_work
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# ---- the image

find_base "$suite"
say "building from $base"
engine build -q "${build_flags[@]}" --build-arg BASE="$base" -f docker/Dockerfile -t "$image" . >"$work/build" 2>&1 ||
    { cat "$work/build" >&2; fail "the build fails"; }

size=$(($(field "$image" '{{.Size}}') / 1000000))
[ $size -le 80 ] || fail "the image has $size MB, more than 80"
[ "$(field "$image" '{{.Config.User}}')" = 65532:65532 ] || fail "the user is not 65532:65532"
engine create --name "$name" "$image" >/dev/null
engine export "$name" | tar t >"$work/files"
engine rm -f "$name" >/dev/null
if grep -E '(^|/)(sh|bash|dash|busybox|apt|apt-get|dpkg|perl|python3?)$' "$work/files"; then
    fail "the image holds programs beside the daemon"
fi
say "$suite: $size MB, $(grep -c '\.so' "$work/files") libraries, user 65532, no shell"

# ---- the container

# The container uses the host's network, so that podman needs no bridge. A daemon that listens only
# on 127.0.0.1 does not answer at 127.0.0.2.
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
url=http://127.0.0.2:$port
engine run -d --name "$name" --network=host --read-only --cap-drop=ALL --security-opt=no-new-privileges \
    --memory=512m --pids-limit=64 -v "$PWD/tests/data/layers:/mnt/models:ro" -e ATTENTIOND_PORT="$port" \
    "${run_flags[@]}" "$image" >"$work/run.log" 2>&1 ||
    { cat "$work/run.log" >&2; fail "the container does not start"; }

for try in {1..100}; do
    curl -fs -o /dev/null "$url/health/ready" && break
    [ "$(field "$name" '{{.State.Running}}')" = true ] || fail "the container ended by itself"
    [ "$try" -lt 100 ] || fail "no answer at $url within 10 s"
    sleep 0.1
done
say "ready; $(curl -fs "$url/version")"
{ curl -fs -o "$work/page" "$url/" && grep -q '"assets/main-' "$work/page"; } || fail "there is no page at /"
/usr/bin/python3 docker/try-notebooks.py "$url" || fail "wrong answers"
curl -fs "$url/layers/small.attention/attention" -d '{"X": [[1, 0, 2, 0]]}' | grep -q '"weights"' ||
    fail "/mnt/models has no layer"

if [ "${engine[0]}" = docker ]; then
    for _ in {1..60}; do # Docker itself runs the check every 10 s
        health=$(field "$name" '{{.State.Health.Status}}')
        [ "$health" = starting ] || break
        sleep 0.5
    done
    [ "$health" = healthy ] || fail "HEALTHCHECK: $health"
else
    engine healthcheck run "$name" || fail "HEALTHCHECK fails"
fi

engine stop -t 10 "$name" >/dev/null
status=$(field "$name" '{{.State.ExitCode}}')
[ "$status" = 0 ] || fail "the status after SIGTERM is $status"
say "HEALTHCHECK passes; SIGTERM: status 0; all well"
