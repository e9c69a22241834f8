#!/bin/sh
# port.sh [OPTION...] fails if the port of the daemon with these options is taken. `make run` calls it before it installs
# and builds anything. With an address of its own, the daemon itself finds out.
set -eu

port=${ATTENTIOND_PORT:-8080} address=${ATTENTIOND_ADDRESS:-}
while [ $# -gt 0 ]; do
    case $1 in
    --port) port=${2:-} ;;
    --port=*) port=${1#*=} ;;
    --address | --address=*) address=$1 ;;
    -h | --help | --version | --health-check) exit 0 ;;
    esac
    shift
done
case $port$address in '' | 0* | *[!0-9]*) exit 0 ;; esac
# /proc has numbers in hexadecimal; the state 0A is that of a socket that listens.
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v end="$(printf ':%04X' "$port")" '
    $4 == "0A" && $2 ~ "^(0+|(0+FFFF0000)?0100007F)" end "$" { taken = 1 }
    END { exit !taken }' || exit 0
echo "Port $port is taken. Another one: make run ARGS=\"--port $((port + 1))\"" >&2
exit 1
