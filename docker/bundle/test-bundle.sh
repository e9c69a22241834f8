#!/bin/bash
# test-bundle.sh NAME WHEEL tests build/dist/NAME.tar.gz and the file WHEEL as an ordinary user would use them: in this
# system, in a root with musl and busybox alone, and in an empty one; $SUITES names releases of Debian whose bare roots
# are tried, too. The wheel is installed into each Python of this machine. The test needs root for chroot.
set -euo pipefail
cd "$(dirname "$0")/../.."

name=$1 wheel=$2 archive=build/dist/$1.tar.gz
work=$(mktemp -d)
chmod 755 "$work"
daemon=
stop() { [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null || true; daemon=; }
clean_up() {
    stop
    ! mountpoint -q "$work/full" || umount "$work/full"
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
say() { echo "test-bundle: $*"; }
fail() {
    say "$*" >&2
    [ ! -s "$work/log" ] || cat "$work/log" >&2
    exit 1
}
as_user=(env -i setpriv --reuid 65534 --regid 65534 --clear-groups env PATH="$PATH")
now() { date +%s%N; }

[ "$(id -u)" = 0 ] || fail "chroot needs root: sudo make test-bundle"
docker/packages.sh bundle
(cd build/dist && sha256sum --check --quiet --strict SHA256SUMS) || fail "the checksums are wrong"
for file in "$archive" "$wheel"; do
    grep -q "  ${file##*/}$" build/dist/SHA256SUMS || fail "SHA256SUMS lacks $file"
    size=$(stat -c %s "$file")
    [ "$size" -le 25000000 ] || fail "$file has $size bytes, more than 25 MB"
    say "${file##*/}: $size bytes"
done

start() { # WHERE COMMAND...: starts the daemon, waits for the first answer, and compares those to the notebooks
    local where=$1 begin
    shift
    begin=$(now)
    exec {said}< <(exec "$@" --port 0 2>"$work/log")
    daemon=$!
    read -r line <&"$said" || fail "$where: the daemon does not start"
    url=${line##* }
    curl -fs -o "$work/answer" "$url/attention" -d '{"X": [[1, 2], [3, 4]]}' || fail "$where: no answer"
    say "$where: first answer after $((($(now) - begin) / 1000000)) ms"
    /usr/bin/python3 docker/try-notebooks.py "$url" >"$work/notebooks" ||
        { cat "$work/notebooks" >&2; fail "$where: wrong answers"; }
    curl -fs "$url/layers/story.1" | grep -q '"d_model":96' || fail "$where: the trained model is not served"
    exec {said}<&-
}
refused() { # WHAT PATTERN COMMAND...: the command ends with an error, in one line that matches
    local what=$1 pattern=$2 status=0
    shift 2
    timeout 10 "$@" >"$work/out" 2>"$work/log" || status=$?
    case $status in 0 | 124) fail "$what: status $status" ;; esac
    { [ "$(wc -l <"$work/log")" = 1 ] && grep -Eq -e "$pattern" "$work/log"; } || fail "$what: the error is not one line with $pattern"
    say "$what: $(cat "$work/log")"
}
unpack() { # FOLDER: the files belong to root, so the user of the daemon cannot write there
    mkdir -p "$1"
    tar -C "$1" --no-same-owner -xzf "$archive"
}

# ---- this system, whose libraries must not matter

unpack "$work/a folder"
here="$work/a folder/$name/attentiond"
start "this system" "${as_user[@]}" LD_PRELOAD=/lib/none.so LD_LIBRARY_PATH=/nowhere "$here"
! grep -v '^20' "$work/log" || fail "the daemon prints other lines than its log"
! cut -d' ' -f6- "/proc/$daemon/maps" | grep -E '^ */(lib|usr)' || fail "the daemon uses libraries of the system"
[ "$(cat "/proc/$daemon/comm")" = attentiond ] || fail "the process is called $(cat "/proc/$daemon/comm")"
refused "a port that is taken" "${url##*:}.*in use" "${as_user[@]}" "$here" --port "${url##*:}"
stop
ln -s "$here" "$work/attentiond"
start "a link to it" "${as_user[@]}" "$work/attentiond"
stop
unpack "$work/a:b"
refused "a colon in the path" 'may not have :' "${as_user[@]}" "$work/a:b/$name/attentiond"
mkdir "$work/broken"
cp "$here" "$work/broken"
refused "a starter alone" 'cannot run .*: No such file' "${as_user[@]}" "$work/broken/attentiond"
# The system has this library, too.
unpack "$work/lacking"
rm "$work/lacking/$name/root/lib"/*/libz.so.1
refused "a missing library" 'cannot run without .*/libz\.so\.1: No such file' \
    "${as_user[@]}" "$work/lacking/$name/attentiond" --port 0
mkdir "$work/full"
mount -t tmpfs -o size=4k none "$work/full"
start "a full /tmp" "${as_user[@]}" TMPDIR="$work/full" sh -c "head -c 1000000 /dev/zero >'$work/full/x' 2>/dev/null; exec '$here' \"\$@\"" sh
stop

# ---- other systems

start_in() { # WHERE ROOT: starts the bundle in a root
    unpack "$2/opt"
    start "$1" chroot --userspec=65534:65534 "$2" "/opt/$name/attentiond"
    stop
}
start_in "an empty root" "$work/empty"
mkdir -p "$work/musl/bin" "$work/musl/lib"
cp -L /lib/ld-musl-*.so.1 "$work/musl/lib/"
cp /bin/busybox "$work/musl/bin/"
"$work/musl/bin/busybox" --install -s "$work/musl/bin"
start_in "musl and busybox" "$work/musl"
# A library that the system preloads lacks what it needs, or is not there at all.
root=$work/empty
mkdir "$root/etc" "$root/lib"
cp -L /usr/lib/*-linux-gnu/libcurl.so.4 "$root/lib"
echo /lib/libcurl.so.4 >"$root/etc/ld.so.preload"
refused "a broken preload" 'every program \(/etc/ld\.so\.preload\): .*error while loading shared libraries' \
    chroot --userspec=65534:65534 "$root" "/opt/$name/attentiond" --port 0
echo /lib/none.so >"$root/etc/ld.so.preload"
start "a preload that is missing" chroot --userspec=65534:65534 "$root" "/opt/$name/attentiond"
stop
for suite in ${SUITES:-}; do
    docker/packages.sh base-image
    mmdebstrap --quiet --variant=minbase "$suite" "$work/$suite" >"$work/log" 2>&1 || fail "no root of $suite"
    start_in "Debian $suite" "$work/$suite"
done

# ---- a CPU without AVX

if [ "$(dpkg --print-architecture)" = amd64 ]; then
    root="$work/a folder/$name/root"
    start "a CPU without AVX" env -i qemu-x86_64 -cpu Nehalem "$root/lib64/ld-linux-x86-64.so.2" --inhibit-cache \
        --library-path "$root/lib/x86_64-linux-gnu" "$root/attentiond" --layers "$root/mnt/models"
    curl -fs "$url/version" | grep -q '"kernels":"scalar"' || fail "the kernels are not scalar"
    stop
fi

# ---- the wheel

for python in /usr/bin/python3 ${PYTHONS:-}; do
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv" >"$work/log" 2>&1 || fail "$python makes no environment"
    "$work/venv/bin/pip" install -q --no-index --disable-pip-version-check "$wheel" >"$work/log" 2>&1 ||
        fail "$python: pip refuses the wheel"
    start "the wheel in $("$python" --version)" env -i "$work/venv/bin/attentiond"
    stop
    env -i PATH=/none "$work/venv/bin/python" -c 'from attentiond.daemon import Daemon
daemon = Daemon()
print(daemon.client.ask("/attention", {"X": [[1, 2], [3, 4]], "digits": 3})["output"])
daemon.close()' >"$work/out" 2>"$work/log" || fail "$python: the client starts no daemon"
    grep -qxF '[[2.97, 3.97], [3, 4]]' "$work/out" || fail "$python: the client prints $(cat "$work/out")"
done
say "all well"
