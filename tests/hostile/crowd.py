"""A crowd of clients in one process, a probe in another one, and a thread that watches memory, for costs.py.

The crowd is one epoll loop. Each of its clients sends one message, or a part of it, and reads the answer at once, slowly or
never. The loop records when a request had been sent, when the first byte of its answer came, and how the request ended.
"""
import collections
import multiprocessing
import select
from hostile import *

RUN, CLOSE, DRAIN = range(3)  # the orders that the crowd can get
PATIENCE = 6  # seconds that a draining crowd waits for its last answers
TICK = 0.02  # seconds between two checks of the order, and between two reads of a slow client

# How one request ended. `status` is 0 without an answer; `whole` is false if the answer was cut.
# `waited` are the seconds from the last byte of the request to the first byte of the answer, or to the end.
Ending = collections.namedtuple("Ending", "group sent waited over status whole")
SEGMENT = 536  # bytes; the kernel makes the send buffer of a connection as small as its segments are


class Group(collections.namedtuple("Group", "message count read buffer repeat timeout waits pace")):
    """A group of `count` clients that send `message`. They read `read` bytes in a second (0: they never read, None: they read at once).

    `buffer` is the size of the receive buffer. With `repeat` a client sends its message again when it has its answer. The
    answer is due after `timeout` seconds. If `waits` is false, the message is not a whole request, so no answer is due.
    `pace` clients connect in a second (None: all connect at once).
    """

    def __new__(cls, message, count=1, read=None, buffer=None, repeat=True, timeout=None, waits=True, pace=None):
        return super().__new__(cls, message, count, read, buffer, repeat, timeout, waits, pace)


class Client:
    def __init__(self, number, group, port):
        self.number, self.group = number, group
        self.socket = socket.socket()
        if group.buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, group.buffer)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.begin()

    def begin(self):
        self.rest, self.sent, self.first = memoryview(self.group.message), None, None
        self.head, self.left, self.tail, self.status = b"", None, b"", 0

    def send(self):
        while self.rest:
            self.rest = self.rest[self.socket.send(self.rest[:1 << 18]):]
        self.sent = self.sent or time.monotonic()

    def is_owed(self):
        """Returns whether this client has begun to send a request whose answer it reads at once."""
        return self.group.waits and self.group.read is None and len(self.rest) < len(self.group.message)

    def read(self, most):
        """Reads more of the answer, and returns whether it is whole. Raises OSError at the end of the connection."""
        data = self.socket.recv(most)
        if not data:
            raise OSError("the end")
        self.first = self.first or time.monotonic()
        if self.status == 0:
            self.head += data
            head, gap, data = self.head.partition(b"\r\n\r\n")
            if not gap:
                return False
            self.status = int(head.split(b" ")[1])
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            self.left = int(length[1]) if length else None
        if self.left is None:  # chunks: no answer of the daemon has these bytes before its end
            self.tail = (self.tail + data)[-7:]
            return self.tail == b"\r\n0\r\n\r\n"
        self.left -= len(data)
        return self.left <= 0


