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
case $port$address in '' | 0* | *[!0-9]* | ??????*) exit 0 ;; esac
# /proc has numbers in hexadecimal; the state 0A is that of a socket that listens. /proc does not tell whether a socket
# on :: leaves IPv4 to others (IPV6_V6ONLY). If the socket does, the kernel refuses a connection by IPv4.
listens=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v end="$(printf ':%04X' "$port")" '
    $4 == "0A" && $2 ~ "^(0+FFFF0000)?(00000000|0100007F)" end "$" { ipv4 = 1 }
    $4 == "0A" && $2 ~ "^0+" end "$" { any = 1 }
    END { print ipv4 ? "at IPv4" : any ? "at ::" : "" }')
[ -n "$listens" ] || exit 0
if [ "$listens" = "at ::" ]; then
    status=0
    timeout 2 bash -c ": </dev/tcp/127.0.0.1/$port" 2>/dev/null || status=$?
    [ $status != 1 ] || exit 0
fi
echo "Port $port is taken. Another one: make run ARGS=\"--port $((port < 65535 ? port + 1 : 65534))\"" >&2
exit 1
