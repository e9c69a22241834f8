#!/bin/sh
# sbom.sh ROOT OWNERS writes ROOT/usr/share/sbom/attentiond.spdx.json: what the image is made of, in SPDX 2.3. Each line
# of OWNERS has a Debian package and a file that comes from it, or the word "static" if the package is linked into the
# daemon. All other files are this project's. $COMMIT names its commit, and $SOURCE_DATE_EPOCH its time in seconds.
# The same files give the same document.
set -eu
export LC_ALL=C

root=$1 owners=$2
version=$(sed -n 's/^#define ATTN_VERSION *"\(.*\)"/\1/p' lib/include/attention.h)
own=attentiond
# shellcheck disable=SC1091  # this file is on every Debian
. /etc/os-release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

id() { # WORD: prints WORD with the characters that an identifier of SPDX may have
    printf %s "$1" | sed 's/[^A-Za-z0-9.-]/-/g'
}

relate() { # FROM RELATIONSHIP TO
    echo "{\"spdxElementId\": \"SPDXRef-$1\", \"relationshipType\": \"$2\", \"relatedSpdxElement\": \"SPDXRef-$3\"}"
}

# Prints the licences of the files of a source package as an expression of SPDX, and notes in the file "others" those
# that SPDX has no name for. An old copyright file that no program can read gives NOASSERTION.
licence_of() { # COPYRIGHT-FILE
    awk -v RS= -v others="$work/others" '
        function spdx(name) {
            gsub(/^ +|[ ,]+$/, "", name)
            lower = tolower(name)
            if (lower in known) return known[lower]
            if (lower ~ /^(l?gpl|gfdl)-[0-9.]+\+?$/) {
                name = toupper(name)
                if (name !~ /\./) sub(/\+?$/, ".0&", name)
                return name ~ /\+$/ ? substr(name, 1, length(name) - 1) "-or-later" : name "-only"
            }
            reference = name
            gsub(/[^A-Za-z0-9.-]/, "-", reference)
            print "LicenseRef-" reference "\t" name >>others
            return "LicenseRef-" reference
        }
        BEGIN {
            split("Apache-2.0 BSD-2-Clause BSD-3-Clause ISC MIT MPL-1.1 X11 Zlib", names, " ")
            for (i in names) known[tolower(names[i])] = names[i]
            known["expat"] = "MIT"
        }
        NR == 1 && !/^Format:/ { exit }
        /(^|\n)Files:/ && match($0, /(^|\n)License:[^\n]*/) {
            text = substr($0, RSTART, RLENGTH)
            sub(/.*License:/, "", text)
            n = split(text, parts, " or ")
            choice = ""
            for (i = 1; i <= n; i++) {
                m = split(parts[i], all, " and ")
                for (j = 1; j <= m; j++) choice = choice (j > 1 ? " AND " : i > 1 ? " OR " : "") spdx(all[j])
            }
            print (n > 1 ? "(" choice ")" : choice)
        }' "$1" | sort -u |
        awk '{ text = text (NR > 1 ? " AND " : "") $0 } END { print text == "" ? "NOASSERTION" : text }'
}

