#!/bin/sh
# check.sh FILE.py:FUNCTION [OPTION...] checks an attention kernel on a machine with Docker, git, curl, and Python 3.9 or later with
# NumPy. Copy the file, and replace IMAGE by your image (`make image`) and ADDRESS by the address of this source. The status is
# 0 if the kernel is right, and kernel.xml has the cases as JUnit XML. The options are those of `python3 -m attentiond check`.
set -eu

work=$(mktemp -d)
service=
trap '[ -z "$service" ] || docker rm -f "$service" >/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

service=$(docker run -d --rm -p 127.0.0.1::8080 --read-only --cap-drop=ALL IMAGE)
url=http://$(docker port "$service" 8080/tcp)
git clone -q --depth 1 ADDRESS "$work/attentiond"
curl -fsS --retry 9 --retry-all-errors "$url/health/ready" >/dev/null
export PYTHONPATH="$work/attentiond/server/clients/python"
python3 -m attentiond check "$@" --url "$url" --junit kernel.xml
