#!/bin/bash
# run.sh FOLDER [NAME...] lets clients ask $ATTENTIOND_BIN (FOLDER/attentiond if it is not set).
# - lint: two linters read openapi.yaml.
# - go, java, javascript, python, rust: the test of the client in server/clients, with own/stub.py between it and the daemon,
#   and the example in its README.md. The client is installed as its README.md says. python also runs workflow.yml and check.sh.
# - packages: the packages of the clients, as `make dist` makes them, and the examples with them.
# - generated-go, generated-java, generated-python, generated-typescript: a client is generated from openapi.yaml and compiled.
#   It asks the first notebook, the same with drawn matrices, and a bad request. generated-typescript also compiles a program
#   with the types of server/clients/javascript.
# - c, cuda, triton, and after their clients go and rust: the examples in kernel/; c and cuda also run the battery of cases. Without a NAME, triton runs only if
#   build/models has the PyTorch of "make test-models", which takes 6 GB.
# - stock: tritonclient, and safetensors with requests. kserve: KServe's client. mlserver: MLServer's codecs.
# - readme, torch: the section "NumPy, PyTorch, Triton" of server/clients/README.md, with NumPy and with PyTorch. $TORCH_PYTHON is a Python that has
#   PyTorch; by default it is Debian's.
# Without a NAME, all of them run. The first run downloads packages from npm, PyPI, Go's proxy and Maven Central. Packages
# and generated files go to build/clients.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
clients=$root/server/clients
document=$root/openapi.yaml
folder=$(realpath "${1:?usage: run.sh FOLDER [NAME...]}")
shift
work=$root/build/clients
models=$root/build/models
if [ $# = 0 ]; then
    set -- lint go java javascript python rust packages generated-{go,java,python,typescript} c cuda stock kserve mlserver readme torch
    [ ! -e "$models/installed.txt" ] || set -- "$@" triton
fi
mkdir -p "$work"
maven=(mvn -q -B "-Dmaven.repo.local=$work/m2")
log=$work/log.txt

quietly() { # COMMAND...: runs a command, and shows its output only if it fails
    "$@" >"$log" 2>&1 || { cat "$log"; echo "failed: $*"; exit 1; } >&2
}

check() { # NAME GENERATOR COMMAND...: runs a client, and lets check.py read what it prints
    "${@:3}" >"$work/$1.json" || { echo "$1 failed: ${*:3}" >&2; exit 1; }
    /usr/bin/python3 "$here/check.py" "$1 by $2" "$work/$1.json"
}

stubbed() { # COMMAND...: runs the test of a client beside a stub
    quietly "$here/own/stub.py" "$@"
}

example() { # LANGUAGE FENCE FILE COMMAND...: runs the example in the README.md of a client
    "$here/own/example.py" "$clients/$1/README.md" "${@:2}"
    echo "$1: the client's test passes, and its example prints what its README.md says"
}

kernel() { # NAME COMMAND...: runs an example of kernel/, and lets its check send the file that it writes
    mkdir -p "$work/kernel"
    cd "$work/kernel"
    rm -f kernel.safetensors
    quietly "${@:2}"
    /usr/bin/python3 "$here/kernel/check.py" "kernel in $1" "$url"
}

battery() { # COMPILER OPTION...: runs the battery of kernel/ with right kernels and planted faults
    "$here/../support/venv.sh" "$work/venv-stock" "$here/stock/requirements.txt"
    rm -rf "$work/battery"
    mkdir -p "$work/battery"
    "$work/venv-stock/bin/python" -B "$here/kernel/check_battery.py" "$work/battery" "$@" -Wall -Wextra -Werror
}

start_daemon() { # OPTION...: starts a daemon; its address is then in $url, and its process in ${daemons[-1]}
    local line
    exec {said}< <(exec "${ATTENTIOND_BIN:-$folder/attentiond}" --port 0 "$@" 2>>"$work/daemon.txt")
    daemons+=($!)
    read -r line <&"$said" || { cat "$work/daemon.txt" >&2; exit 1; }
    url=${line##* }
}

install_node_modules() {
    mkdir -p "$work/typescript"
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

run_generated-typescript() {
    install_node_modules
    cp "$here"/typescript/{ask.ts,misspelt.ts,tsconfig.json} "$here/own/types.ts" .
    rm -rf node_modules/attentiond
    cp -r "$clients/javascript" node_modules/attentiond
    echo '{ "extends": "./tsconfig.json", "files": ["types.ts"] }' >types.json
    quietly node_modules/.bin/tsc --noEmit -p types.json
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

run_generated-python() {
    "$here/../support/venv.sh" "$work/venv" "$here/python/requirements.txt"
    cd "$work"
    PATH=$work/venv/bin:$PATH quietly venv/bin/openapi-python-client generate --path "$document" \
        --config "$here/python/config.yaml" --fail-on-warning --overwrite --output-path generated-python
    PYTHONPATH=$work/generated-python check python openapi-python-client venv/bin/python -B "$here/python/ask.py" "$url"
}

set_go() {
    mkdir -p "$work/$1"
    cd "$work/$1"
    # Go 1.21 and later fetch the version of Go that go.mod names.
    export GOTOOLCHAIN=auto GOPATH=$work/gopath GOCACHE=$work/gocache GOFLAGS="-modcacherw -mod=readonly"
}

run_go() {
    set_go go
    quietly test -z "$(gofmt -l "$clients/go" "$here/kernel/kernel.go")"
    (cd "$clients/go" && quietly go vet . && stubbed go test -count=1 .)
    rm -f go.mod
    quietly go mod init example
    quietly go mod edit -require=attentiond.example/attentiond@v1.0.0 "-replace=attentiond.example/attentiond=$clients/go"
    example go go main.go go run main.go
    quietly go vet "$here/kernel/kernel.go"
    kernel go go run "$here/kernel/kernel.go"
}

run_generated-go() {
    set_go generated-go
    cp "$here"/go/* .
    quietly go tool oapi-codegen -generate types,client -package main -o attentiond.go "$document"
    quietly go vet .
    quietly go build -o ask .
    check go oapi-codegen ./ask "$url"
}

run_java() {
    rm -rf "$work/java"
    cp -r "$clients/java" "$work/java"
    cd "$work/java"
    # shellcheck disable=SC2046 # the names have no spaces
    quietly javac --release 17 -Xlint:all -Werror -d classes $(find src -name '*.java')
    stubbed java -cp classes attentiond.ClientTest
    quietly "${maven[@]}" package
    example java java Example.java java -cp target/attentiond-client-*.jar Example.java
}

run_generated-java() {
    local version=7.25.0 jar
    local plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1
    jar=$work/openapi-generator-cli-$version.jar
    cd "$work"
    [ -f "$jar" ] || quietly "${maven[@]}" $plugin:copy \
        -Dartifact=org.openapitools:openapi-generator-cli:$version -DoutputDirectory="$work"
    echo "$(cat "$here/java/openapi-generator-cli.sha256")  $jar" | quietly sha256sum -c
    rm -rf generated-java
    quietly java -jar "$jar" generate -g java -i "$document" -o generated-java
    cp "$here/java/Ask.java" generated-java/src/main/java/
    cd generated-java
    quietly "${maven[@]}" compile $plugin:build-classpath -Dmdep.outputFile=libraries.txt
    check java openapi-generator java -cp "target/classes:$(cat libraries.txt)" Ask "$url"
}

run_javascript() {
    export NODE_NO_WARNINGS=1 # Node.js 18 says that its fetch is experimental
    stubbed node --test "$clients/javascript/attentiond.test.js"
    mkdir -p "$work/javascript"
    cd "$work/javascript"
    echo '{ "type": "module" }' >package.json
    quietly npm install --no-audit --no-fund --install-links "$clients/javascript"
    example javascript js example.js node example.js
}

run_python() {
    cd "$clients/python"
    stubbed /usr/bin/python3 -B -m unittest
    "$here/../support/venv.sh" "$work/venv-stock" "$here/stock/requirements.txt"
    stubbed "$work/venv-stock/bin/python" -B -m unittest
    ATTENTIOND_BIN=${ATTENTIOND_BIN:-$folder/attentiond} "$here/own/workflow.py" "$work/venv-stock/bin/python3" "$url"
    rm -rf "$work/python"
    python3 -m venv "$work/python"
    cd "$work/python"
    quietly bin/pip install --disable-pip-version-check "$clients/python[numpy]" pytest==9.2.0
    (cd "$clients/python" && quietly "$work/python/bin/python" -B -m unittest test_check.Test.test_fixture_of_pytest)
    example python python example.py bin/python -B example.py
}

run_rust() {
    local options=(--edition 2021 -D warnings)
    mkdir -p "$work/rust"
    cd "$work/rust"
    quietly rustc "${options[@]}" --crate-type lib --crate-name attentiond -o libattentiond.rlib "$clients/rust/src/lib.rs"
    options+=(--extern attentiond=libattentiond.rlib)
    quietly rustc "${options[@]}" --test -o test "$clients/rust/tests/client.rs"
    stubbed ./test
    if command -v cargo >/dev/null; then
        (cd "$clients/rust" && CARGO_TARGET_DIR=$work/rust/target stubbed cargo test --offline)
    fi
    example rust rust example.rs sh -c "rustc ${options[*]} example.rs && ./example"
    quietly rustc -D warnings -o "$work/kernel-rust" "$here/kernel/kernel.rs"
    kernel rust "$work/kernel-rust"
}

run_packages() { # of `make dist`
    local dist=$work/dist go rust
    rm -rf "$dist"
    mkdir -p "$dist"/{go,node,rust}
    SOURCE_DATE_EPOCH=0 quietly "$clients/pack.py" "$dist"
    cd "$dist/node"
    echo '{ "type": "module" }' >package.json
    quietly npm install --no-audit --no-fund ../attentiond-*.tgz
    NODE_NO_WARNINGS=1 "$here/own/example.py" "$clients/javascript/README.md" js example.js node example.js
    cd "$dist"
    quietly python3 -m venv venv
    quietly venv/bin/pip install --no-index --disable-pip-version-check attentiond-*-py3-none-any.whl
    "$here/own/example.py" "$clients/python/README.md" python example.py venv/bin/python -B example.py
    "$here/own/example.py" "$clients/java/README.md" java Example.java java -cp "$(echo "$dist"/*.jar)" Example.java
    # A proxy of Go is a folder: a list, and for each version its time, its go.mod and its files.
    go=$(echo attentiond-go-*.zip) go=v${go#attentiond-go-} go=${go%.zip}
    mkdir -p proxy/attentiond.example/attentiond/@v
    cp attentiond-go-*.zip "proxy/attentiond.example/attentiond/@v/$go.zip"
    cp "$clients/go/go.mod" "proxy/attentiond.example/attentiond/@v/$go.mod"
    echo "{\"Version\": \"$go\"}" >"proxy/attentiond.example/attentiond/@v/$go.info"
    (
        set_go dist/go
        export GOPROXY=file://$dist/proxy GOSUMDB=off GOMODCACHE=$dist/modules GOFLAGS=-modcacherw
        quietly go mod init example
        quietly go get "attentiond.example/attentiond@$go"
        "$here/own/example.py" "$clients/go/README.md" go main.go go run main.go
    )
    rust=$(echo attentiond-*.crate)
    tar xf "$rust"
    quietly rustc --edition 2021 --crate-type lib --crate-name attentiond -o rust/libattentiond.rlib "${rust%.crate}/src/lib.rs"
    cd rust
    "$here/own/example.py" "$clients/rust/README.md" rust example.rs sh -c "rustc --edition 2021 --extern attentiond=libattentiond.rlib example.rs && ./example"
    echo "packages: npm, pip, Java, Go and Rust take them, and the examples print what README.md says"
}

run_c() {
    quietly "${CC:-cc}" -std=c99 -pedantic -Wall -Wextra -Werror "$here/kernel/kernel.c" -o "$work/kernel-c"
    kernel c "$work/kernel-c"
    battery "${CC:-cc}" -std=c99 -pedantic
}

run_cuda() {
    sed 's/<<<.*>>>//' "$here/kernel/kernel.cu" >"$work/kernel.cc"
    quietly "${CXX:-c++}" -Wall -Wextra -Werror -I "$here/kernel" -I "$here/kernel/cpu" "$work/kernel.cc" -o "$work/kernel-cuda"
    kernel cuda "$work/kernel-cuda"
    battery "${CXX:-c++}" -x c++
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
    (run_"$name")
done
for daemon in "${daemons[@]}"; do
    kill "$daemon"
    wait "$daemon" || { cat "$work/daemon.txt" >&2; exit 1; } # it has crashed, or a sanitizer has found something
done
