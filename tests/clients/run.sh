#!/bin/bash
# run.sh FOLDER [NAME...] lets clients ask $ATTENTIOND_BIN (FOLDER/attentiond if it is not set).
# - lint: two linters read openapi.yaml.
# - typescript, python, go, java: a client is generated from openapi.yaml and compiled. It asks the first notebook, the same
#   with drawn matrices, and a bad request. Then the client in plain/ runs that needs only the standard library of Go or Java.
# - javascript, rust: the clients in plain/.
# - c, cuda, triton, and after their other clients go and rust: the examples in kernel/. Without a NAME, triton runs only if
#   build/models has the PyTorch of "make test-models", which takes 6 GB.
# - stock: tritonclient, and safetensors with requests. kserve: KServe's client. mlserver: MLServer's codecs.
# - readme, torch: the section "Python first" of README.md, with NumPy and with PyTorch. $TORCH_PYTHON is a Python that has
#   PyTorch; by default it is Debian's.
# Without a NAME, all of them run. The first run downloads packages from npm, PyPI, Go's proxy and Maven Central. Packages
# and generated files go to build/clients.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
document=$root/openapi.yaml
folder=$(realpath "${1:?usage: run.sh FOLDER [NAME...]}")
shift
work=$root/build/clients
models=$root/build/models
if [ $# = 0 ]; then
    set -- lint typescript python go java javascript rust c cuda stock kserve mlserver readme torch
    [ ! -e "$models/installed.txt" ] || set -- "$@" triton
fi
mkdir -p "$work"
log=$work/log.txt

quietly() { # COMMAND...: runs a command, and shows its output only if it fails
    "$@" >"$log" 2>&1 || { cat "$log"; echo "failed: $*"; exit 1; } >&2
}

check() { # NAME GENERATOR COMMAND...: runs a client, and lets check.py read what it prints
    "${@:3}" >"$work/$1.json" || { echo "$1 failed: ${*:3}" >&2; exit 1; }
    /usr/bin/python3 "$here/check.py" "$1 by $2" "$work/$1.json"
}

plain() { # NAME COMMAND...: runs a client of plain/, and lets its check read what it prints
    "${@:2}" "$url" >"$work/plain.txt" || { echo "$1 failed: ${*:2}" >&2; exit 1; }
    /usr/bin/python3 "$here/plain/check.py" "$1 by hand" <"$work/plain.txt"
}

kernel() { # NAME COMMAND...: runs an example of kernel/, and lets its check send the file that it writes
    mkdir -p "$work/kernel"
    cd "$work/kernel"
    rm -f kernel.safetensors
    quietly "${@:2}"
    /usr/bin/python3 "$here/kernel/check.py" "kernel in $1" "$url"
}

start_daemon() { # OPTION...: starts a daemon; its address is then in $url, and its process in ${daemons[-1]}
    local line
    exec {said}< <(exec "${ATTENTIOND_BIN:-$folder/attentiond}" --port 0 "$@" 2>>"$work/daemon.txt")
    daemons+=($!)
    read -r line <&"$said" || { cat "$work/daemon.txt" >&2; exit 1; }
    url=${line##* }
}

install_node_modules() {
    cd "$work/typescript"
    # The copy of the lock is written last, so a broken installation is made again.
    cmp -s "$here/typescript/package-lock.json" installed.json && return
    cp "$here"/typescript/package*.json "$here/../browser/.npmrc" .
    quietly npm ci
    cp "$here/typescript/package-lock.json" installed.json
}

run_lint() {
    install_node_modules
    quietly node_modules/.bin/redocly lint "$document"
    quietly node_modules/.bin/spectral lint --ruleset "$here/typescript/.spectral.yaml" "$document"
    echo "redocly and spectral: no error"
}

run_typescript() {
    install_node_modules
    cp "$here"/typescript/{ask.ts,misspelt.ts,tsconfig.json} .
    quietly node_modules/.bin/openapi-typescript "$document" -o attentiond.d.ts
    echo '{ "extends": "./tsconfig.json", "files": ["ask.ts"] }' >ask.json
    echo '{ "extends": "./tsconfig.json", "files": ["misspelt.ts"] }' >misspelt.json
    quietly node_modules/.bin/tsc -p ask.json
    if node_modules/.bin/tsc --noEmit -p misspelt.json >"$log"; then
        echo "typescript: a misspelt key compiles" >&2
        exit 1
    elif [ "$(grep -c 'error TS' "$log")" != 1 ] || ! grep -q "'casual' does not exist" "$log"; then
        cat "$log" >&2
        exit 1
    fi
    check typescript openapi-typescript node ask.js "$url"
}

run_python() {
    "$here/../support/venv.sh" "$work/venv" "$here/python/requirements.txt"
    cd "$work"
    PATH=$work/venv/bin:$PATH quietly venv/bin/openapi-python-client generate --path "$document" \
        --config "$here/python/config.yaml" --fail-on-warning --overwrite --output-path python
    PYTHONPATH=$work/python check python openapi-python-client venv/bin/python -B "$here/python/ask.py" "$url"
}

run_go() {
    mkdir -p "$work/go"
    cd "$work/go"
    cp "$here"/go/* .
    # Go 1.21 and later fetch the version of Go that go.mod names.
    export GOTOOLCHAIN=auto GOPATH=$work/gopath GOCACHE=$work/gocache GOFLAGS="-modcacherw -mod=readonly"
    quietly go tool oapi-codegen -generate types,client -package main -o attentiond.go "$document"
    quietly go vet .
    quietly go build -o ask .
    check go oapi-codegen ./ask "$url"
    quietly test -z "$(gofmt -l "$here/plain/attention.go")"
    quietly go vet "$here/plain/attention.go"
    plain go go run "$here/plain/attention.go"
    quietly test -z "$(gofmt -l "$here/kernel/kernel.go")"
    quietly go vet "$here/kernel/kernel.go"
    kernel go go run "$here/kernel/kernel.go"
}

run_java() {
    local version=7.25.0 jar maven=(mvn -q -B "-Dmaven.repo.local=$work/m2")
    local plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1
    jar=$work/openapi-generator-cli-$version.jar
    cd "$work"
    [ -f "$jar" ] || quietly "${maven[@]}" $plugin:copy \
        -Dartifact=org.openapitools:openapi-generator-cli:$version -DoutputDirectory="$work"
    echo "$(cat "$here/java/openapi-generator-cli.sha256")  $jar" | quietly sha256sum -c
    rm -rf java
    quietly java -jar "$jar" generate -g java -i "$document" -o java
    cp "$here/java/Ask.java" java/src/main/java/
    cd java
    quietly "${maven[@]}" compile $plugin:build-classpath -Dmdep.outputFile=libraries.txt
    check java openapi-generator java -cp "target/classes:$(cat libraries.txt)" Ask "$url"
    quietly javac -Xlint:all -Werror -d "$work/plain-java" "$here/plain/Attention.java"
    plain java java "$here/plain/Attention.java"
}

run_javascript() {
    plain javascript env NODE_NO_WARNINGS=1 node "$here/plain/attention.mjs"
}

run_rust() {
    quietly rustc -D warnings -o "$work/attention" "$here/plain/attention.rs"
    plain rust "$work/attention"
    quietly rustc -D warnings -o "$work/kernel-rust" "$here/kernel/kernel.rs"
    kernel rust "$work/kernel-rust"
}

run_c() {
    quietly "${CC:-cc}" -std=c99 -pedantic -Wall -Wextra -Werror "$here/kernel/kernel.c" -o "$work/kernel-c"
    kernel c "$work/kernel-c"
}

run_cuda() {
    sed 's/<<<.*>>>//' "$here/kernel/kernel.cu" >"$work/kernel.cc"
    quietly "${CXX:-c++}" -Wall -Wextra -Werror -I "$here/kernel" -I "$here/kernel/cpu" "$work/kernel.cc" -o "$work/kernel-cuda"
    kernel cuda "$work/kernel-cuda"
}

run_triton() {
    [ -n "${MODELS_PYTHON:-}" ] || "$here/../support/venv.sh" "$models" "$here/../models/requirements.txt"
    TRITON_INTERPRET=1 kernel triton "${MODELS_PYTHON:-$models/bin/python}" -B "$here/kernel/kernel.py"
}

stock_tests() { # PYTHON FILE...: runs tests of stock clients; a test that was not found is a failure, too
    for file in "${@:2}"; do
        quietly "$1" -B "$here/stock/$file"
        echo "$file: $(tail -n 3 "$log" | head -n 1)"
    done
}

run_stock() {
    "$here/../support/venv.sh" "$work/venv-stock" "$here/stock/requirements.txt"
    stock_tests "$work/venv-stock/bin/python" test_triton.py test_safetensors.py
}

run_kserve() {
    "$here/../support/venv.sh" "$work/venv-kserve" "$here/stock/requirements-kserve.txt"
    stock_tests "$work/venv-kserve/bin/python" test_kserve.py
}

run_mlserver() {
    "$here/../support/venv.sh" "$work/venv-mlserver" "$here/stock/requirements-mlserver.txt" --no-deps
    stock_tests "$work/venv-mlserver/bin/python" test_mlserver.py
}

run_readme() {
    "$here/../support/venv.sh" "$work/venv-stock" "$here/stock/requirements.txt"
    "$work/venv-stock/bin/python" -B "$here/stock/readme.py" numpy "$url"
}

run_torch() {
    "$here/../support/venv.sh" "$work/venv-stock" "$here/stock/requirements.txt"
    # This Python gets the package safetensors alone, and keeps its own NumPy.
    mkdir -p "$work/torch"
    ln -sfn "$work"/venv-stock/lib/python3*/site-packages/safetensors "$work/torch/"
    PYTHONPATH=$work/torch "${TORCH_PYTHON:-/usr/bin/python3}" -B "$here/stock/readme.py" torch "$url"
}

# OpenBLAS of NumPy and of the daemon would take the kernels that this names.
unset OPENBLAS_CORETYPE
daemons=()
trap 'kill "${daemons[@]}" 2>/dev/null || true' EXIT
: >"$work/daemon.txt"
start_daemon --compression yes
export ATTENTIOND_COMPRESSING_URL=$url
start_daemon
export ATTENTIOND_URL=$url
for name in "$@"; do
    declare -F "run_$name" >/dev/null || { echo "run.sh: there is no client $name" >&2; exit 2; }
    mkdir -p "$work/typescript"
    (run_"$name")
done
for daemon in "${daemons[@]}"; do
    kill "$daemon"
    wait "$daemon" || { cat "$work/daemon.txt" >&2; exit 1; } # it has crashed, or a sanitizer has found something
done
