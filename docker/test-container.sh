#!/bin/bash
# test-container.sh [trixie|bookworm [amd64|arm64]] builds the image and runs it as a careful operator
# would, with a read-only root, without capabilities and with 512 MB. If the architecture is not that of
# this machine, the image is cross-built, and an emulator is mounted into its container. The list of the
# image's parts is checked with spdx-tools from PyPI. It uses Docker if Docker's daemon answers. Otherwise
# it installs podman and uses that. Podman's images stay in build/container/ as a cache. Everything else
# is removed.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:-trixie}
native=$(dpkg --print-architecture 2>/dev/null || echo amd64)
arch=${2:-$native}
image=localhost/attentiond:test-$suite-$arch
name=attentiond-test-$$
say() { echo "test-container: $*"; }
# shellcheck source=docker/engine.sh
. docker/engine.sh

# These words begin the daemon's command in the container.
command=(/attentiond) emulator=()
if [ "$arch" != "$native" ]; then
    docker/packages.sh emulator
    machine=aarch64
    [ "$arch" = arm64 ] || machine=x86_64
    command=(/emulator /attentiond)
    emulator=(--entrypoint /emulator -v "/usr/bin/qemu-$machine-static:/emulator:ro")
fi

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
make image ENGINE="${engine[*]}" IMAGE="$image" \
    IMAGE_FLAGS="-q ${build_flags[*]} --platform linux/$arch --build-arg BASE=$base" >"$work/build" 2>&1 ||
    { cat "$work/build" >&2; fail "the build fails"; }

size=$(($(field "$image" '{{.Size}}') / 1000000))
[ $size -le 80 ] || fail "the image has $size MB, more than 80"
[ "$(field "$image" '{{.Config.User}}')" = 65532:65532 ] || fail "the user is not 65532:65532"
[ "$(field "$image" '{{.Architecture}}')" = "$arch" ] || fail "the architecture is not $arch"
label() { field "$image" "{{index .Config.Labels \"org.opencontainers.image.$1\"}}"; }
version=$(sed -n 's/^#define ATTN_VERSION *"\(.*\)"/\1/p' lib/include/attention.h)
commit=$(cut -d' ' -f1 .commit 2>/dev/null || git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown)
[ "$(label version)" = "$version" ] || fail "the label of the version is '$(label version)' and not $version"
[ "$(label revision)" = "$commit" ] || fail "the label of the commit is '$(label revision)' and not $commit"
mkdir "$work/root"
engine create --name "$name" --platform "linux/$arch" "$image" >/dev/null
# Docker adds the files that it mounts into containers.
engine export "$name" | tar x -C "$work/root" --exclude=.dockerenv --exclude='etc/host*' --exclude=etc/mtab \
    --exclude=etc/resolv.conf --exclude='dev/*'
engine rm -f "$name" >/dev/null
if find "$work/root" | grep -E '/(sh|bash|dash|busybox|apt|apt-get|dpkg|perl|python3?)$' | grep -v "/lib/dpkg$"; then
    fail "the image holds programs beside the daemon"
fi
docker/packages.sh python
tests/support/venv.sh build/sbom docker/requirements-sbom.txt || fail "spdx-tools cannot be installed"
cmp server/models/story.safetensors "$work/root/mnt/models/story.safetensors" || fail "the trained model is not there"
build/sbom/bin/python docker/check-sbom.py "$work/root" "$version" "$commit" "$arch" ||
    fail "the list of parts is wrong"
say "$suite, $arch: $size MB, $(find "$work/root" -name '*.so*' | wc -l) libraries, user 65532, no shell"

# ---- the container

# The container uses the host's network, so that podman needs no bridge. A daemon that listens only
# on 127.0.0.1 does not answer at 127.0.0.2.
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
url=http://127.0.0.2:$port
engine run -d --name "$name" --platform "linux/$arch" --network=host --read-only \
    --cap-drop=ALL --security-opt=no-new-privileges --memory=512m --pids-limit=64 \
    -v "$PWD/tests/data/layers:/mnt/models:ro" -e ATTENTIOND_PORT="$port" \
    "${run_flags[@]}" "${emulator[@]}" "$image" "${command[@]:1}" >"$work/run.log" 2>&1 ||
    { cat "$work/run.log" >&2; fail "the container does not start"; }

for try in {1..100}; do
    curl -fs -o /dev/null "$url/health/ready" && break
    [ "$(field "$name" '{{.State.Running}}')" = true ] || fail "the container ended by itself"
    [ "$try" -lt 100 ] || fail "no answer at $url within 10 s"
    sleep 0.1
done
said=$(curl -fs "$url/version")
say "ready; $said"
[ "$arch" != arm64 ] || grep -q '"kernels":"neon"' <<<"$said" || fail "the kernels are not neon"
{ curl -fs -o "$work/page" "$url/" && grep -q '"assets/main-' "$work/page"; } || fail "there is no page at /"
/usr/bin/python3 docker/try-notebooks.py "$url" || fail "wrong answers"
curl -fs "$url/layers/small.attention/attention" -d '{"X": [[1, 0, 2, 0]]}' | grep -q '"weights"' ||
    fail "/mnt/models has no layer"

if [ ${#emulator[@]} != 0 ]; then # The machine cannot run the command of the image.
    engine exec "$name" "${command[@]}" --health-check || fail "--health-check fails"
elif [ "${engine[0]}" = docker ]; then
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
