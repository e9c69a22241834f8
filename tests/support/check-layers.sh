#!/bin/bash
# check-layers.sh checks which headers each file includes and which functions it calls, and it runs
# check_names.py. CONTRIBUTING.md has the rules. The script reads a copy of the sources without
# comments. It prints a line for each offence; the status is then 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

copy=$(mktemp -d)
mkdir "$copy"/{lib,server,tests}
trap 'rm -rf "$copy"' EXIT
find lib server tests -type f \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cc' -o -name '*.S' \) \
    >"$copy/files"
while read -r file; do
    mkdir -p "$copy/${file%/*}"
    ${CC:-cc} -fpreprocessed -dD -E -P -w -x c "$file" >"$copy/$file"
done <"$copy/files"

broken=0
offence() { # RULE: reports each line of standard input
    local line
    while read -r line; do
        echo "$line   [$1]"
        broken=1
    done
}

matches() { # WHERE PATTERN: prints FILE:LINE of each match in files whose paths begin as WHERE says
    (cd "$copy" && grep -rHE -e "$2" lib server tests) | grep -E "^($1)" || true
}

forbid() { # WHERE PATTERN RULE [EXCEPT]: no file at WHERE matches, except the files EXCEPT
    offence "$3" < <(matches "$1" "$2" | grep -vE "^(${4:-:})" || true)
}

confine() { # HEADERS PATHS RULE: only files at PATHS include these headers
    forbid '' "^ *# *include *[<\"]($1)[>\"]" "$3" "$2"
}

