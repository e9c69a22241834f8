#!/usr/bin/env python3
"""Checks that server/port.sh calls a port taken exactly if the daemon could not listen there.

Sockets listen in each way that Linux knows. The kernel says whether the port of 127.0.0.1 is still free.
"""

import socket
import subprocess
import sys

# A family, an address, and whether a socket of IPv6 leaves IPv4 to others.
WAYS = [
    (socket.AF_INET, "127.0.0.1", 0),
    (socket.AF_INET, "127.0.0.2", 0),
    (socket.AF_INET, "0.0.0.0", 0),
    (socket.AF_INET6, "::", 0),
    (socket.AF_INET6, "::", 1),
    (socket.AF_INET6, "::1", 0),
    (socket.AF_INET6, "::1", 1),
    (socket.AF_INET6, "::ffff:127.0.0.1", 0),
    (socket.AF_INET6, "::ffff:127.0.0.2", 0),
    (socket.AF_INET6, "::ffff:0.0.0.0", 0),
]


def is_free(port):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", port))
            other.listen()
        except OSError:
            return False
    return True


def says(port):
    run = subprocess.run(["server/port.sh", "--port", str(port)], stderr=subprocess.PIPE, text=True)
    return run.returncode, run.stderr


def main():
    tried = failed = 0
    answers = set()
    for family, address, only in WAYS:
        try:
            with socket.socket(family) as listener:
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
                listener.bind((address, 0))
                listener.listen()
                port = listener.getsockname()[1]
                free, (status, text) = is_free(port), says(port)
        except OSError as error:
            print(f"left out: {address}, because {error}")
            continue
        tried += 1
        answers.add(free)
        if free != (status == 0) or free != (text == "") or (not free and f"Port {port} is taken" not in text):
            print(f"a socket listens at {address}{' for IPv6 only' if only else ''}, and the port is"
                  f" {'free' if free else 'taken'}, but port.sh ends with {status}: {text}")
            failed += 1
    if answers != {True, False}:
        sys.exit("no port was free, or none was taken")
    print(f"server/port.sh: {tried} ways to listen, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
