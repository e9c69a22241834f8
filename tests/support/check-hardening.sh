#!/bin/bash
# check-hardening.sh DAEMON UNIT checks with readelf and objdump that the daemon was built and linked with the
# protections against exploits. It checks with systemd-analyze that the unit of systemd is valid and restricts the
# daemon. It prints a line for each fault; the status is then 1.
set -euo pipefail
daemon=${1:?usage: check-hardening.sh DAEMON UNIT}
unit=${2:?usage: check-hardening.sh DAEMON UNIT}
missing=0

expect() { # FAULT PATTERN: reports FAULT if no line of standard input matches
    if ! grep -qE -e "$2"; then
        echo "$daemon: $1"
        missing=1
    fi
}

header=$(readelf -hW "$daemon") segments=$(readelf -lW "$daemon") dynamic=$(readelf -dW "$daemon")
symbols=$(readelf --dyn-syms -W "$daemon")
expect 'is no position-independent executable' 'Type:\s+DYN' <<<"$header"
expect 'is no position-independent executable' 'Flags:.*PIE' <<<"$dynamic"
expect 'has no read-only relocations' 'GNU_RELRO' <<<"$segments"
expect 'binds functions lazily, so that their table stays writable' '(BIND_NOW|Flags:.*NOW)' <<<"$dynamic"
expect 'has an executable stack' 'GNU_STACK.* RW ' <<<"$segments"
expect 'has no stack protector' '__stack_chk_fail' <<<"$symbols"
expect 'has no fortified functions (_FORTIFY_SOURCE)' '__(vsn?|sn?|mem|str|f|vf)[a-z]*_chk' <<<"$symbols"
case $(uname -m) in
x86_64) expect 'does not mark where indirect calls may land (CET)' endbr64 ;;
aarch64) expect 'does not mark where indirect calls may land (BTI)' 'bti|paciasp' ;;
esac < <(objdump -d --no-show-raw-insn --disassemble=main "$daemon")
# The daemon calls exec only once, to choose OpenBLAS's kernels, before it serves anything.
for name in system popen posix_spawn posix_spawnp fork vfork; do
    if grep -qE "UND $name(@|$)" <<<"$symbols"; then
        echo "$daemon: calls $name()"
        missing=1
    fi
done

# The unit is checked as it would be installed for this daemon. The threshold 20 stands for 2.0.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed "s|@BINDIR@|$folder|; s|@DATADIR@|$folder|" "$unit" >"$folder/attentiond.service"
cp "$daemon" "$folder/attentiond"
said=$(systemd-analyze verify --recursive-errors=no --man=no "$folder/attentiond.service" 2>&1) || true
if [ -n "$said" ]; then
    echo "$unit: $said"
    missing=1
fi
if ! said=$(systemd-analyze security --offline=true --threshold=20 --no-pager "$folder/attentiond.service"); then
    echo "$unit: ${said##*$'\n'}, which must be at most 2.0"
    missing=1
fi
exit $missing
