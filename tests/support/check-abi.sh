#!/bin/bash
# check-abi.sh LIBRARY checks that programs for the last release work with this LIBRARY (libattention.so) and are compiled
# with its header. abidiff compares attention.h with that of the release, whose text without comments is
# tests/data/interface.txt; macros and names are compared as text. What is only added is no difference.
# check-abi.sh LIBRARY --write then replaces that file, which belongs to each release.
#
# The script makes a library of each header, whose functions do nothing. This library has the debug information of the
# interface and of nothing else, and both come from the same compiler. A dump of abidw would have neither of these
# properties.
set -euo pipefail
cd "$(dirname "$0")/../.."

library=${1:?usage: check-abi.sh LIBRARY [--write]}
released=tests/data/interface.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "check-abi: $*" >&2; exit 1; }

text() { # HEADER: prints a header without its comments
    "${CC:-cc}" -fpreprocessed -dD -E -P -w -x c "$1"
}

make_library() { # NAME: makes NAME.so from the header NAME.h
    {
        sed '/^ATTN_API /{:a;/;$/!{N;ba};s/;$/ { __builtin_trap(); }/}' "$work/$1.h"
        # The constants of enumerations without a name belong to no function, so each becomes the size of a variable.
        sed -n '/^enum {/,/^}/s/^ *\(ATTN_[A-Z0-9_]*\).*/ATTN_API char constant_\1[\1];/p' "$work/$1.h"
        echo "ATTN_API char size_of_options[sizeof(attn_options)];"
    } | "${CC:-cc}" -std=c17 -w -g -fPIC -shared -o "$work/$1.so" -x c -
}

functions() { # LIBRARY: prints the names of its functions
    nm -D --defined-only "$1" | sed -n 's/.* T //p' | sort
}

size_of_options() { # LIBRARY: prints the size that its header gives attn_options
    nm -DS "$1" | awk '$4 == "size_of_options" { print $2 }'
}

macros() { # FILE: prints the macros in a header, each on one line. The version may change, and abidiff compares the
    # enumerations that maps make.
    sed ':a;/\\$/{N;s/ *\\\n */ /;ba}' "$1" | grep '^#define ATTN_' |
        grep -vE '^#define ATTN_(VERSION|[A-Z]*_MAP\()' | sort
}

words() { # FILE: prints the names in a header without those of parameters, and before a member the name of its struct.
    # abidiff reports no member that has only another name.
    sed '/^ATTN_API /{:a;/;$/!{N;ba};s/(.*//}; /^static inline /{s/(.*//p}; /^static inline /,/^}/d
        s/"[^"]*"//g; s/\<reserved\>//g' "$1" | awk '
        /^typedef struct .*[{]$/ { of = $3 "." }
        /^}/ { of = "" }
        {
            while (match($0, /[A-Za-z_][A-Za-z0-9_]*/)) {
                print of substr($0, RSTART, RLENGTH)
                $0 = substr($0, RSTART + RLENGTH)
            }
        }' | sort -u
}

major() { # FILE: prints the number of the ABI
    sed -n 's/^#define ATTN_VERSION_MAJOR //p' "$1"
}

text lib/include/attention.h >"$work/now.h"
cp "$work/now.h" "$work/written.h"
make_library now
size=$(size_of_options "$work/now.so")
diff <(functions "$work/now.so") <(functions "$library") >&2 ||
    fail "attention.h (<) and $library (>) have different functions"

if [ "$(major "$released")" = "$(major "$work/now.h")" ]; then
    text "$released" >"$work/released.h"
    # Options that are newer than the release take reserved words, and check.c knows the size of the struct. So they are
    # cut out here, and the words are as many as they were.
    reserved=$(sed -n '/^typedef struct attn_options /,/^}/p' "$work/released.h" |
        grep -B 1 -w 'uint64_t reserved') || true
    awk -v last="${reserved%%$'\n'*}" -v words="${reserved#*$'\n'}" '
        /^typedef struct attn_options / { options = 1 }
        /^} attn_options;/ { if (new) print words; options = new = 0 }
        !new
        options && $0 == last { new = 1 }' "$work/written.h" >"$work/now.h"
    make_library released
    make_library now
    # The number of results grows with them.
    cat >"$work/suppressions" <<END
[suppress_type]
type_kind = enum
name = attn_result
changed_enumerators = ATTN_RESULT_COUNT
END
    abidiff --no-added-syms --suppressions "$work/suppressions" \
        "$work/released.so" "$work/now.so" >"$work/differences" ||
        { cat "$work/differences" >&2; fail "a program for the last release would not work with this attention.h"; }
    [ "$size" = "$(size_of_options "$work/released.so")" ] ||
        fail "attn_options has another size: a new option takes as many words of reserved as it needs"
    changed=$(comm -23 <(macros "$work/released.h") <(macros "$work/written.h"))
    [ -z "$changed" ] || fail "attention.h no longer has these macros of the last release: $changed"
    gone=$(comm -23 <(words "$work/released.h") <(words "$work/written.h") | tr '\n' ' ')
    [ -z "$gone" ] || fail "these names of the last release are gone from attention.h: $gone"
    echo "check-abi: $(functions "$work/released.so" | wc -l) functions of the last release are unchanged"
else
    echo "check-abi: $released is of another ABI number, so anything may differ"
fi

[ "${2:-}" != --write ] || cp "$work/written.h" "$released"
