#!/bin/sh
# rootfs.sh PROGRAM FOLDER makes the root file system of the image in FOLDER. It has PROGRAM, the
# loader and the libraries that ldd names, the licences of their packages, and one user.
set -eu

program=$1 root=$2
install -D -s -m 755 "$program" "$root/${program##*/}"
install -D -m 644 LICENSE "$root/usr/share/doc/${program##*/}/copyright"

ldd "$program" | grep -o '/[^ ]*' | sort -u | while read -r library; do
    cp -L --parents "$library" "$root"
    # dpkg knows the file by its real name, which begins with /lib or with /usr/lib.
    real=$(realpath "$library")
    package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}")
    package=${package%%:*}
    cp -L --parents "/usr/share/doc/$package/copyright" "$root"
done

mkdir -p "$root/etc" "$root/mnt/models"
echo 'attentiond:x:65532:65532:attentiond:/:/nonexistent' >"$root/etc/passwd"
echo 'attentiond:x:65532:' >"$root/etc/group"
