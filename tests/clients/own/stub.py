#!/usr/bin/python3
"""stub.py COMMAND... runs the test of a client (server/clients). $ATTENTIOND_URL is a daemon; if it is not set, the stub starts
$ATTENTIOND_BIN. The command gets $ATTENTIOND_URL, and $ATTENTIOND_STUB_URL, the address of a server that stands between the client
and the daemon. The first part of a path says how this server behaves, as `Stub` tells; the rest is the path at the daemon. After
the command, the stub checks how often each kind was asked: so it sees whether the client repeats what it should, and nothing else."""

import contextlib
import http.server
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

SAFETENSORS = "application/vnd.safetensors"
PROBLEM = "application/problem+json"
BUSY = json.dumps({"title": "Service Unavailable", "status": 503, "detail": "too much work waits"}).encode()
DEEP = b"[" * 100_000
# How many requests the test of each client sends to each kind, with the tries that must follow them. A client that keeps
# connections open may ask once more after a connection was closed.
EXPECTED = {"busy": (3,), "always": (5,), "lasting": (1,), "late": (4,), "html": (2,), "silent": (1,), "drip": (3,),
            "closed": (1, 2), "cut": (2,), "key": (1,), "chunked": (2,), "half": (1,), "broken": (15,), "slow": (1,), "moved": (2,),
            "followed": (0,), "deep": (3,), "lists": (1,), "order": (2,), "large": (1,), "reused": (2, 3), "open": (2,), "early": (1,)}


def safetensors(head, size):
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def broken(number):
    """Returns bytes that are no safetensors: their end is missing, the length of the header is too large, the header is a list, or
    a shape and offsets do not fit each other or the bytes."""
    tensor = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    wrong = [([2, 2], [8, 2 ** 62]), ([1, 2], [0, 16]), ([2 ** 62], [0, 0]), ([2 ** 62 + 1], [0, 4]), ([2 ** 32, 2 ** 32], [0, 0]),
             ([-2, -2], [0, 16]), ([-1], [0, 16]), ([1], [-4, 0]), ([1], [0.5, 4.5]), ([1], [0, 7]), (None, [0, 4])]
    heads = [{"output": {**tensor, "shape": shape, "data_offsets": offsets}} for shape, offsets in wrong] + [[1, 2]]
    return (safetensors({"output": tensor}, 15), b"\xff" * 7 + b"\x7f{}", safetensors({"output": {"dtype": "F32"}}, 16),
            *(safetensors(head, 16) for head in heads))[number - 1]


