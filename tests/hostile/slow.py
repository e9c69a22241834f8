"""Promise 7: clients that are slow on purpose hold a connection until its deadline, and harm nobody else."""
import shutil
from hostile import *

COUNT = min(4000, allow_files(20000) - 200)
DEADLINE = 3
SIPPED = DEADLINE + 70  # seconds: 64 for the 4 MiB that the kernel takes at once
OPTIONS = ("--header-timeout", DEADLINE, "--body-timeout", DEADLINE, "--write-timeout", DEADLINE, "--idle-timeout", 4,
           "--max-connections", 5000)


def attack(name, path, *options):
    """The attack goes on until all of its connections have been cut off."""
    most = 30  # seconds: it may take half of them to open all
    with Daemon(*OPTIONS) as daemon:
        daemon.get("/health/live")
        files = daemon.files()
        with healthy(daemon, name):
            process = subprocess.Popen(
                ["slowhttptest", *options, "-u", f"http://127.0.0.1:{daemon.port}{path}", "-c", str(COUNT), "-r", "4000",
                 "-i", "1", "-l", "60", "-p", "5"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running.append(process)
            begun, peak, left = time.monotonic(), 0, COUNT
            while time.monotonic() < begun + most and (peak < COUNT / 4 or left > 2):
                time.sleep(0.05)
                left = daemon.files() - files - 1  # the probe's
                peak = max(peak, left)
            seconds = time.monotonic() - begun
        process.kill()
        process.wait()
    check(7, f"{name}, {COUNT} connections", f"{peak} at a time, {left} left after {seconds:.1f} s",
          f"a quarter at a time, <= 2 left after {most} s", peak >= COUNT / 4 and left <= 2)


def drip(daemon, first, rest):
    """Sends a byte in a second; seconds until it is cut off."""
    with socket.create_connection(("127.0.0.1", daemon.port), 10) as connection:
        begun = time.monotonic()
        connection.sendall(first)
        for byte in rest:
            connection.settimeout(1)
            try:
                if connection.recv(65536) == b"":
                    break
            except TimeoutError:
                pass
            except OSError:
                break
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                break
        return time.monotonic() - begun


def sip(daemon, message):
    """Takes 64 bytes in a tenth of a second of a long answer; seconds until it is cut off."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", daemon.port))
        connection.sendall(message)
        connection.recv(1)
        begun = time.monotonic()
        # The daemon's end is seen in its descriptors: what it had sent before would take hours to read.
        files = daemon.files()
        while daemon.files() >= files and time.monotonic() < begun + SIPPED:
            try:
                connection.recv(64)
            except OSError:
                break
            time.sleep(0.1)
        return time.monotonic() - begun


def single():
    with Daemon(*OPTIONS) as daemon:
        head = b"GET /health/live HTTP/1.1\r\nHost: a\r\nX: "
        seconds = drip(daemon, head[:4], head[4:] + b"a" * 20)
        check(7, "headers, 1 byte/s", f"cut after {seconds:.1f} s", f"{DEADLINE} + 1 s", seconds < 19, seconds <= DEADLINE + 1.2)
        head = b"POST /attention HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
        seconds = drip(daemon, head, b"[" * 20)
        check(7, "a body, 1 byte/s", f"cut after {seconds:.1f} s", f"{DEADLINE} + 1 s", seconds < 19, seconds <= DEADLINE + 1.2)
        answer = body(X=matrix(1024, 1), **{"return": ["weights"]})
        seconds = sip(daemon, request("/attention", answer))
        check(7, "an answer of 10 MB, 640 bytes/s", f"cut after {seconds:.1f} s", f"{DEADLINE} s and 1 for each 64 KiB, + 1 s",
              seconds < SIPPED)


if shutil.which("slowhttptest") is None:
    sys.exit("slowhttptest is missing: docker/packages.sh hostile")
single()
attack("slowhttptest -H (headers)", "/attention", "-H")
attack("slowhttptest -B (body)", "/attention", "-B", "-s", "65536")
attack("slowhttptest -X (reading)", "/openapi.yaml", "-X", "-k", "3", "-w", "8", "-y", "16", "-n", "5", "-z", "1")
finish()
