# shellcheck shell=bash
# engine.sh is sourced by the tests of the image. `engine` is Docker if its daemon answers. Otherwise it is podman, which
# this script installs if it is missing. Podman's images stay in build/container/ as a cache. remove_work removes everything else.
# shellcheck disable=SC2034  # the tests use build_flags and run_flags

cache=$PWD/build/container
work=$(mktemp -d)
mkdir -p "$cache"

if docker info >/dev/null 2>&1; then
    engine=(docker)
    build_flags=() run_flags=()
else
    docker/packages.sh container
    # The test may itself run as root in a container, without systemd and without the right to raise
    # limits. Podman's database remembers the folder of its state, so its name is the same each time.
    state=/run
    [ -w "$state" ] || state=${XDG_RUNTIME_DIR:-/tmp}
    state=$state/attentiond-test-$(cksum <<<"$cache" | cut -d' ' -f1)
    engine=(podman --root "$cache/storage" --runroot "$state/run" --tmpdir "$state/tmp"
        --runtime runc --cgroup-manager cgroupfs --events-backend file --log-level fatal)
    # Podman 4.3 does not know the variable BUILDPLATFORM in a line FROM.
    build_flags=(--isolation=chroot --format=docker --pull=never
        --build-arg "BUILDPLATFORM=linux/$(dpkg --print-architecture)")
    run_flags=(--read-only-tmpfs=false --ulimit nofile=1024:1024 --ulimit nproc=4096:4096)
fi
engine() { "${engine[@]}" "$@"; }
field() { engine inspect --format "$2" "$1"; }
remove_work() { rm -rf "$work" "${state:-$work}"; }

make_base() { # SUITE NAME
    local host sources=/etc/apt/sources.list.d/debian.sources
    [ -s "$sources" ] || sources=/etc/apt/sources.list
    docker/packages.sh base-image
    host=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    sed "s/\b$host\b/$1/g" "$sources" >"$work/${sources##*/}"
    # Debian's own image has no package cache in its layers, either.
    printf 'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n' >"$work/docker-clean"
    # shellcheck disable=SC2016  # mmdebstrap sets $1
    mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --customize-hook="copy-in $work/docker-clean /etc/apt/apt.conf.d" \
        --customize-hook='rm -f "$1"/etc/hostname "$1"/etc/resolv.conf' \
        "$1" "$work/base.tar" "$work/${sources##*/}"
    engine import --change 'CMD ["bash"]' "$work/base.tar" "$2" >/dev/null 2>&1
}

find_base() { # SUITE: sets base to an image of Debian, from the registry or else from Debian packages
    local made=localhost/debian:$1
    base=docker.io/library/debian:$1-slim
    if engine image inspect "$made" >/dev/null 2>&1; then
        base=$made
    elif ! engine image inspect "$base" >/dev/null 2>&1 &&
        ! timeout 60 "${engine[@]}" pull -q "$base" >"$work/pull" 2>&1; then
        say "no registry: making a Debian $1 base"
        base=$made
        make_base "$1" "$base"
    fi
}
