#!/bin/bash
# test-compose.sh runs all commands of docker/README.md in a copy of the tree, and checks what the page says. The fleet
# of compose.yaml answers every notebook through TLS and HTTP/2. It loses no request while one replica is killed, and
# while all are replaced by a new version that does not start. A fleet of the version before (its sources come from git)
# loses none while it gets this version and goes back, and both answer the notebooks alike. Podman is used if Docker's
# daemon does not answer. Images that no registry gives are made of Debian packages, except Grafana's, which is then left
# out.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "test-compose: $*"; }
fail() {
    say "$*" >&2
    exit 1
}

# page HEADING [N] prints the commands below this heading of the page, or only those of the block N.
page() {
    awk -v heading="## $1" -v wanted="${2:-0}" '
        /^## / { here = $0 == heading; n = 0 }
        /^```/ { code = here && $0 == "```sh"; n += code; next }
        code && (wanted == 0 || wanted == n)' docker/README.md
}

# run_page HEADING [N] runs them. Arguments of the last command may follow.
run_page() {
    local commands
    commands=$(page "$1" "${2:-0}")
    [ -n "$commands" ] || fail "README.md has no commands below '$1'"
    say "commands: $1"
    (cd docker && timeout 600 bash -ec "$commands ${*:3}") >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "the commands fail"; }
}

# ---------------------------------------------------------------------------------------- images

from_debian() { # IMAGE LINE...: makes the image of Debian packages, unless the registry has it
    engine image inspect "$1" >/dev/null 2>&1 && return
    timeout 60 "${engine[@]}" pull -q "$1" >"$work/pull" 2>&1 && return
    say "no registry: making $1 of Debian's package"
    printf '%s\n' "FROM $base" 'ENV DEBIAN_FRONTEND=noninteractive' "${@:2}" |
        engine build -q "${build_flags[@]}" -t "$1" - >"$work/build" 2>&1 ||
        { cat "$work/build" >&2; fail "the build of $1 fails"; }
}

# get_before FOLDER: puts the sources of the version before this one there: those of the newest tag of a version behind
# HEAD or, without tags, those of the newest commit that CHANGELOG.md names. Without this commit they are those of this
# tree, and only a label makes another image of them.
get_before() {
    local commit
    commit=$(git -c versionsort.suffix=- tag --merged HEAD --no-contains HEAD --sort=-v:refname -l 'v[0-9]*' \
        2>/dev/null | head -n 1) || true
    # shellcheck disable=SC2016  # the commit stands between backticks
    [ -n "$commit" ] || commit=$(sed -n 's/.*commit `\([0-9a-f]\{40\}\)`.*/\1/p' CHANGELOG.md | head -n 1)
    mkdir "$1"
    if git ls-files --error-unmatch docker/test-compose.sh >/dev/null 2>&1 &&
        git cat-file -e "$commit^{commit}" 2>/dev/null; then
        git archive "$commit" | tar -xC "$1"
        say "the version before is $(version_of "$1"), $commit"
    else
        say "the upgrade from another version is left out: these sources have no history with ${commit:-a version}"
        cp -r "$work/tree/." "$1"
        echo 'LABEL version=before' >>"$1/docker/Dockerfile"
    fi
}

version_of() { # FOLDER: prints the version of the sources there
    sed -n 's/^#define ATTN_VERSION  *"\(.*\)"/\1/p' "$1/lib/include/attention.h"
}

build() { # FOLDER: builds the image of the sources there. With more replicas, podman-compose would build it for each.
    (use_engine && cd "$1/docker" && REPLICAS=1 docker compose build) >"$work/build" 2>&1 ||
        { cat "$work/build" >&2; fail "the build of $1 fails"; }
}

