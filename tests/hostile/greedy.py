"""Promise 5: others do not wait for clients whose small bodies cause much work, or that send more after they were refused."""
import gzip
import multiprocessing
import select
from hostile import *

COUNT = 100


def attack(port, message, more, seconds):
    """Opens COUNT connections that send the message and then `more` as long as they can. A connection that ends is replaced."""
    os.sched_setaffinity(0, LOAD_CORES)
    poller, connections = select.epoll(), {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(connections) < COUNT:
            connection = socket.create_connection(("127.0.0.1", port), 10)
            connection.sendall(message)
            connection.setblocking(False)
            poller.register(connection, select.EPOLLIN | (select.EPOLLOUT if more else 0))
            connections[connection.fileno()] = connection
        for fd, events in poller.poll(0.1):
            try:
                if events & ~select.EPOLLOUT and (not more or events & select.EPOLLHUP):
                    raise OSError("answered, or gone")
                if events & select.EPOLLOUT:
                    connections[fd].send(more)
            except BlockingIOError:
                pass
            except OSError:
                poller.unregister(fd)
                connections.pop(fd).close()


def during(what, message, more=b""):
    with Daemon("--compression", "yes") as daemon:
        daemon.get("/health/live")
        process = multiprocessing.Process(target=attack, args=(daemon.port, message, more, SECONDS + 1))
        process.start()
        time.sleep(1)
        with healthy(daemon, f"{COUNT} x {what}"):
            process.join()


def compressed(content):
    return request("/attention", gzip.compress(content), "Content-Encoding: gzip\r\n")


during("60 MiB of spaces in 60 KB", compressed(b" " * (60 << 20)))
during("20 MiB of zeros in 20 KB", compressed(b'{"X":[[' + b"0," * (10 << 20) + b"0]]}"))
during("a refusal that is not listened to", b"POST /attention HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n", b"a" * (1 << 18))
finish()
