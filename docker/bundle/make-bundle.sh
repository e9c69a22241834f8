#!/bin/sh
# make-bundle.sh PROGRAM NAME packs PROGRAM with all that it needs: build/dist/NAME.tar.gz runs on any Linux, for any
# user. NAME/attentiond is a starter without libraries (start.c), and NAME/root has the files of the image (rootfs.sh).
# The bundle stays in build/bundle/NAME. $CC compiles for the machine of PROGRAM. The same commit gives the same bytes.
set -eu
export LC_ALL=C SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:?make bundle sets it}"
umask 022
cd "$(dirname "$0")/../.."

program=$1 name=$2
bundle=build/bundle/$name
rm -rf "$bundle"
mkdir -p "$bundle" build/dist
docker/rootfs.sh "$program" "$bundle/root"

loader=$(readelf -lW "$program" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
libraries=$(cd "$bundle/root" && echo lib/*-linux-gnu)
names=$(cd "$bundle/root/$libraries" && printf '"%s",' *.so.*)
# shellcheck disable=SC2086  # $CC may have options
$CC -std=c17 -O2 -Wall -Wextra -Wpedantic -Werror -DLOADER="\"$loader\"" \
    -DLIBRARIES="\"/$libraries\"" -DNAMES="$names" -static -s -o "$bundle/attentiond" docker/bundle/start.c
find "$bundle" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=ustar \
    -C build/bundle -cf - "$name" | gzip -9n >"build/dist/$name.tar.gz"