prepare() {
    export work started COMPOSE_PROJECT_NAME=attentiond-test
    started=$(date +%s%3N)
    # shellcheck source=docker/engine.sh
    . docker/engine.sh
    trap remove_work EXIT
    trap 'exit 130' INT TERM
    mkdir "$work/tree" "$work/bin" "$work/networks"
    cp -r --parents .dockerignore Makefile LICENSE openapi.yaml lib server docker tests/notebooks "$work/tree"
    rm -rf "$work"/tree/docker/{secrets,.env,compose.override.yaml}

    find_base trixie
    install='apt-get update -q && apt-get install -qy --no-install-recommends'
    from_debian docker.io/library/haproxy:3.2 "RUN $install haproxy" 'USER haproxy' 'STOPSIGNAL SIGUSR1' \
        'CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]'
    from_debian docker.io/prom/prometheus:v3.5.0 "RUN $install prometheus" \
        'RUN mkdir /prometheus && chown nobody /prometheus' 'USER nobody' 'VOLUME /prometheus' \
        'CMD prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus'

    export grafana=docker.io/grafana/grafana:12.1.1
    engine image inspect $grafana >/dev/null 2>&1 || timeout 60 "${engine[@]}" pull -q $grafana >"$work/pull" 2>&1 ||
        { grafana= && say "no registry: Grafana is left out"; }

    namespace=()
    docker/packages.sh compose python
    if [ "${engine[0]}" = podman ]; then
        tests/support/venv.sh "$PWD/build/podman-compose" docker/requirements-compose.txt
        ln -s "$PWD/build/podman-compose/bin/podman-compose" "$work/bin"
        # The commands of the page call this program instead of podman.
        cat >"$work/bin/podman" <<X
#!/bin/bash
[ "\$1" != build ] || set -- build ${build_flags[*]} --build-arg BASE=$base "\${@:2}"
exec $(command -v podman) ${engine[*]:1} --log-level error "\$@"
X
        chmod +x "$work/bin/podman"
        cat >"$work/containers.conf" <<X
[containers]
default_ulimits = ["nofile=1024:$(ulimit -Hn)", "nproc=4096:4096"]
[network]
network_backend = "netavark"
network_config_dir = "$work/networks"
X
        export CONTAINERS_CONF=$work/containers.conf PATH=$work/bin:$PATH DOCKER_IS=podman
        # Root's podman would change the networks of the machine.
        [ "$(id -u)" != 0 ] || namespace=(unshare -m -n -p --fork --kill-child --mount-proc --propagation private)
    fi
    cp docker/test-compose.sh "$work/tree/docker"
    get_before "$work/before"
    build "$work/before"
    engine tag attentiond attentiond:last
    build "$work/tree"
    "${namespace[@]}" "$work/tree/docker/test-compose.sh" fleet
}

use_engine() {
    [ "${DOCKER_IS:-docker}" = docker ] || { eval "$(page 'Podman instead of Docker')" && export -f docker; }
}

# ----------------------------------------------------------------------------------------- fleet

replicas() { docker ps -q -f label=attentiond=replica; }