class Loop:
    def __init__(self, port, groups):
        self.port, self.poller = port, select.epoll()
        self.clients, self.endings, self.draining = {}, [], False
        self.back = []  # refused clients of a group with a pace, which connect again one tick later
        self.coming = [(number, group, group.count) for number, group in enumerate(groups)]
        self.come(0)

    def come(self, seconds):
        """Connects the clients that are due after this many seconds."""
        for i, (number, group, left) in enumerate(self.coming):
            due = group.count if group.pace is None else min(group.count, int(group.pace * seconds))
            for _ in range(due - (group.count - left)):
                self.add(number, group)
            self.coming[i] = (number, group, group.count - due)
        back, self.back = self.back, []
        for client in back:
            self.add(client.number, client.group)

    def add(self, number, group):
        try:
            client = Client(number, group, self.port)
        except OSError:
            return
        self.clients[client.socket.fileno()] = client
        self.poller.register(client.socket, select.EPOLLOUT | select.EPOLLRDHUP)

    def note(self, client, whole):
        now = time.monotonic()
        sent, first = client.sent or client.first, client.first or now  # an answer may come before the whole request is sent
        if client.group.waits and sent:
            self.endings.append(Ending(client.number, sent, first - sent, now, client.status, whole))

    def drop(self, client):
        fd = client.socket.fileno()
        self.poller.unregister(fd)
        del self.clients[fd]
        client.socket.close()

    def ended(self, client, whole):
        self.note(client, whole)
        again = client.group.repeat and not self.draining
        if whole and again and not client.rest and not client.group.pace:
            client.begin()
            self.poller.modify(client.socket, select.EPOLLOUT | select.EPOLLRDHUP)
            return
        self.drop(client)
        if again and client.group.pace:
            self.back.append(client)
        elif again:
            self.add(client.number, client.group)

    def serve(self, client, events):
        try:
            if events & select.EPOLLOUT and client.rest:
                with contextlib.suppress(BlockingIOError):
                    client.send()
                    reads = select.EPOLLIN if client.group.read is None else 0
                    self.poller.modify(client.socket, reads | select.EPOLLRDHUP)
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP) and \
                    (client.group.read is None or client.rest) and client.read(1 << 18):
                self.ended(client, True)
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self.ended(client, False)
        except BlockingIOError:
            pass
        except OSError:
            self.ended(client, False)

    def sip(self):
        """Lets the slow clients read their share of this tick."""
        for client in [c for c in self.clients.values() if c.group.read and not c.rest]:
            try:
                if client.read(max(1, int(client.group.read * TICK))):
                    self.ended(client, True)
            except BlockingIOError:
                pass
            except OSError:
                self.ended(client, False)

    def run(self, order):
        """Serves the clients until the order is CLOSE. With the order DRAIN it ends when no answer is due, or after PATIENCE
        seconds."""
        begun, most = time.monotonic(), float("inf")
        next_sip = begun
        while order.value != CLOSE and time.monotonic() < most:
            if order.value == DRAIN and not self.draining:
                self.draining, most = True, time.monotonic() + PATIENCE
            if self.draining and not any(client.is_owed() for client in self.clients.values()):
                break
            for fd, events in self.poller.poll(TICK, 64):
                if fd in self.clients:
                    self.serve(self.clients[fd], events)
            if time.monotonic() >= next_sip:
                self.come(time.monotonic() - begun)
                self.sip()
                next_sip += TICK
        for client in self.clients.values():
            self.note(client, False)


def crowd_process(port, groups, order, pipe):
    os.sched_setaffinity(0, LOAD_CORES)
    os.nice(10)  # the probe and the load generator measure, so they have priority
    allow_files(4000)
    loop = Loop(port, groups)
    pipe.send("open")
    loop.run(order)
    pipe.send(loop.endings)


class Process:
    """A child process. `order` tells it what to do, and it sends its results when it ends."""

    def __init__(self, function, *arguments):
        self.order = multiprocessing.Value("i", RUN)
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=function, args=(*arguments, self.order, other), daemon=True)
        self.process.start()
        other.close()

    def tell(self, order):
        self.order.value = order

    def end(self, order=CLOSE):
        """Returns the results of the child."""
        self.tell(order)
        found = self.pipe.recv()
        self.process.join()
        return found


class Crowd(Process):
    def __init__(self, daemon, groups):
        super().__init__(crowd_process, daemon.port, groups)
        self.pipe.recv()


def probe_process(port, order, pipe):
    """Asks /health/live about 200 times in a second on one connection."""
    os.sched_setaffinity(0, LOAD_CORES)
    times, bad = [], 0
    connection = socket.create_connection(("127.0.0.1", port), 30)
    while order.value == RUN:
        begun = time.monotonic()
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        try:
            good = connection.recv(4096).startswith(b"HTTP/1.1 200")
        except OSError:
            good = False
        bad += not good
        if not good:
            break
        times.append(time.monotonic() - begun)
        time.sleep(max(0, 0.005 - times[-1]))
    connection.close()
    pipe.send((sorted(times), bad))


class Watch(threading.Thread):
    """Reads the resident memory every 10 ms, and the metric every 100 ms."""

    def __init__(self, daemon):
        super().__init__()
        self.daemon_, self.peak, self.pairs, self.ending = daemon, 0, [], threading.Event()

    def run(self):
        beat = 0
        while not self.ending.wait(0.01):
            self.peak = max(self.peak, self.daemon_.rss())
            beat += 1
            if beat % 10 == 0:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    counted = self.daemon_.metric("attentiond_memory_bytes")
                    self.pairs.append((self.daemon_.rss(), counted))

    def settle(self, most=10):
        """Returns when the peak has not grown for half a second. A slow machine needs longer until all memory is held."""
        end, before = time.monotonic() + most, -1
        while self.peak > before + (1 << 20) and time.monotonic() < end:
            before = self.peak
            time.sleep(0.5)

    def end(self):
        self.ending.set()
        self.join()
        return self


def forget_peak(daemon):
    """Resets VmHWM if the kernel allows it. Then `rss("VmHWM")` is the peak since this call."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{daemon.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