resolve() { # WHERE RULE FOLDER...: every #include "FILE" at WHERE finds FILE in its own folder or in a FOLDER
    local where=$1 rule=$2 allowed line file name folder path found
    shift 2
    allowed="$where|$(IFS='|' && echo "$*")"
    while IFS=: read -r file line; do
        name=${line#*\"} name=${name%%\"*} found=
        for folder in "${file%/*}" "$@"; do
            path=$(realpath -m --relative-to=. "$folder/$name") # "../" must not lead out of these folders
            if [[ -e $path && $path =~ ^($allowed) ]]; then found=1; fi
        done
        [ -n "$found" ] || offence "$rule" <<<"$file:$line"
    done < <(matches "$where" '^ *# *include *"')
}

# Each third-party header is included in one place. Benchmarks may include the libraries that they compare with.
confine 'cblas.*\.h|openblas_config\.h|f77blas\.h|lapack.*\.h' 'lib/src/base/blas\.c:|tests/bench/' 'CBLAS is only in lib/src/base/blas.c'
confine 'gnutls/.*' 'server/http/tls\.c:|tests/support/tls\.c:' 'GnuTLS is only in server/http/tls.c and tests/support/tls.c'
confine 'microhttpd\.h' 'server/http/internal\.h:|tests/bench/http/echo\.c:' 'libmicrohttpd is only in server/http/internal.h, and bare in echo.c'
forbid '' '# *include *"http/internal\.h"' 'internal.h is only for server.c, handler.c, body.c, http_call.c and respond.c' 'server/http/(server|handler|body|http_call|respond)\.c:'
confine '(cjson/)?cJSON.*\.h' 'server/codec/|tests/support/json\.c:|tests/bench/' 'cJSON is only in server/codec/'
confine 'uni(case|str|type)\.h' 'server/codec/vocabulary\.c:' 'libunistring is only in server/codec/vocabulary.c'
confine '(zlib|zconf|zstd|zstd_errors)\.h' 'server/http/coding\.c:|tests/support/pack\.c:' 'zlib and libzstd are only in server/http/coding.c'
confine 'brotli/.*' 'tests/support/pack\.c:' 'brotli is only in tests/support/pack.c'
confine 'criterion/.*' 'tests/' 'Criterion is only in tests/'
confine '[a-z0-9]*intrin\.h|arm_neon\.h|arm_sve\.h' 'lib/src/kernels/|server/codec/json/vectors\.h:' 'intrinsics are only in lib/src/kernels/ and vectors.h'
confine 'charconv' 'server/codec/json/number\.cc:' '<charconv> is only in server/codec/json/number.cc'
offence 'the one C++ file is server/codec/json/number.cc' < <(find lib server tests -regextype posix-extended \
    -regex '.*\.(cc|cpp|cxx|hpp|hh)' ! -path server/codec/json/number.cc)

# The library has no threads and no files. It does not print, read the environment or exit.
system='(pthread|threads|semaphore|signal|unistd|fcntl|sys/.*|spawn|locale)\.h'
forbid 'lib/' "^ *# *include *<$system>" 'lib has no threads, files and system calls'
forbid 'lib/' '\b(FILE|stdin|stdout|stderr|errno)\b' 'lib does no input and output'
forbid 'lib/' '\b(v?f?printf|v?dprintf|puts|fputs|putchar|fputc|perror|f?open|fdopen|fread|fwrite|scanf)\s*\(' 'lib does no input and output'
forbid 'lib/' '\b(exit|_exit|_Exit|quick_exit|abort|atexit|system|setlocale)\s*\(' 'lib never ends or changes the process'
forbid 'lib/' '\bgetenv\s*\(' 'only lib/src/kernels/dispatch.c reads the environment' 'lib/src/kernels/dispatch\.c:'
forbid 'lib/' '\b(pthread_|thrd_|mtx_)[a-z]+\s*\(' 'lib has no threads'
resolve 'lib/' 'lib includes only its own headers' lib/include lib/src
forbid '(lib/src|server|tests)/' '^ATTN_API\b' 'ATTN_API is only in attention.h'
forbid 'lib/include/' '^ATTN_API ' 'public functions are attn_*' 'lib/include/[^(]*[ *]attn_[a-z0-9_]*\('

# The folders of the library. The files of lib/src itself have what the folders share. plan.h includes headers of
# softmax, because each plan has room for these structs.
forbid 'lib/src/(base|kernels)/' '# *include *"(engine|softmax|recurrent|packed)/' 'base and kernels know no kind of plan'
forbid 'lib/src/(engine|softmax)/' '# *include *"packed/' 'softmax does not know packed sequences'
forbid 'lib/src/recurrent/' '# *include *"(softmax|packed)/' 'recurrent knows neither softmax nor packed sequences'

# The folders of the server.
resolve 'server/' 'server includes only server/ and attention.h' lib/include server
forbid 'server/http/' '# *include *"(.*/)?((codec|api)/|attention\.h)' 'http knows neither codec, api nor attention.h'
forbid 'server/codec/' '# *include *"(.*/)?(http|api|jobs)/' 'codec knows neither http, api nor jobs'
forbid 'server/http/' '# *include *"(.*/)?jobs/' 'http does not know jobs'
forbid 'server/layers/' '# *include *"(.*/)?(http|api|jobs)/' 'layers knows neither http, api nor jobs'
forbid 'server/jobs/' '# *include *"(.*/)?((http|api|codec)/|attention\.h)' 'jobs knows nothing of what a task computes'
forbid 'server/api/(call|formats)/' '# *include *"api/pages/' 'calls and formats know no pages'
forbid 'server/api/call/' '# *include *"api/formats/' 'a call does not know the formats'
forbid 'server/account\.' '# *include *"(.*/)?((http|codec|api|jobs)/|attention\.h)' 'account knows nothing of the rest of the server'
forbid 'server/(http|codec|api|jobs)/' '"/proc/' '/proc is read by server/process.c'
forbid 'server/(http|codec|api|jobs)/' '\bexit\s*\(' 'only main ends the process'

# The tests of the API see the daemon only through its socket.
resolve 'tests/(api|notebooks|support/(client|daemon|expect|json|notebooks|pack|rows|tls)\.)' 'tests of the API include only tests/' tests

# The top of the tree.
offence 'not a name for the top of the tree' < <(find . -mindepth 1 -maxdepth 1 ! -name '.*' ! -name build -printf '%f\n' |
    grep -vxE 'lib|server|tests|docker|Makefile|openapi\.yaml|README\.md|CONTRIBUTING\.md|CHANGELOG\.md|LICENSE' || true)

# The documents that readers open first stay short.
at_most() { # LINES FILE: a document has at most so many lines; the offence names its longest section
    offence "at most $1 lines" < <(awk -v limit="$1" '
        function close_section() { if (size > longest) { longest = size; name = title } }
        BEGIN { title = "its head" }
        /^```/ { code = !code }
        /^## / && !code { close_section(); title = substr($0, 4); size = 0 }
        { size++ }
        END {
            close_section()
            if (NR > limit) printf "%s has %d lines; its longest section is \"%s\" with %d\n", FILENAME, NR, name, longest
        }' "$2")
}
at_most 160 README.md
at_most 180 CONTRIBUTING.md
at_most 300 server/README.md

# The heads of files, and the names of files and functions.
offence 'the head of a file begins with its name' < <(tests/support/house.py | grep 'HAS NO HEAD' || true)
tests/support/check_names.py || broken=1

exit $broken
