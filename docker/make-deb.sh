#!/bin/sh
# make-deb.sh VERSION makes the Debian packages of this tree in build/deb/, and lintian checks them. What was compiled
# for an earlier package of the same tree is kept. The files of a package have the time of the last commit, so that
# one commit gives the same bytes each time.
set -eu
cd "$(dirname "$0")/.."

version=$1
tree=build/deb/attentiond
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s)
    export SOURCE_DATE_EPOCH
fi

mkdir -p "$tree"
find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
rm -f build/deb/*.deb build/deb/*.changes build/deb/*.buildinfo
cp -a Makefile LICENSE CHANGELOG.md openapi.yaml lib server "$tree"
cp -a docker/debian "$tree/debian"
# The list of packages that building needs is in packages.txt only.
sed -i "s/@BUILD@/$(sed -n 's/^build: //p' docker/packages.txt | sed 's/ /, /g')/" "$tree/debian/control"
cat >"$tree/debian/changelog" <<END
attentiond ($version) unstable; urgency=medium

  * CHANGELOG.md, which the package attentiond has, lists the changes.

 -- attentiond contributors <maintainers@attentiond.example>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END

(cd "$tree" && dpkg-buildpackage --build=binary --no-sign --no-pre-clean) >build/deb/log 2>&1 ||
    { cat build/deb/log; echo "make-deb.sh: the packages cannot be built" >&2; exit 1; }
lintian --allow-root --fail-on error build/deb/*.changes || { echo "make-deb.sh: lintian reports errors" >&2; exit 1; }
ls build/deb/*.deb