# Prints a package. The files that the image has of it are in the file "files".
package() { # NAME VERSION LICENCE SUPPLIER SOURCE PURL
    analyzed=false verification=
    if [ -s "$work/files" ]; then
        analyzed=true
        code=$(cut -d' ' -f2 "$work/files" | sort | tr -d '\n' | sha1sum | cut -d' ' -f1)
        verification=" \"packageVerificationCode\": {\"packageVerificationCodeValue\": \"$code\"},"
    fi
    echo "{\"SPDXID\": \"SPDXRef-Package-$(id "$1")\", \"name\": \"$1\", \"versionInfo\": \"$2\"," \
        "\"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": $analyzed,$verification" \
        "\"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"$3\", \"copyrightText\": \"NOASSERTION\"," \
        "\"supplier\": \"$4\", \"sourceInfo\": \"$5\"," \
        "\"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\"," \
        "\"referenceLocator\": \"$(echo "$6" | sed 's/+/%2B/g')\"}]}" >>"$work/packages"
    while read -r path sha1 sha256; do
        file=File$(id "$path")
        echo "{\"SPDXID\": \"SPDXRef-$file\", \"fileName\": \".$path\"," \
            "\"checksums\": [{\"algorithm\": \"SHA1\", \"checksumValue\": \"$sha1\"}," \
            "{\"algorithm\": \"SHA256\", \"checksumValue\": \"$sha256\"}]," \
            '"licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"}' >>"$work/described"
        relate "Package-$(id "$1")" CONTAINS "$file" >>"$work/relationships"
    done <"$work/files"
}

sums() { # prints each path of standard input with its SHA-1 and SHA-256
    while read -r path; do
        echo "$path $(sha1sum <"$root$path" | cut -d' ' -f1) $(sha256sum <"$root$path" | cut -d' ' -f1)"
    done
}

relate DOCUMENT DESCRIBES "Package-$own" >"$work/relationships"
cut -d' ' -f2 "$owners" | sort -u >"$work/foreign"
(cd "$root" && find . -type f) | sed 's/^.//' | sort | comm -23 - "$work/foreign" | sums >"$work/files"
package $own "$version" MIT "Organization: $own" "commit ${COMMIT:-unknown}" "pkg:generic/$own@$version"

cut -d' ' -f1 "$owners" | sort -u | while read -r package; do
    dpkg-query -W -f='${Package}\n${Version}\n${Architecture}\n${Maintainer}\n${source:Package}\n${source:Version}\n' \
        "$package" >"$work/fields"
    { read -r name; read -r number; read -r machine; read -r maintainer; read -r source; read -r source_number; } \
        <"$work/fields"
    sed -n "s|^$package /|/|p" "$owners" | sort -u | sums >"$work/files"
    package "$name" "$number" "$(licence_of "/usr/share/doc/$name/copyright")" \
        "Organization: $(echo "$maintainer" | sed 's/[\\"]//g; s/ *<\(.*\)>/ (\1)/')" \
        "built package from: $source $source_number" \
        "pkg:deb/$ID/$name@$number?arch=$machine&distro=$ID-$VERSION_ID&upstream=$source%40$source_number"
    relation=DEPENDS_ON
    ! grep -qxF "$package static" "$owners" || relation=STATIC_LINK
    relate "Package-$own" $relation "Package-$(id "$name")" >>"$work/relationships"
done

touch "$work/others"
sort -u "$work/others" | while IFS='	' read -r reference name; do
    echo "{\"licenseId\": \"$reference\", \"name\": \"$name\"," \
        '"extractedText": "The files /usr/share/doc/*/copyright have the text of this licence."}'
done >"$work/licences"

list() { # NAME FILE: prints the lines of FILE as a list of JSON
    echo "\"$1\": ["
    sed '$!s/$/,/' "$work/$2"
    echo "]"
}
{
    list packages packages
    echo ,
    list files described
    echo ,
    list hasExtractedLicensingInfos licences
    echo ,
    list relationships relationships
} >"$work/body"

out=$root/usr/share/sbom/$own.spdx.json
mkdir -p "${out%/*}"
{
    echo '{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",'
    echo "\"name\": \"$own-$version\","
    echo "\"documentNamespace\": \"urn:uuid:$(sha256sum <"$work/body" |
        sed 's/\(.\{8\}\)\(.\{4\}\).\(.\{3\}\).\(.\{3\}\)\(.\{12\}\).*/\1-\2-8\3-8\4-\5/')\","
    echo "\"creationInfo\": {\"created\": \"$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)\"," \
        "\"creators\": [\"Tool: $own-sbom.sh\"]},"
    cat "$work/body"
    echo '}'
} >"$out"
