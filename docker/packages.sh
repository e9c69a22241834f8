#!/bin/sh
# packages.sh GROUP... installs the packages of these groups (packages.txt) that are missing.
# If nothing is missing, it runs nothing, needs no network and prints nothing. If TARGETARCH (arm64 or amd64) is set and
# the machine is another one, it installs the libraries of TARGETARCH and a compiler that makes programs for it.
set -eu

list=$(dirname "$0")/packages.txt
groups=" $* "
names=
for group in "$@"; do
    of_group=$(sed -n "s/^$group: *//p" "$list")
    if [ -z "$of_group" ]; then
        echo "packages.sh: no group '$group' in $list" >&2
        exit 2
    fi
    names="$names $of_group"
done

if ! command -v dpkg-query >/dev/null; then
    cat >&2 <<END
This is neither Debian nor Ubuntu: run attentiond in a container here (docker build -f docker/Dockerfile -t attentiond .).
To build it without a container, install what Debian calls$names.
The end of docker/packages.txt has the names on Fedora, Alpine, Arch and Homebrew.
END
    exit 0
fi

native=$(dpkg --print-architecture)
if [ "${TARGETARCH:-$native}" != "$native" ]; then
    case $TARGETARCH in
    amd64) machine=x86-64-linux-gnu ;;
    arm64) machine=aarch64-linux-gnu ;;
    *) echo "packages.sh: unknown TARGETARCH=$TARGETARCH: it is amd64 or arm64" >&2 && exit 2 ;;
    esac
    names=$(echo "$names" | sed -E "s/ g\+\+/& g++-$machine/; s/-dev( |$)/-dev:$TARGETARCH\1/g")
fi

# Two targets of make may install packages at the same time, but two apt-get may not.
exec 9<"$list"
flock 9

missing=
for name in $names; do
    status=$(dpkg-query -W -f='${db:Status-Status} ' "$name" 2>/dev/null) || status=
    case " $status $missing " in
    *" installed "* | *" $name "*) ;;
    *) missing="$missing $name" ;;
    esac
done
[ -n "$missing" ] || exit 0

fail() { # WHY
    cat >&2 <<END
packages.sh: $1. To install the packages, run as root:
    apt-get update && apt-get install -y --no-install-recommends$missing
END
    case $groups in *" build "*)
        echo 'Without root, unpack the bundle of a release or install its wheel with pip (README.md, "Without root").' >&2 ;;
    esac
    exit 1
}

if [ "$(id -u)" = 0 ]; then
    as_root=
else
    command -v sudo >/dev/null || fail "packages are missing, and there is no sudo"
    as_root=sudo
    sudo env true || fail "packages are missing, and sudo refuses"
fi
apt() {
    # shellcheck disable=SC2086  # $as_root is empty for root
    $as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" 9<&-
}

echo "Installing:$missing (apt-get says how much disk this takes)"
# shellcheck disable=SC2086  # $as_root is empty for root
[ -z "${TARGETARCH:-}" ] || $as_root dpkg --add-architecture "$TARGETARCH"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A package source that does not answer is given up soon, because another source may have the packages.
apt -o Acquire::Retries=0 -o Acquire::http::Timeout=5 -o Acquire::https::Timeout=5 update 2>&1 | tee "$log"
grep -Eq '^(Hit|Get):' "$log" || fail "no package source in /etc/apt answers"
# shellcheck disable=SC2086  # $missing is a list of words
apt install -y --no-install-recommends $missing || fail "apt-get cannot install the packages"
echo "To remove these packages, as root: apt-get purge$missing"
