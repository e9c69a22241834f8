"""Promises 2, 6 and 8: many idle connections, many requests at one moment, and more clients than file descriptors."""
from hostile import *

COUNT = min(10000, allow_files(20000) - 200)
RESERVE = 200


def connect(daemon, count):
    """Opens this many connections. The list has None for each that failed."""
    connections = []
    for _ in range(count):
        try:
            connections.append(socket.create_connection(("127.0.0.1", daemon.port), 10))
        except OSError:
            connections.append(None)
    return connections


def close(connections):
    for connection in connections:
        if connection:
            connection.close()


def receives(connection):
    """Returns whether a 200 comes within 2 seconds."""
    connection.settimeout(2)
    try:
        return connection.recv(65536).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def answers(connections, message):
    """Sends the message on each connection, and returns how many get a 200."""
    for connection in connections:
        connection.sendall(message)
    return sum(map(receives, connections))


def until(condition, seconds):
    """Returns the seconds until the condition holds, or None if it does not hold in time."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.02)
    return None


def idle():
    with open(NOTEBOOK, "rb") as notebook:
        message = notebook.read()
    capacity = ["--body", NOTEBOOK, "--connections", 32, "--seconds", SECONDS]
    with Daemon("--max-connections", COUNT + RESERVE) as daemon:
        load(daemon, "/attention", *capacity)
        before = load(daemon, "/attention", *capacity)["goodput"]
        base, files = daemon.rss(), daemon.files()
        connections = connect(daemon, COUNT)
        missing = connections.count(None)
        check(6, f"{COUNT} connections", f"{missing} refused", "0", missing == 0)
        until(lambda: daemon.files() >= files + COUNT, 10)
        each = (daemon.rss() - base) / COUNT / 1024
        check(6, "memory of an idle connection", f"{each:.1f} KiB", "<= 8 KiB", each <= 8)
        good = answers(connections, request("/attention", message))
        each = (daemon.rss() - base) / COUNT / 1024
        check(6, "a request on each", f"{good} answered", f"{COUNT}", good == COUNT)
        check(6, "memory of a used connection", f"{each:.1f} KiB", "<= 40 KiB", each <= 40)
        after = load(daemon, "/attention", *capacity)["goodput"]
        check(6, "capacity beside them", f"{after / before:.2f} of {before:.0f}/s",
              ">= 0.9", after > 0, after >= 0.9 * before)
        close(connections)
        seconds = until(lambda: daemon.files() <= files + 1, 10)
        check(6, "descriptors after they have left", f"{daemon.files()} after {seconds} s", f"{files}", seconds is not None)


def burst():
    """libmicrohttpd takes 128 events at a time. After exactly 128 events it waits for one more before it serves them."""
    message = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    with Daemon("--io-threads", 1, cores=DAEMON_CORES[:1]) as daemon:
        connections = connect(daemon, 128)
        answers(connections, message)
        bursts, slowest, good = 0, 0.0, True
        while good and bursts < 20:
            bursts += 1
            daemon.signal(signal.SIGSTOP)
            for connection in connections:
                connection.sendall(message)
            daemon.signal(signal.SIGCONT)
            begun = time.monotonic()
            good = all(map(receives, connections))
            slowest = max(slowest, time.monotonic() - begun)
        check(2, f"128 requests in one moment to one thread, {bursts} x", f"{'all' if good else 'not all'} answered, "
              f"within {slowest:.2f} s", "20 x all within 1 s", good, slowest <= 1)


def crowd(what, daemon, clients):
    """More clients than there are descriptors connect, wait and leave."""
    connections = connect(daemon, clients)
    time.sleep(0.5)
    cpu = daemon.cpu()
    time.sleep(2)
    busy = (daemon.cpu() - cpu) / 2
    close(connections)
    check(8, f"{what}: CPU while {clients} clients wait", f"{busy * 100:.1f} %", "< 5 %", busy < 0.5, busy < 0.05)


def recovers(what, daemon):
    seconds = until(lambda: good(daemon), 5)
    check(8, f"{what}: answers again after", f"{seconds if seconds is None else round(seconds, 2)} s", "<= 1 s",
          seconds is not None and daemon.process.poll() is None, seconds is None or seconds <= 1)


def good(daemon):
    try:
        return daemon.get("/health/live", 1)[0] == 200
    except OSError:
        return False


idle()
burst()
with Daemon(files=256) as daemon:
    crowd("ulimit -n 256", daemon, 1000)
    recovers("ulimit -n 256", daemon)
with Daemon() as daemon:  # this daemon believes that it has more descriptors
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (100, 100))
    crowd("EMFILE at some connections", daemon, 1000)
    recovers("EMFILE at some connections", daemon)
with Daemon() as daemon:
    limits = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (daemon.files(), limits[1]))
    crowd("EMFILE at the first connection", daemon, 100)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, limits)
    recovers("EMFILE at the first connection", daemon)
finish()
