"""Promise 12: when a client leaves, the daemon cancels its work."""
from hostile import *

CLIENTS = 234  # nearly as many as the queue holds beside its reserve for small requests


def until(condition, seconds):
    begun = time.monotonic()
    while not condition() and time.monotonic() < begun + seconds:
        time.sleep(0.02)
    return time.monotonic() - begun


def probe(daemon, message):
    begun = time.monotonic()
    status = daemon.post("/attention", message)[0]
    return time.monotonic() - begun if status == 200 else float("inf")


huge = body(X=matrix(32768, 4), **{"return": ["lse"]})
small = body(X=matrix(256, 32))
with Daemon("--max-queue", "1e15") as daemon:
    alone = max(probe(daemon, small) for _ in range(20))
    one = probe(daemon, huge)
    connections = [socket.create_connection(("127.0.0.1", daemon.port), 10) for _ in range(CLIENTS)]
    for connection in connections:
        connection.sendall(request("/attention", huge))
    until(lambda: daemon.metric("attentiond_jobs ") >= 0.9 * CLIENTS, 20)
    queued = daemon.metric("attentiond_jobs ")
    cancelled = daemon.metric("attentiond_cancelled_total")
    begun = time.monotonic()
    for connection in connections:
        connection.close()
    latency = probe(daemon, small)
    until(lambda: daemon.metric("attentiond_jobs ") == 0, 60)
    seconds = time.monotonic() - begun
    skipped = daemon.metric("attentiond_cancelled_total") - cancelled
    check(12, f"{queued:.0f} clients leave the queue", f"{skipped:.0f} computations given up within {seconds:.2f} s",
          ">= 95 %", queued >= 0.9 * CLIENTS and skipped >= 0.95 * queued)
    check(12, "a request at that moment", f"{latency * 1000:.1f} ms; alone {alone * 1000:.1f} ms",
          f"<= {(alone + one) * 1000:.0f} ms: alone and one huge request", latency < float("inf"), latency <= alone + one)
finish()
