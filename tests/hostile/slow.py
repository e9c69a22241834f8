"""Promise 7: a client that is too slow is disconnected at its deadline, and does not harm other clients."""
import shutil
from concurrent.futures import ThreadPoolExecutor
from hostile import *

COUNT = min(4000, allow_files(20000) - 200)
DEADLINE = 3
STOPPED = 2 * DEADLINE + 32  # seconds; only when the time for responses is over, the daemon looks at how much a client has read
OPTIONS = ("--header-timeout", DEADLINE, "--body-timeout", DEADLINE, "--write-timeout", DEADLINE, "--idle-timeout", 4,
           "--max-connections", 5000)


def attack(name, path, *options):
    """Attacks until the daemon has closed all connections of the attack. The attack needs more CPU than the daemon, so a busy
    machine needs long to open them all."""
    target, most = 30, 200  # seconds; opening all connections may take half of the target
    with Daemon(*OPTIONS) as daemon:
        daemon.get("/health/live")
        files = daemon.files()
        with healthy(daemon, name):
            process = subprocess.Popen(
                ["slowhttptest", *options, "-u", f"http://127.0.0.1:{daemon.port}{path}", "-c", str(COUNT), "-r", "4000",
                 "-i", "1", "-l", "300", "-p", "5"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running.append(process)
            begun, peak, left = time.monotonic(), 0, COUNT
            while time.monotonic() < begun + most and (peak < COUNT / 40 or left > 2):
                time.sleep(0.05)
                left = daemon.files() - files - 1  # without the connection of the probe
                peak = max(peak, left)
            seconds = time.monotonic() - begun
        process.kill()
        process.wait()
    check(7, f"{name}, {COUNT} connections", f"{peak} at a time, {left} left after {seconds:.1f} s",
          f"a quarter at a time, <= 2 left after {target} s", peak >= COUNT / 40 and left <= 2,
          peak >= COUNT / 4 and seconds <= target)


def send_slowly(daemon, first, rest):
    """Sends a byte in a second, and returns the seconds until the connection is closed."""
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


def read_slowly(daemon, message, rate, most, first=0):
    """Reads the `first` bytes of a long answer at once and then `rate` bytes in a second. Returns the seconds until the daemon
    closes the connection."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", daemon.port))
        connection.sendall(message)
        while first >= 0:
            first -= len(connection.recv(65536 if first else 1)) or 1
        begun, taken = time.monotonic(), 0
        # The daemon's descriptors show that it has closed the connection. Reading what it had sent would take hours.
        files = daemon.files()
        while daemon.files() >= files and time.monotonic() < begun + most:
            due = int((time.monotonic() - begun) * rate) - taken
            try:
                taken += len(connection.recv(due)) if due > 0 else 0
            except OSError:
                break
            time.sleep(0.05)
        return time.monotonic() - begun


def single():
    """Each client has a daemon of its own, so all of them are slow at the same time."""
    head = b"GET /health/live HTTP/1.1\r\nHost: a\r\nX: "
    post = b"POST /attention HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    message = request("/attention", body(X=matrix(1024, 1), **{"return": ["weights"]}))
    clients = [  # what it does, how it does it, the seconds that it may take, and those after which it should be cut off
        ("headers, 1 byte/s", lambda daemon: send_slowly(daemon, head[:4], head[4:] + b"a" * 20), 19, DEADLINE),
        ("a body, 1 byte/s", lambda daemon: send_slowly(daemon, post, b"[" * 20), 19, DEADLINE),
        ("an answer of 10 MB, 640 bytes/s", lambda daemon: read_slowly(daemon, message, 640, 40), 30, DEADLINE),
        ("an answer of 10 MB, 40000 bytes/s", lambda daemon: read_slowly(daemon, message, 40_000, 40), 30,
         DEADLINE / (1 - 40_000 / 65536) + 1),
        ("an answer of 10 MB, nothing after 8 MB", lambda daemon: read_slowly(daemon, message, 0, 60, first=8_000_000), 50,
         STOPPED + 1),
    ]

    def run(client):
        with Daemon(*OPTIONS) as daemon:
            return client(daemon)
    with ThreadPoolExecutor(6) as pool:
        steady = pool.submit(run, lambda daemon: read_slowly(daemon, message, 70_000, 40))
        for (what, _, most, target), seconds in zip(clients, pool.map(run, [client[1] for client in clients])):
            check(7, what, f"cut after {seconds:.1f} s", f"{target:.1f} + 1 s", seconds < most, seconds <= target + 1.2)
    check(7, "an answer of 10 MB, 70000 bytes/s", f"{steady.result():.1f} s and not cut", "40 s", steady.result() >= 40)


if shutil.which("slowhttptest") is None:
    sys.exit("slowhttptest is missing: docker/packages.sh hostile")
single()
attack("slowhttptest -H (headers)", "/attention", "-H")
attack("slowhttptest -B (body)", "/attention", "-B", "-s", "65536")
attack("slowhttptest -X (reading)", "/openapi.yaml", "-X", "-k", "3", "-w", "8", "-y", "16", "-n", "5", "-z", "1")
finish()
