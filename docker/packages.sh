#!/bin/sh
# packages.sh GROUP... installs the packages of these groups (packages.txt) that are missing.
# When nothing is missing it runs nothing, needs no network and prints nothing.
set -eu

list=$(dirname "$0")/packages.txt
missing=
for group in "$@"; do
    names=$(sed -n "s/^$group: *//p" "$list")
    if [ -z "$names" ]; then
        echo "packages.sh: no group '$group' in $list" >&2
        exit 2
    fi
    if ! command -v dpkg-query >/dev/null; then
        echo "packages.sh: not a Debian system; this needs the equivalents of: $names" >&2
        continue
    fi
    for name in $names; do
        status=$(dpkg-query -W -f='${db:Status-Status} ' "$name" 2>/dev/null) || status=
        case " $status" in
        *" installed "*) ;;
        *) missing="$missing $name" ;;
        esac
    done
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    echo "packages.sh: as root, install:$missing" >&2
    exit 1
fi
echo "Installing:$missing"
apt() {
    # shellcheck disable=SC2086  # empty for root
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@"
}
# One unreachable source among several must not end it: the installation will tell.
apt update || true
# shellcheck disable=SC2086  # a list
apt install -y --no-install-recommends $missing
