#!/bin/sh
# rootfs.sh PROGRAM FOLDER makes the root file system of the image in FOLDER. It has PROGRAM, the loader and the
# libraries that it needs, what dpkg knows of their packages, their licences, the trained model, one user, and a list of
# all of this (sbom.sh). PROGRAM may be made for another architecture. $SOURCE_DATE_EPOCH is the time of every file.
set -eu
export LC_ALL=C SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-0}"
umask 022

program=$1 root=$2 name=${1##*/}
rm -rf "$root"
owners=$(mktemp)
trap 'rm -f "$owners"' EXIT

fail() { echo "rootfs.sh: $*" >&2; exit 1; }

# Prints the package that FILE belongs to. dpkg knows FILE by its real name, which begins with /lib or with /usr/lib.
package_of() { # FILE
    real=$(realpath "$1")
    found=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}") || fail "$1 is in no package"
    echo "${found%: *}"
}

own() { # PACKAGE FILE: copies FILE, and notes for sbom.sh that it belongs to PACKAGE
    mkdir -p "$root${2%/*}"
    cp -L "$2" "$root$2"
    echo "$1 $2" >>"$owners"
}

# Scanners for known faults read the folder status.d, as in the images that are called distroless.
add() { # FILE
    package=$(package_of "$1")
    own "$package" "$1"
    stanza=$root/var/lib/dpkg/status.d/${package%%:*}
    [ ! -e "$stanza" ] || return 0
    own "$package" "/usr/share/doc/${package%%:*}/copyright"
    mkdir -p "${stanza%/*}"
    dpkg-query --status "$package" >"$stanza"
}

# ldd would have to run the program, so it knows no other architecture.
add_libraries() { # FILE
    for library in $(readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        library=/lib/$machine/$library
        case $library in
        */ld-linux*) ;; # the loader is there
        *)
            [ ! -e "$root$library" ] || continue
            add "$library"
            add_libraries "$library"
            ;;
        esac
    done
}

# The folder of the loader has the name of the machine, such as x86_64-linux-gnu.
loader=$(readelf -lW "$program" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
machine=$(basename "$(dirname "$(realpath "$loader")")")
install -D -s --strip-program="$machine-strip" -m 755 "$program" "$root/$name"
install -D -m 644 LICENSE "$root/usr/share/doc/$name/copyright"
add "$loader"
add_libraries "$program"
# These two files tell a scanner the version of Debian.
add /etc/os-release
add /etc/debian_version

# A volume that is mounted at /mnt/models hides the trained model.
install -D -m 644 server/models/story.safetensors "$root/mnt/models/story.safetensors"
mkdir -p "$root/etc"
echo 'attentiond:x:65532:65532:attentiond:/:/nonexistent' >"$root/etc/passwd"
echo 'attentiond:x:65532:' >"$root/etc/group"

# These packages are linked into the program.
for archive in libstdc++.a libgcc.a; do
    package=$(package_of "$("$machine-g++" -print-file-name=$archive)")
    echo "$package static" >>"$owners"
done
"$(dirname "$0")/sbom.sh" "$root" "$owners"
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
