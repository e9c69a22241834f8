#!/bin/bash
# test-deb.sh VERSION makes the Debian packages of this tree. It installs, starts, upgrades, removes and purges them in
# a bare root of this release of Debian, in which systemd runs (systemd-nspawn). The test needs root. The bare root
# stays in build/bare-root/ as a cache. Everything else is removed, except the packages in build/deb/.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
bare=$PWD/build/bare-root/$suite.tar
work=$(mktemp -d)
root=$work/root
machine=
groups=()

say() { echo "test-deb: $*"; }
fail() {
    say "$*" >&2
    [ -z "$machine" ] || inside journalctl --no-pager -n 30 -u attentiond >&2 || true
    exit 1
}
clean_up() {
    [ -z "$machine" ] || { kill "$machine" && wait "$machine"; } 2>/dev/null || true # the machine shuts down
    [ ${#groups[@]} = 0 ] || find "${groups[@]}" -depth -type d -exec rmdir {} \; || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

[ "$(id -u)" = 0 ] || fail "systemd-nspawn needs root: sudo make test-deb"
docker/packages.sh deb base-image machine

# ---- the packages, and a later revision of them

for revision in 2 1; do
    mkdir -p "$work/packages/$revision"
    docker/make-deb.sh "$version-$revision" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "make-deb.sh fails"; }
    cp build/deb/{attentiond,libattention1,libattention-dev}_*.deb "$work/packages/$revision"
    dpkg-deb -x "$work/packages/$revision"/attentiond_*.deb "$work/$revision"
done
cmp "$work/1/usr/bin/attentiond" "$work/2/usr/bin/attentiond" || fail "two builds make different programs"

# ---- the bare root, and the packages that attentiond needs

if ! [ -s "$bare" ]; then
    say "making a bare root of Debian $suite"
    sources=/etc/apt/sources.list.d/debian.sources
    [ -s "$sources" ] || sources=/etc/apt/sources.list
    mkdir -p "${bare%/*}"
    mmdebstrap --quiet --format=tar --variant=minbase --include=systemd-sysv --aptopt='Acquire::Languages "none"' \
        "$suite" "$bare.new" "$sources"
    mv "$bare.new" "$bare"
fi
mkdir "$root"
tar -C "$root" --numeric-owner -xpf "$bare"
# systemd makes a cgroup for the machine. Without systemd this script makes it, in each hierarchy that is used.
flags=(--quiet --directory="$root" --register=no --bind-ro="$work/packages:/mnt")
if ! [ -d /run/systemd/system ]; then
    flags+=(--keep-unit)
    for folder in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
        [ ! -e "$folder/cgroup.procs" ] || groups+=("$folder/attentiond-test-$$")
    done
    mkdir "${groups[@]}" || fail "no cgroup can be made"
fi
nspawn() { # [OPTION...]: replaces the shell
    for group in "${groups[@]}"; do
        echo 0 >"$group/cgroup.procs" # 0 is the process that writes
    done
    exec systemd-nspawn "${flags[@]}" "$@"
}
(nspawn --pipe sh -c 'apt-get -q update &&
    apt-get -q install -y --no-install-recommends --download-only /mnt/1/*.deb') >"$work/log" 2>&1 </dev/null ||
    { cat "$work/log" >&2; fail "apt cannot fetch what attentiond needs"; }

# ---- the machine, whose network is its own

nspawn --boot --private-network --console=read-only </dev/null >"$work/console" 2>&1 &
machine=$!
inside() { # COMMAND...
    nsenter --target "$leader" --mount --uts --ipc --net --pid --root --wd -- \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}
beside() { nsenter --target "$leader" --net "$@"; } # runs a command of this machine in the network of the other one
for try in {1..100}; do
    leader=$(cut -d ' ' -f 1 "/proc/$machine/task/$machine/children" 2>/dev/null) || leader=
    if [ -n "$leader" ] && inside systemctl is-system-running --wait >"$work/log" 2>&1; then
        break
    fi
    [ "$try" -lt 100 ] || { cat "$work/console" "$work/log" >&2; fail "the machine does not start"; }
    sleep 0.1
done

apt() {
    inside sh -c "apt-get -q -y --no-install-recommends $*" >"$work/log" 2>&1 </dev/null ||
        { cat "$work/log" >&2; fail "apt-get $* fails"; }
}
files() { # lists the files of the machine that belong neither to a running system nor to dpkg and apt
    inside find / -xdev \( -path /mnt -o -path /run -o -path /tmp -o -path /var/log -o -path /var/cache -o \
        -path /var/lib/apt -o -path /var/lib/dpkg \) -prune -o -print | sort
}
alive() { # PORT: asks the daemon what its packages promise
    for try in {1..100}; do
        beside curl -fs -o "$work/answer" "http://127.0.0.1:$1/health/ready" && break
        [ "$try" -lt 100 ] || fail "no answer at port $1 within 10 s"
        sleep 0.1
    done
    [ "$(inside systemctl is-active attentiond)" = active ] || fail "the service is not active"
    pid=$(inside systemctl show --property=MainPID --value attentiond)
    user=$(inside stat -c %U:%G "/proc/$pid")
    [ "$user" = attentiond:attentiond ] || fail "the daemon runs as $user"
}
files >"$work/before"

# ---- install

apt install "/mnt/1/*.deb"
alive 8080
say "$suite: installed; $(beside curl -fs http://127.0.0.1:8080/version)"
[ "$(inside systemctl is-enabled attentiond)" = enabled ] || fail "the service does not start with the machine"
beside /usr/bin/python3 docker/try-notebooks.py http://127.0.0.1:8080 || fail "wrong answers"
beside curl -fs http://127.0.0.1:8080/layers/story.1 | grep -q '"d_model":96' || fail "the trained model is not served"
inside sh -c 'dpkg -L attentiond libattention1 libattention-dev | grep . | xargs -d "\n" stat -c "%U:%G %n"' \
    >"$work/owners"
if grep -v '^root:root ' "$work/owners"; then
    fail "files of the packages do not belong to root"
fi

# The page has every option, and nothing of the machine that it was made on.
zcat "$root/usr/share/man/man1/attentiond.1.gz" >"$work/page"
sed 's/\\-/-/g' "$work/page" >"$work/text"
inside attentiond --help | grep -oE '(--[a-z-]+|\bATTENTION(D_[A-Z_]+|_ISA))' | sort -u | while read -r name; do
    grep -qwF -e "$name" "$work/text" || fail "the manual page does not have $name"
done
ATTENTION_ISA=scalar taskset -c 0 server/man.sh "$work/1/usr/bin/attentiond" | cmp - "$work/page" ||
    fail "the manual page depends on the machine"

# A program is compiled with the header, the library and the flags in the root.
awk '/^```/ { inside = /^```c$/ && !seen++; next } inside' lib/README.md >"$work/program.c"
libraries=$(dirname "$(sed -n 's/^root:root //p' "$work/owners" | grep '/libattention\.a$')")
# shellcheck disable=SC2046  # pkg-config prints several flags
cc -o "$work/packages/program" "$work/program.c" $(PKG_CONFIG_SYSROOT_DIR=$root \
    PKG_CONFIG_LIBDIR=$root$libraries/pkgconfig pkg-config --cflags --libs attention) ||
    fail "a program with libattention cannot be compiled"
inside ldd /mnt/program | grep 'libattention\.so\.1 => /' >/dev/null ||
    fail "the program does not load libattention.so.1"
said=$(inside /mnt/program)
{ [ -n "$said" ] && grep -qxF "$said" lib/README.md; } || fail "the program prints: $said"
say "user, files, manual page and library are right"

# ---- upgrade: what the operator has changed stays

key=0123456789abcdef
inside install -D -m 640 -g attentiond /dev/stdin /etc/attentiond/keys <<<"$key"
inside tee -a /etc/default/attentiond >/dev/null <<'END'
ATTENTIOND_PORT=8081
ATTENTIOND_API_KEY_FILE=/etc/attentiond/keys
END
inside sha256sum /etc/default/attentiond >"$work/settings"
old=$pid
apt install "/mnt/2/*.deb"
alive 8081
inside sha256sum --check --status <"$work/settings" || fail "the upgrade changes /etc/default/attentiond"
inside dpkg-query -W attentiond | grep -F "$version-2" >/dev/null || fail "the version is not $version-2"
[ "$pid" != "$old" ] || fail "the upgrade does not start the new daemon"
ask() { # [OPTION...]: prints the status of a request
    beside curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8081/attention -d '{"X": [[1, 2], [3, 4]]}' "$@"
}
[ "$(ask)" = 401 ] || fail "a request without a key gets $(ask)"
[ "$(ask -H "Authorization: Bearer $key")" = 200 ] || fail "a request with a key gets no answer"
inside tee /etc/attentiond/keys >/dev/null <<<"other-$key"
inside systemctl reload attentiond || fail "systemd cannot reload the service"
for try in {1..100}; do
    [ "$(ask -H "Authorization: Bearer other-$key")" != 200 ] || break
    [ "$try" -lt 100 ] || fail "a reload does not read the keys"
    sleep 0.1
done
say "upgraded; the settings have stayed, and a reload reads a file of the group attentiond"

# ---- remove and purge

apt remove attentiond
! inside test -e "/proc/$pid" || fail "the daemon runs after its removal"
inside sha256sum --check --status <"$work/settings" || fail "the removal changes /etc/default/attentiond"
# apt would leave a library that another package suggests.
apt purge --auto-remove -oAPT::AutoRemove::{Recommends,Suggests}Important=false \
    attentiond libattention1 libattention-dev
inside rm -r /etc/attentiond
files >"$work/after"
diff "$work/before" "$work/after" >&2 || fail "the purge leaves other files than there were"
# Debian's packages leave their users, because files may still belong to them.
inside getent passwd attentiond >/dev/null || fail "the purge removes the user"
say "removed and purged; only the user is left; all well"
