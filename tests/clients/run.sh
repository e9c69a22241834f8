#!/bin/bash
# run.sh FOLDER [NAME...] generates clients from openapi.yaml, compiles them, and has each ask $ATTENTIOND_BIN
# (FOLDER/attentiond if it is not set) the first notebook, the same with drawn matrices, and a bad request. It also runs two
# linters. NAME is lint, typescript, python, go or java; without a NAME, all of them run. The first run downloads packages from
# npm, PyPI, Go's proxy and Maven Central. Packages and generated files go to build/clients.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
document=$root/openapi.yaml
folder=$(realpath "${1:?usage: run.sh FOLDER [NAME...]}")
shift
[ $# != 0 ] || set -- lint typescript python go java
work=$root/build/clients
mkdir -p "$work"
log=$work/log.txt

quietly() { # COMMAND...: runs a command, and shows its output only if it fails
    "$@" >"$log" 2>&1 || { cat "$log"; echo "failed: $*"; exit 1; } >&2
}

check() { # NAME GENERATOR COMMAND...: runs a client, and lets check.py read what it prints
    "${@:3}" >"$work/$1.json" || { echo "$1 failed: ${*:3}" >&2; exit 1; }
    /usr/bin/python3 "$here/check.py" "$1 by $2" "$work/$1.json"
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
}

coproc DAEMON { exec "${ATTENTIOND_BIN:-$folder/attentiond}" --port 0 2>"$work/daemon.txt"; }
daemon=$DAEMON_PID
trap 'kill "$daemon" 2>/dev/null || true' EXIT
read -r line <&"${DAEMON[0]}"
url=${line##* }
for name in "$@"; do
    declare -F "run_$name" >/dev/null || { echo "run.sh: there is no client $name" >&2; exit 2; }
    mkdir -p "$work/typescript"
    (run_"$name")
done