class Stub(http.server.BaseHTTPRequestHandler):
    """Each method answers a request for a path that begins with its name."""

    protocol_version = "HTTP/1.1"
    daemon = ""
    seen = {}
    first_busy = 0.0
    reusing = False  # this connection has had a request

    def do_POST(self):
        _, kind, self.rest = self.path.split("/", 2)
        self.body = b"" if kind == "slow" else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Stub.seen[kind] = Stub.seen.get(kind, 0) + 1
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client may leave first
            getattr(self, kind)(Stub.seen[kind])

    do_GET = do_POST  # of a client that follows a redirect

    def busy(self, number):
        """It is busy for one second and says so; the next request is refused once more. Who asks too early is not asked to wait."""
        if number == 1:
            Stub.first_busy = time.monotonic()
            self.say(503, "text/html", b"<html>busy</html>", {"Retry-After": "1"})
        elif time.monotonic() - Stub.first_busy < 1:
            self.say(503, PROBLEM, BUSY)
        elif number == 2:
            self.say(503, PROBLEM, BUSY, {"Retry-After": "0"})
        else:
            self.forward()

    def always(self, _):
        self.say(503, PROBLEM, BUSY, {"Retry-After": "0"})

    def lasting(self, _):
        self.say(503, PROBLEM, BUSY)

    def late(self, number):
        """It names a date, which RFC 9110 allows, then no number, and then one that is longer than any integer."""
        if number < 4:
            self.say(503, PROBLEM, BUSY, {"Retry-After": ("Fri, 31 Dec 1999 23:59:59 GMT", "\xb2", "0" * 5000)[number - 1]})
        else:
            self.forward()

    def html(self, number):
        """It answers as a proxy that fails, and then as a server that is not attentiond."""
        self.say(502 if number == 1 else 200, "text/html", b"<html>not attentiond</html>", {"Retry-After": "0"})

    def silent(self, _):
        """It answers after 20 seconds, so that a client without a time-out fails its test."""
        self.connection.settimeout(20)
        try:
            self.rfile.read(1)  # until the client leaves
        except TimeoutError:
            self.say(200, "application/json", b"{}")

    def slow(self, _):
        """It reads slowly for 20 seconds, and then answers. A body of 32 MB is longer than the buffers of both sides."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        for _ in range(200):
            if not self.rfile.read(1 << 16):
                return  # the client has left
            time.sleep(0.1)
        self.say(200, SAFETENSORS, safetensors({}, 0))

    def drip(self, number):
        """It sends a byte again and again: of JSON, which may begin with spaces, of a header, or of the size of a chunk."""
        if number == 1:
            self.begin(200, "application/json", {"Content-Length": "202"})
        elif number == 2:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX:")
        else:
            self.begin(200, "application/json", {"Transfer-Encoding": "chunked"})
        for _ in range(200):
            self.wfile.write(b" " if number < 3 else b"0")
            time.sleep(0.05)
        self.wfile.write((b"{}", b"\r\n\r\n{}", b"2\r\n{}\r\n0\r\n\r\n")[number - 1])

    def moved(self, number):
        """It redirects. The request and its API key must not go elsewhere, and a GET computes nothing."""
        self.say((302, 307)[number - 1], "text/html", b"<html>moved</html>", {"Location": "/followed/attention"})

    def followed(self, _):
        self.say(200, "application/json", b"{}")

    def deep(self, number):
        """Its JSON has too many levels: in an answer, in a problem document, and in the header of safetensors."""
        if number < 3:
            self.say((200, 422)[number - 1], "application/json", DEEP)
        else:
            self.say(200, SAFETENSORS, struct.pack("<Q", len(DEEP)) + DEEP)

    def lists(self, _):
        """Other services have lists in the places of texts."""
        self.say(422, "application/json", b'{"detail": [{"msg": "x"}], "pointer": null}')

    def order(self, _):
        """It refuses a request whose options do not come before its matrices."""
        text = self.body
        if self.headers["Content-Type"] == SAFETENSORS:
            text = text[8:8 + struct.unpack_from("<Q", text)[0]]
        members = json.loads(text, object_pairs_hook=list)
        late = [isinstance(value, list) and name != "__metadata__" for name, value in members]
        if late == sorted(late) and not late[0] and late[-1]:
            self.forward()
        else:
            self.say(400, PROBLEM, json.dumps({"detail": f"the order is {[name for name, _ in members]}"}).encode())

    def large(self, _):
        """Its answer has 64 MiB."""
        self.begin(200, "application/json", {"Transfer-Encoding": "chunked"})
        for _ in range(1024):
            self.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        self.wfile.write(b"2\r\n{}\r\n0\r\n\r\n")

    def reused(self, _):
        """It closes a connection that a client uses again, as a daemon does after --idle-timeout."""
        if not self.reusing:
            self.reusing = True
            self.forward(connection="keep-alive")

    def open(self, number):
        """It leaves the connection open after an answer that is complete."""
        self.forward(chunk=(0, 100)[number - 1])
        self.wfile.flush()
        self.connection.settimeout(20)
        self.rfile.read(1)

    def early(self, _):
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
        self.forward()

    def closed(self, _):
        pass

    def cut(self, _):
        """The answer says that it is longer than it is. Its JSON is whole."""
        self.begin(200, self.headers["Content-Type"], {"Content-Length": "1000"})
        self.wfile.write(b"{}")

    def key(self, _):
        if self.headers["Authorization"] == "Bearer secret":
            self.forward()
        else:
            self.say(401, PROBLEM, b'{"detail": "no API key"}')

    def chunked(self, _):
        self.forward(chunk=100)

    def half(self, _):
        self.say(200, SAFETENSORS, safetensors({"output": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}, 8))

    def broken(self, number):
        self.say(200, SAFETENSORS, broken(number))

    def forward(self, chunk=0, connection="close"):
        kind = {"Content-Type": self.headers["Content-Type"]}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{Stub.daemon}/{self.rest}", self.body, kind), timeout=30) as answer:
                self.say(answer.status, answer.headers["Content-Type"], answer.read(), {"Connection": connection}, chunk)
        except urllib.error.HTTPError as error:
            self.say(error.code, error.headers["Content-Type"], error.read())

    def begin(self, status, kind, more):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Connection": "close", **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def say(self, status, kind, body, more=None, chunk=0):
        """Sends an answer, in chunks of so many bytes unless this is 0."""
        self.begin(status, kind, {**(more or {}), **({"Transfer-Encoding": "chunked"} if chunk else {"Content-Length": str(len(body))})})
        for at in range(0, len(body), chunk or len(body)):
            piece = body[at:at + (chunk or len(body))]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunk else piece)
        self.wfile.write(b"0\r\n\r\n" if chunk else b"")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a request to `silent` may still be open


@contextlib.contextmanager
def daemon():
    """Yields the address of a daemon."""
    if "ATTENTIOND_URL" in os.environ:
        yield os.environ["ATTENTIOND_URL"]
        return
    with subprocess.Popen([os.environ["ATTENTIOND_BIN"], "--port", "0"], text=True, stdout=subprocess.PIPE) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def main():
    with daemon() as Stub.daemon, Server(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        known = {"ATTENTIOND_URL": Stub.daemon, "ATTENTIOND_STUB_URL": f"http://127.0.0.1:{server.server_port}"}
        status = subprocess.run(sys.argv[1:], env={**os.environ, **known}, check=False).returncode
        server.shutdown()
    wrong = {kind: Stub.seen.get(kind, 0) for kind, counts in EXPECTED.items() if Stub.seen.get(kind, 0) not in counts}
    for kind, count in wrong.items():
        print(f"stub.py: the client sent {count} requests to /{kind}, not {EXPECTED[kind][0]}", file=sys.stderr)
    return status or bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
