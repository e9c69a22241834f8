#!/bin/sh
# make-deb.sh VERSION makes the Debian packages of this tree in build/deb/, and lintian checks them. What was there is
# removed. The files of a package have the time $SOURCE_DATE_EPOCH. make sets it to the time of the last commit, so one
# commit gives the same bytes each time.
set -eu
cd "$(dirname "$0")/.."

version=$1
tree=build/deb/attentiond
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:?make deb sets it}"

rm -rf build/deb
mkdir -p "$tree"
cp -a Makefile LICENSE CHANGELOG.md openapi.yaml lib server docker/debian "$tree"
# packages.txt is the only list of the packages that building needs.
sed -i "s/@BUILD@/$(sed -n 's/^build: //p' docker/packages.txt | sed 's/ /, /g')/" "$tree/debian/control"
cat >"$tree/debian/changelog" <<END
attentiond ($version) unstable; urgency=medium

  * The changes of each version are in changelog.gz.

 -- attentiond contributors <maintainers@attentiond.example>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

(cd "$tree" && dpkg-buildpackage --build=binary --no-sign) >build/deb/log 2>&1 ||
    { cat build/deb/log; echo "make-deb.sh: the packages cannot be built" >&2; exit 1; }
# The first upload to Debian closes a bug. These packages are not uploaded.
lintian --allow-root --fail-on error --suppress-tags initial-upload-closes-no-bugs build/deb/*.changes ||
    { echo "make-deb.sh: lintian reports errors" >&2; exit 1; }
ls build/deb/*.deb
