#!/bin/bash
# test-reproducible.sh makes the bundle, which has the files of the image, the wheel and the libraries twice, in folders,
# time zones, locales and with masks and numbers of jobs that differ. It compares every file: bytes, mode, owner and
# time. Both builds use the Debian packages of this machine. make sets $COMMIT and $SOURCE_DATE_EPOCH, in an archive
# without git, too.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$PWD/build/reproducible
export COMMIT="${COMMIT:?make test-reproducible sets it}"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:?make test-reproducible sets it}"
rm -rf "$work"
mkdir -p "$work"

build() { # NAME FOLDER JOBS: builds a copy of the sources, and lists its files in NAME.txt
    echo "test-reproducible: $1 build in $2"
    mkdir -p "$work/$2"
    cp -r Makefile LICENSE openapi.yaml lib server docker "$work/$2"
    (
        cd "$work/$2"
        make -j"$3" BUILD=release all &&
            make pack-wheel
    ) >"$work/$1.log" 2>&1 || { cat "$work/$1.log" >&2 && echo "test-reproducible: the $1 build fails" >&2 && exit 1; }
    (
        cd "$work/$2"
        find build/bundle -mindepth 1 -printf '%p: %y, mode %m, owner %U:%G, time %T@\n' | sort
        find build/bundle build/dist build/release/attentiond build/release/libattention.* -type f -exec sha256sum {} + | sort -k 2
    ) >"$work/$1.txt"
}

(umask 022; TZ=UTC LC_ALL=C build first a 2)
(umask 077; TZ=Asia/Kathmandu LC_ALL=C.UTF-8 HOME=/ build second another/and-longer/folder 1)

if ! diff "$work/first.txt" "$work/second.txt"; then
    echo "test-reproducible: the files above differ between $work/a and $work/another/and-longer/folder" >&2
    exit 1
fi
echo "test-reproducible: $(grep -c '^[0-9a-f]\{64\} ' "$work/first.txt") files are the same in both builds"
rm -rf "$work"
