#!/bin/bash
# test-dist.sh packs the last commit as `make dist` does. Two clones must give the same bytes, and a clone with changes
# none. A key signs the checksums, and the signature fits no others. The archive must be built, checked and run without
# git: a git that notes its calls stands before the others in PATH. The answers to all notebooks must be right. The
# image and test-reproducible must get the commit and its time.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$(sed -n 's/^#define ATTN_VERSION *"\(.*\)"/\1/p' lib/include/attention.h)
archive=attentiond-$version
work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say() { echo "test-dist: $*"; }
fail() {
    say "$*" >&2
    exit 1
}
quietly() { # COMMAND...: shows the output only if the command fails
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$* fails"; }
}

# ---- the archive

packed() { # NAME: clones this repository, and packs the clone
    git clone --quiet --depth 1 "file://$PWD" "$work/$1"
    quietly make -C "$work/$1" dist
}
(umask 022; TZ=UTC packed one)
(umask 077; TZ=Asia/Kathmandu packed two)
diff -r "$work"/{one,two}/build/dist || fail "two releases of one commit differ"
for package in "$archive".{crate,tgz} attentiond-go-"$version".zip attentiond-client-"$version".{jar,pom}; do
    [ -s "$work/one/build/dist/$package" ] || fail "$package is missing"
done
(cd "$work/one/build/dist" && sha256sum --check --quiet --strict SHA256SUMS) || fail "the checksums are wrong"

ssh-keygen -q -t ed25519 -N '' -f "$work/key"
echo "maintainer $(cat "$work/key.pub")" >"$work/signers"
quietly make -C "$work/two" dist SIGNING_KEY="$work/key"
signed() { # reads checksums
    ssh-keygen -Y verify -f "$work/signers" -I maintainer -n attentiond -s "$work/two/build/dist/SHA256SUMS.sig" >"$work/log" 2>&1
}
signed <"$work/one/build/dist/SHA256SUMS" || { cat "$work/log" >&2; fail "the signature is wrong"; }
! sed '1s/^./x/' "$work/one/build/dist/SHA256SUMS" | signed || fail "other checksums pass"

echo >>"$work/two/LICENSE"
! make -C "$work/two" dist >"$work/log" 2>&1 || fail "a tree with changes is packed"
grep -q '^ M LICENSE$' "$work/log" || fail "make dist does not name the changed file: $(cat "$work/log")"

# ---- what is in it

tar -C "$work" -xzf "$work/one/build/dist/$archive.tar.gz"
(git ls-tree -r --name-only -z HEAD | xargs -0n1 && echo .commit) | sort >"$work/tracked"
(cd "$work/$archive" && find . ! -type d -printf '%P\n') | sort | diff "$work/tracked" - ||
    fail "the archive has other files than the commit"
say "$archive.tar.gz: $(wc -l <"$work/tracked") files, $(stat -c %s "$work/one/build/dist/$archive.tar.gz") bytes"

# ---- without git

mkdir "$work/bin"
printf '#!/bin/sh\necho "git $*" >>"%s"\nexit 128\n' "$work/calls" >"$work/bin/git"
chmod +x "$work/bin/git"
read -r commit seconds < <(git log -1 --format='%H %ct')
export PATH="$work/bin:$PATH"
cd "$work/$archive"
quietly make all
quietly make check-layers
[ "$(build/attentiond --version)" = "attentiond $version" ] || fail "the program is $(build/attentiond --version)"
arguments=$(make -n image ENGINE=engine) # prints the command
for argument in "VERSION=$version" "COMMIT=$commit" "SOURCE_DATE_EPOCH=$seconds"; do
    grep -qF -e "--build-arg $argument " <<<"$arguments" || fail "the image does not get $argument: $arguments"
done
arguments=$(make -n test-reproducible)
grep -qF "COMMIT=\"$commit\" SOURCE_DATE_EPOCH=\"$seconds\" " <<<"$arguments" ||
    fail "test-reproducible does not get the commit and its time: $arguments"
exec {said}< <(exec build/attentiond --port 0 2>"$work/log")
daemon=$!
read -r line <&"$said" || { cat "$work/log" >&2; fail "the daemon does not start"; }
/usr/bin/python3 docker/try-notebooks.py "${line##* }" || fail "wrong answers"
[ ! -e "$work/calls" ] || fail "an archive needs no git, but these commands ran: $(cat "$work/calls")"
say "built, checked and run without git; all well"
