#!/bin/sh
# rootfs.sh PROGRAM FOLDER makes in FOLDER the root file system of the image: PROGRAM, the loader and
# the libraries that ldd names, the licences of the packages they come from, and one user.
set -eu

program=$1 root=$2
install -D -s -m 755 "$program" "$root/${program##*/}"
install -D -m 644 LICENSE "$root/usr/share/doc/${program##*/}/copyright"

ldd "$program" | grep -o '/[^ ]*' | sort -u | while read -r library; do
    cp -L --parents "$library" "$root"
    # The package knows the file by its real name, before or after /lib became /usr/lib.
    real=$(realpath "$library")
    package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}")
    package=${package%%:*}
    cp -L --parents "/usr/share/doc/$package/copyright" "$root"
done

mkdir -p "$root/etc"
echo 'attentiond:x:65532:65532:attentiond:/:/nonexistent' >"$root/etc/passwd"
echo 'attentiond:x:65532:' >"$root/etc/group"