wait_for() { # COUNT: waits until this number of replicas has passed HAProxy's check
    local up=none
    for _ in {1..150}; do
        up=$(curl -s -m 5 http://127.0.0.1:8404/metrics | grep -c 'server_check_status{.*L7OK"} 1$') || true
        [ "$up" != "$1" ] || return 0
        sleep 0.2
    done
    { cat "$work/said" && docker compose -f docker/compose.yaml logs haproxy 2>&1 | tail -n 20; } >&2 || true
    fail "HAProxy has ${up:-no} replicas after 30 s, not $1"
}

# start_load [OPTION...]: four clients send 25 requests a second each, and change their connection after 20 of them. A
# line with the status follows each answer. curl gets the options.
start_load() {
    local client
    touch "$work/load"
    cp docker/secrets/certificate.pem "$work"
    for client in 1 2 3 4; do
        while [ -e "$work/load" ]; do
            curl -s -m 30 --rate 25/s --cacert "$work/certificate.pem" -w 'status %{http_code}\n' "$@" \
                -d '{"X": [[1, 2], [3, 4]], "digits": 3}' "$edge/attention#[1-20]" || true
        done >"$work/answers.$client" &
    done
}

end_load() { # NAME
    local sent right
    rm "$work/load"
    wait
    sent=$(cat "$work"/answers.? | grep -c 'status [0-9]*$')
    right=$(cat "$work"/answers.? | grep -cFx "$answer") || true
    say "$1: $sent requests, $((sent - right)) lost or wrong"
    [ "$sent" = "$right" ] || { cat "$work"/answers.? | sort | uniq -c >&2; fail "a request got no right answer"; }
}

replace_all() {
    local old
    old=$(replicas | sort)
    run_page 'A new version without a lost request' 2
    [ -z "$(comm -12 <(echo "$old") <(replicas | sort))" ] || fail "a replica was not replaced"
}

image() { docker image inspect --format '{{.Id}}' "$1" | sed s/^sha256://; } # NAME: prints its id

has_image() { # CONTAINER IMAGE
    [ "$(docker inspect --format '{{.Image}}' "$1" | sed s/^sha256://)" = "$2" ]
}

have_image() { # IMAGE: fails unless every replica runs it
    local one
    for one in $(replicas); do
        has_image "$one" "$1" || fail "a replica has another image"
    done
}

try_notebooks() { # [OPTION...]
    python3 docker/try-notebooks.py $edge "$@" --http2 --cacert docker/secrets/certificate.pem || fail "wrong answers"
}

# upgrade: a fleet is started with the image and the files of the version before. It gets this version and goes back.
upgrade() {
    local old new answers=$work/answers-before
    old=$(image attentiond:last)
    # The page stays this one, and whoever gets new sources keeps the secrets.
    mv docker "$work/docker"
    cp -r "$work/before/docker" .
    cp "$work/docker/README.md" docker
    docker tag attentiond:last attentiond
    run_page 'A fleet of three'
    wait_for 3
    have_image "$old"
    cp "$work/docker/try-notebooks.py" docker
    try_notebooks --requests "$work/before/tests/notebooks" --write "$answers"
    start_load
    rm -rf "$work/docker/secrets"
    mv docker/secrets "$work/docker"
    mv docker "$work/docker-before"
    mv "$work/docker" .
    run_page 'A new version without a lost request' 1
    new=$(image attentiond)
    [ "$old" != "$new" ] || fail "this version has the image of the one before"
    replace_all
    have_image "$new"
    try_notebooks --requests "$work/before/tests/notebooks" --compare "$answers"
    run_page 'Back to the version before'
    replace_all
    have_image "$old"
    try_notebooks --requests "$work/before/tests/notebooks" --compare "$answers"
    end_load "from $(version_of "$work/before") to $(version_of .) and back"
    remove_fleet
    docker tag "$new" attentiond
}

ready_after() { # CONTAINER: prints the milliseconds from the start of its process until the daemon was ready
    local pid ready
    pid=$(docker inspect --format '{{.State.Pid}}' "$1")
    ready=$(docker logs "$1" 2>&1 | sed -n 's/ attentiond: started at .*//p')
    # Field 20 behind the name is the time of the start in ticks since the machine has started.
    awk -v now="$(date +%s.%N)" -v up="$(cut -d' ' -f1 /proc/uptime)" -v ready="$(date -d "$ready" +%s.%N)" \
        -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.0f ", (ready - now + up - $20 / hz) * 1000 }' \
        "/proc/$pid/stat"
}

sees() { # COUNT: waits until Prometheus scrapes this number of replicas and HAProxy, and nothing else
    local seen
    for _ in {1..60}; do
        seen=$(curl -s -m 5 'http://127.0.0.1:9090/api/v1/targets?state=active' | grep -o '"health":"[a-z]*"' |
            sort | uniq -c | xargs) || true
        [ "$seen" != "$(($1 + 1)) health:up" ] || return 0
        sleep 1
    done
    fail "after 60 s, Prometheus sees ${seen:-nothing}, not $1 replicas and HAProxy"
}

check_grafana() { # Its files must fit together, also if Grafana itself is left out.
    /usr/bin/python3 - <<'X'
import json, sys, urllib.parse, yaml

def load(name):
    with open("docker/" + name, encoding="utf-8") as file:
        return yaml.safe_load(file)

services = load("compose.yaml")["services"]
mounts = dict(volume.split(":")[1::-1] for volume in services["grafana"]["volumes"])
provider, = load("grafana/dashboards/attentiond.yaml")["providers"]
source, = load("grafana/datasources/prometheus.yaml")["datasources"]
address = urllib.parse.urlsplit(source["url"])
dashboard = mounts.get(provider["options"]["path"] + "/attentiond.json", "")
if mounts.get("/etc/grafana/provisioning") != "./grafana":
    sys.exit("compose.yaml does not mount the files of Grafana")
if not json.load(open("docker/" + dashboard, encoding="utf-8"))["uid"] == "attentiond":
    sys.exit("the dashboard is not in the folder of its provider")
if source["type"] != address.hostname or not services["prometheus"]["ports"][0].endswith(f":{address.port}"):
    sys.exit("the data source is not Prometheus")
X
}

start_metrics() {
    # Without Grafana's image only Prometheus is started.
    run_page Metrics 0 "$([ -n "$grafana" ] || echo prometheus)"
    sees 3
    check_grafana || fail "the files of Grafana are wrong"
    [ -z "$grafana" ] ||
        curl -fs --retry 9 --retry-all-errors -o "$work/said" http://127.0.0.1:3000/api/dashboards/uid/attentiond ||
        fail "Grafana has no dashboard"
}

status() { curl -s -o /dev/null -w '%{http_code}' --cacert docker/secrets/certificate.pem "$@" "$edge/version"; }

remove_fleet() { # also that of a test that was killed
    rm -f "$work/load"
    docker compose -f docker/compose.yaml --profile metrics down -v >/dev/null 2>&1 || true
    # shellcheck disable=SC2046  # each container is a word
    docker rm -f $(docker ps -aq -f label=com.docker.compose.project=attentiond-test) >/dev/null 2>&1 || true
}

fleet() {
    local victim pid one key before loop
    edge=https://localhost:8443
    trap remove_fleet EXIT
    trap 'say "line $LINENO: a command fails" >&2' ERR
    remove_fleet
    [ -z "$(docker ps -aq -f label=attentiond=replica)" ] || fail "there is a fleet already"
    # shellcheck disable=SC2154  # work, started and grafana are in the environment
    if (cd docker && docker compose up -d) >"$work/said" 2>&1 || ! grep -q 'certificate\.pem' "$work/said"; then
        cat "$work/said" >&2
        fail "no error says that the certificate is missing"
    fi
    remove_fleet

    run_page 'A fleet of three'
    answer=$(tail -n 1 "$work/said")
    wait_for 3
    say "$(($(date +%s%3N) - started)) ms from the start of this test to a fleet of three; ms from the engine's" \
        "making each replica's process until it was ready: $(for one in $(replicas); do ready_after "$one"; done)"
    try_notebooks
    [ "$(curl -s -o /dev/null -w '%{http_version}' --cacert docker/secrets/certificate.pem $edge/version)" = 2 ] ||
        fail "a client with HTTP/2 gets another version"
    curl -s http://127.0.0.1:8404/metrics >"$work/metrics"
    one=$(grep -c '^haproxy_server_http_responses_total{proxy="replicas",.*code="2xx"} [1-9]' "$work/metrics")
    [ "$one" = 3 ] || fail "$one replicas have answered, not 3"

    start_load
    sleep 1
    victim=$(replicas | tail -n 1)
    # The engine restarts a replica whose process dies, but not after `docker kill`. Only root may kill the process itself.
    pid=$(docker inspect --format '{{.State.Pid}}' "$victim")
    { [ "$(cat "/proc/$pid/comm")" = attentiond ] && kill -KILL "$pid"; } 2>"$work/said" ||
        { docker kill "$victim" && sleep 3 && docker start "$victim"; } >"$work/said"
    sleep 3
    wait_for 3
    end_load "one replica is killed"

    remove_fleet
    upgrade
    run_page 'A fleet of three'
    wait_for 3
    before=$(image attentiond)
    cp docker/Dockerfile "$work"
    echo 'CMD ["--port", "9000"]' >>docker/Dockerfile # No check finds it.
    run_page 'A new version without a lost request' 1
    start_load
    loop=$(page 'A new version without a lost request' 2)
    # HAProxy takes a new address for ready until its check fails. The loop must not.
    loop=${loop/docker compose up/sleep 2; docker compose up}
    loop=${loop/sleep 1/sleep 0.01}
    (cd docker && timeout 40 bash -ec "$loop") >"$work/said" 2>&1 || true
    [ "$(for one in $(replicas); do has_image "$one" "$before" && echo old; done | wc -l)" = 2 ] ||
        { cat "$work/said" >&2; fail "the loop does not stay at a replica that does not start"; }
    run_page 'Back to the version before'
    for one in $(docker ps -aq -f label=attentiond=replica); do
        has_image "$one" "$before" || docker rm -f "$one" >"$work/said" 2>&1
    done
    (cd docker && docker compose up -d --no-recreate) >"$work/said" 2>&1
    wait_for 3
    end_load "a version that does not start is taken back"
    cp "$work/Dockerfile" docker
    have_image "$before"

    start_metrics
    run_page 'API keys' 1
    key=$(cat docker/secrets/keys.txt)
    start_load -H "Authorization: Bearer $key"
    replace_all
    end_load "all replicas get keys"
    [ "$(status)" = 401 ] || fail "a request without a key gets $(status)"
    start_metrics
    run_page 'API keys' 2
    sleep 1
    key=$(tail -n 1 docker/secrets/keys.txt)
    for one in 1 2 3 4 5 6; do
        [ "$(status -H "Authorization: Bearer $key")" = 200 ] || fail "a replica does not know the new key"
    done

    run_page 'Ten replicas'
    wait_for 10
    sees 10
    (cd docker && docker compose stop attentiond) >"$work/said" 2>&1
    for one in $(docker ps -aq -f label=attentiond=replica); do
        docker inspect --format '{{.State.ExitCode}}' "$one"
    done | sort | uniq -c >"$work/statuses"
    [ "$(xargs <"$work/statuses")" = "10 0" ] ||
        { cat "$work/statuses" >&2; fail "the exit statuses are not ten times 0"; }
    run_page Stop
    run_page 'One container'
    say "all ten replicas ended with status 0; all well"
}

case ${1:-} in
'') prepare ;;
fleet)
    use_engine
    if [ "${DOCKER_IS:-}" = podman ] && [ "$(id -u)" = 0 ]; then
        ip link set lo up
        mount -t tmpfs tmpfs /run # Podman's networks and their names are here.
    fi
    fleet
    ;;
esac
