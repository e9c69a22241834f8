"""Promises 4, 5, 9 and 20: the daemon counts and limits the cost of a request, even if its body is short.

Each case attacks with requests whose cost is easy to miss. tests/README.md has a table of the kinds. In every case:
- memory stays within its bound, and the metric of memory is right;
- answers come within their time limits, and /health/live and other requests are answered;
- SIGTERM during the attack loses no admitted request.
COSTS=rows,columns tries only these kinds.
"""
from crowd import *

MIB = 1 << 20
LIMITS = ("--max-memory", "64MiB", "--total-memory", "128MiB")
COMPUTE_TIMEOUT = 2
SECONDS_A, SECONDS_B = 1.0, 0.3  # how long the attack lasts before its clients leave, and before SIGTERM
HANG = 2  # seconds; an answer may not come later than this after its time limit, on any machine
RANDOM = {"generator": "torch", "seed": 1}
SMALL = b'{"X":[[1,2],[3,4]],"return":["output"]}'
EVERYTHING = ["output", "weights", "scores", "scaled_scores", "masked_scores", "lse", "entropy", "top_k", "present_K",
              "present_V", "Q", "K", "V"]


def draw(*shape, kind="rand", **more):
    return {"random": kind, "shape": list(shape), **more}


def call(path="/attention", headers="", **members):
    return request(path, body(random=RANDOM, **members), headers)


def returning(*names):
    return {"return": list(names)}


def chunked(message):
    """Returns the same request in chunks of 1000 bytes."""
    head, _, content = message.partition(b"\r\n\r\n")
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    pieces = [content[i:i + 1000] for i in range(0, len(content), 1000)]
    return head + b"\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def unfinished(start, piece, size, path="/attention"):
    """Returns a request whose head promises a body of 1 MiB, but which has only `size` bytes of it."""
    content = start + piece * ((size - len(start)) // len(piece))
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {MIB}\r\n\r\n".encode() + content


def unfinished_chunk(start, piece, size):
    content = start + piece * ((size - len(start)) // len(piece))
    return b"POST /attention HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(content), content)


def filled(start, piece, end, size):
    return start + piece * ((size - len(start) - len(end)) // len(piece)) + end


# --------------------------------------------------------------------------------------------------- the bystanders

class Bystanders:
    """Other clients, which send 150 requests in a second on 8 connections. A case may replace their medium requests."""

    def __init__(self, content, daemon):
        self.file = write("beside.json", content)
        self.expected = write("beside.expected", daemon.post("/attention", content)[1])

    def start(self, daemon, *options):
        return start_load(daemon, "/attention", "--body", self.file, "--expect", self.expected, "--connections", 8, "--rate", 150,
                          "--warm", "yes", *options)


def p99(result):
    """Returns the p99 of the latency of 200s in milliseconds."""
    return result["latency_200"].get("p99", float("inf")) / 1000


# A medium request costs more than an I/O thread computes itself, so the workers compute it.
MEDIUM = body(X=matrix(160, 64), **returning("output"))


def alone(content):
    """Returns the p99 of these requests without an attack, as the median of three runs."""
    with Daemon() as daemon:
        bystanders = Bystanders(content, daemon)
        return sorted(p99(end_load(bystanders.start(daemon, "--seconds", 0.7))) for _ in range(3))[1]


# -------------------------------------------------------------------------------------------------------- one case

class Case:
    """An attack and its checks. If it `holds` its memory all the time, the metric can be compared with the resident memory.
    If it `serves`, no bystander is refused, even during the attack."""

    def __init__(self, kind, name, *groups, options=LIMITS, total=128 * MIB, holds=False, serves=False, beside=MEDIUM,
                 seconds=SECONDS_A, timeout=COMPUTE_TIMEOUT):
        self.kind, self.name, self.groups, self.options, self.total = kind, name, groups, options, total
        self.holds, self.serves, self.beside, self.seconds, self.timeout = holds, serves, beside, seconds, timeout

    def check(self, promise, what, *rest):
        check(promise, f"{self.kind}: {self.name}: {what}", *rest)

    def run(self):
        # A client that does not read delays the drain until its time limit.
        drain = 1 if any(group.read is not None for group in self.groups) else 5
        with Daemon("--compute-timeout", self.timeout, "--drain-timeout", drain, *self.options) as daemon:
            self.bystanders = Bystanders(self.beside, daemon)
            end_load(self.bystanders.start(daemon, "--seconds", 0.2))
            self.idle, self.counted = daemon.rss(), daemon.metric("attentiond_memory_bytes")
            forget_peak(daemon)
            self.attack(daemon)
            self.rest(daemon)
            self.stop(daemon)

    def attack(self, daemon):
        probe, watch = Process(probe_process, daemon.port), Watch(daemon)
        watch.start()
        crowd = Crowd(daemon, self.groups)
        beside = end_load(self.bystanders.start(daemon, "--seconds", self.seconds))
        times, bad = probe.end()
        if self.holds:
            watch.settle()
        held = list(watch.pairs)  # measured while all clients of the crowd were connected
        endings = crowd.end(DRAIN)
        self.check_memory(daemon, watch.end().peak, held)
        self.check_probe(times, bad)
        self.check_endings(endings)
        self.check_beside(beside)

    def check_memory(self, daemon, peak, held):
        peak = max(peak, daemon.rss("VmHWM")) - self.idle
        bound = 1.25 * self.total + 16 * MIB
        self.check(20, "resident memory", f"{peak / MIB:.0f} MiB over idle", f"<= {bound / MIB:.0f} MiB", peak <= bound)
        if self.holds:
            resident, counted = max(held, default=(0, 0))
            resident -= self.idle
            self.check(20, "attentiond_memory_bytes", f"{counted / MIB:.0f} MiB where {resident / MIB:.0f} MiB are resident",
                       "resident <= 1.25 x it + 16 MiB", resident <= 1.25 * counted + 16 * MIB)

    def check_probe(self, times, bad):
        slow = times[min(len(times) - 1, int(len(times) * 0.99))] * 1000 if times else float("inf")
        self.check(5, "/health/live", f"{len(times)} times 200, {bad} not, p99 {slow:.1f} ms", "always, p99 <= 50 ms",
                   bad == 0 and len(times) > 0, slow <= 50)

    def check_endings(self, endings):
        """Checks the clients that read at once. A request that has no answer yet has waited until now."""
        readers = [e for e in endings if self.groups[e.group].read is None]
        late = max((e.waited - (self.groups[e.group].timeout or self.timeout) for e in readers), default=0)
        statuses = collections.Counter(e.status or "none" for e in readers)
        if readers:
            self.check(4, "answers", f"{dict(statuses)}, at most {max(late, 0):.2f} s over their time limit",
                       "200, 413, 422, 503; <= 0.1 s", set(statuses) <= {200, 413, 422, 503} and late <= HANG, late <= 0.1)

    def check_beside(self, result):
        own, beside = OWN[self.beside], p99(result)
        served = result["statuses"].get("200", 0)
        sound = result["wrong"] == result["mismatches"] == result["resets"] == 0 and set(result["statuses"]) <= {"200", "503"}
        self.check(4, f"{'medium' if self.beside is MEDIUM else 'small'} requests beside",
                   f"{served} of {result['sent']} served, p99 {beside:.1f} ms, alone {own:.1f} ms: {beside / own:.1f} x",
                   "all, <= 5 x" if self.serves else "<= 5 x; else 503", sound and (not self.serves or served == result["sent"]),
                   beside <= 5 * own or (served == 0 and not self.serves))

    def rest(self, daemon):
        """Checks that the memory of the clients is no longer counted when they have left."""
        begun = time.monotonic()
        while daemon.metric("attentiond_memory_bytes") > self.counted and time.monotonic() < begun + 30:
            time.sleep(0.02)
        seconds, left = time.monotonic() - begun, daemon.metric("attentiond_memory_bytes")
        self.check(20, "attentiond_memory_bytes at rest", f"{left:.0f} after {seconds:.2f} s", f"{self.counted:.0f}",
                   left == self.counted, seconds <= 1)

    def stop(self, daemon):
        """Sends SIGTERM during an attack. The bystanders start first, so their connections are accepted and their requests
        admitted."""
        load = self.bystanders.start(daemon, "--seconds", 30, "--until-gone", "yes")
        time.sleep(0.15)
        crowd = Crowd(daemon, self.groups)
        time.sleep(SECONDS_B)
        crowd.tell(DRAIN)
        moment = time.monotonic()
        daemon.signal(signal.SIGTERM)
        status = daemon.wait(60)
        seconds = time.monotonic() - moment
        if status is None:
            daemon.process.kill()
        ends = end_load(load)["ends"]
        lost = ends["lost_used"] + ends["cut"] + ends["nonsense"] + ends["timeout"]
        theirs = [e for e in crowd.end(DRAIN) if e.sent < moment - 0.2 and e.over >= moment and self.groups[e.group].read is None]
        cut = sum(1 for e in theirs if not e.whole)
        self.check(9, "SIGTERM", f"status {status} after {seconds:.2f} s; without a whole answer {lost} of {ends['whole'] + lost} "
                   f"requests beside and {cut} of {len(theirs)} of the attack", "0; 0, 0; <= 6 s",
                   status == 0 and lost == 0 and cut == 0, seconds <= 6)


# ------------------------------------------------------------------------------------------------------- the cases

def heads_of_one(batch, *results, n=1, headers="", **more):
    head = {"W_Q": [[1]], "W_K": [[1]], "W_V": [[1]]}
    return call("/self-attention", headers, X=draw(batch, n, 1), heads=[head] * 1364, **returning(*results), **more)


def answers_of_many_parts():
    five = ("Q", "K", "V", "present_K", "present_V")
    yield Case("parts", "1364 heads of 1x1, batch of 1400", Group(heads_of_one(1400, *five)), seconds=2, timeout=10)
    yield Case("parts", "... batch of 5500, default limits", Group(heads_of_one(5500, *five)), options=(), total=2048 * MIB, seconds=2)
    yield Case("parts", "... float64, compressed", Group(heads_of_one(700, *five, headers="Accept-Encoding: gzip\r\n", dtype="float64")),
               options=(*LIMITS, "--compression", "yes"), timeout=10)
    yield Case("parts", "... every result of 2 rows, batch of 100", Group(heads_of_one(100, *EVERYTHING, n=2, top_k=1)))


def scratch_of_many_workers():
    sixteen = (*LIMITS, "--workers", 16)

    def long_rows(n, m, *results, **more):
        return Group(call(Q=draw(n, 1), K=draw(m, 1), V=draw(m, 1), timeout=1, **returning(*results), **more), 2, timeout=1)
    yield Case("scratch", "scratch of 16 workers, top_k", long_rows(256, 1000000, "top_k", top_k=1), options=sixteen)
    yield Case("scratch", "... entropy in float64", long_rows(128, 500000, "entropy", dtype="float64"), options=sixteen)
    yield Case("scratch", "... statistics, heads, window", Group(call(
        Q=draw(16, 8, 1), K=draw(16, 50000, 1), V=draw(16, 50000, 1), window=[9, 9], timeout=1, **returning("statistics", "lse")),
        2, timeout=1), options=sixteen)


def unfinished_bodies():
    def hold(name, message, count=900, **more):
        return Case("bodies", name, Group(message, count, repeat=False, waits=False), holds=True, **more)
    yield hold("900 unfinished bodies of tiny arrays", unfinished(b'{"return":["a"', b",[1]", 16384))
    yield hold("... in a chunk, float64", unfinished_chunk(b'{"dtype":"float64","heads":["a"', b",[1]", 16384))
    yield hold("... of empty arrays", unfinished(b'{"return":["a"', b",[],{}", 16384))
    yield hold("... numbers", unfinished(b'{"X":[[0', b",1.5", 200000), 600)
    yield hold("... keys", unfinished(b'{"heads":[{', b'"W_Q":[1],"W_K":[[1]],"W_V":[[[1]]]},{', 16384))


def unread_answers():
    column = [[i * 37 % 101 / 100 + 0.0013] for i in range(230)]  # the weights in this answer have many digits

    def keep(name, message, count=900, **more):
        return Case("answers", name, Group(message, count, read=0, buffer=4096, repeat=False, pace=400), holds=True, seconds=2.5, **more)
    yield keep("900 unread answers of 0.6 MB", call(X=column, **returning("weights")))
    yield keep("... of /softmax, float64", call("/softmax", X=draw(25000), dtype="float64"))
    yield keep("... sent in chunks", call(X=[[0]] * 400, **returning("weights")), 400)
    yield keep("... compressed", call("/softmax", "Accept-Encoding: zstd\r\n", X=draw(60000)), 300,
               options=(*LIMITS, "--compression", "yes"))


def long_options():
    options = ("--max-memory", "64MiB", "--total-memory", "64MiB")

    def long_list(name, start, end, size=29000000, change=lambda message: message):
        message = change(request("/attention", filled(start, b",1", end, size)))
        return Case("lists", name, Group(message), options=options, total=64 * MIB)
    yield long_list("lengths of 29 MB", b'{"X":[[[1]]],"lengths":[1', b"]}")
    yield long_list("window of 29 MB", b'{"X":[[[1]]],"window":[1', b"]}")
    yield long_list("... in chunks, float64", b'{"dtype":"float64","X":[[[1]]],"lengths":[1', b"]}", 14000000, chunked)
    yield long_list("shape of 29 MB", b'{"random":{"generator":"numpy","seed":1},"X":{"random":"rand","shape":[1', b"]}}")


def trees():
    def tree(name, start, piece, end):
        return Case("trees", name, Group(request("/attention", filled(start, piece, end, MIB - 64)), 4))
    yield tree("1 MiB of nested empty arrays", b'{"return":[""', b"," + b"[" * 14 + b"]" * 14, b"]}")
    yield tree("... nested objects", b'{"return":[""', b"," + b'{"":' * 13 + b"0" + b"}" * 13, b"]}")
    values = b",".join([b"[[[]]]"] * 21000)  # nearly as many values as are allowed
    yield Case("trees", "65536 values, nested and empty", Group(request("/attention", b'{"return":[' + values + b"]}"), 4))
    one = b'{"random":"rand","shape":9}'
    yield tree("1 MiB of discarded draws", b'{"random":{"generator":"numpy","seed":1},"X":{"random":"rand","shape":[2,2],"discard":['
                   + one, b"," + one, b"]}}")


def full_memory():
    """Bystanders send requests of 40 bytes. Large answers are read slowly, and small bodies take the rest of the memory."""
    rest = [Group(unfinished(b'{"dtype":"float32","X":[[0', b",1", size), count, waits=False, pace=1000)
            for size, count in ((60000, 200), (4000, 100), (500, 200), (100, 200), (50, 200))]

    def four(name, message, read, seconds=SECONDS_A):
        large = Group(message, 4, read=read, buffer=65536, repeat=False)
        return Case("reserve", f"four answers of 30 MiB {name}", large, *rest, holds=True, serves=True, beside=SMALL, seconds=seconds)
    weights = call(X=[[0]] * 2700, **returning("weights"))
    yield four("read at 68 KiB/s", weights, 68 << 10)
    yield four("not read", weights, 0)
    yield four("of /softmax", call("/softmax", X=draw(3500000)), 68 << 10, 2)


def long_rows():
    def rows(count, n, m, *results, **more):
        message = call(Q=draw(n, 1), K=draw(m, 1), V=draw(m, 1), timeout=0.5, **returning(*results), **more)
        return Group(message, count, timeout=0.5)
    million = 1000000
    yield Case("rows", "top_k of 3,000,000 keys", rows(1, 8, 3 * million, "top_k", top_k=3 * million), options=(), total=2048 * MIB)
    yield Case("rows", "... two of 300,000", rows(2, 8, 300000, "top_k", top_k=300000), serves=True)
    yield Case("rows", "entropy and statistics of 1,000,000 keys", rows(2, 8, million, "entropy", "statistics"), serves=True)
    words = call("/embeddings", tokens=["a", "b"], embedding_dim=3 * million, digits=1, timeout=0.5)
    yield Case("rows", "draws for /embeddings", Group(words, 2, timeout=0.5), serves=True)


def columns():
    def softmax(shape, axis, count, **more):
        return Group(call("/softmax", X=draw(*shape), axis=axis, timeout=1, **more), count, timeout=1)
    yield Case("columns", "/softmax down 8192 x 4096", softmax((8192, 4096), 0, 1), options=(), total=2048 * MIB, seconds=2.5)
    yield Case("columns", "... 2048 x 3000", softmax((2048, 3000), 0, 2), serves=True)
    yield Case("columns", "... float64, long axis in the midst", softmax((2, 500000, 2), 1, 2, dtype="float64"), serves=True)


def many_heads():
    def eight(name, path="/attention", **members):
        return Case("heads", name, Group(call(path, **members), 8), serves=True)
    row, weights, words = [[1] * 65536], [[1] * 20000], [f"w{i}" for i in range(16384)]
    yield eight("65536 heads on one row", X=row, heads=65536, **returning("lse"))
    yield eight("... a batch of 65536", X=[[[1]]] * 65536, **returning("lse"))
    yield eight("... with projections", "/multi-head-attention", X=[[1]], W_Q=weights, W_K=weights, W_V=weights, heads=20000,
                **returning("lse"))
    yield eight("... 16384 words", "/embeddings", tokens=words)


def just_below_max_work():
    """Finds the largest n for which the request is not refused, and then attacks with one such client."""
    def square(n):
        return call(X=draw(n, 64), timeout=1, **returning("lse"))

    def projected(n):
        weights = {key: draw(64, 64) for key in ("W_Q", "W_K", "W_V")}
        return call("/multi-head-attention", X=draw(n, 64), **weights, heads=4, timeout=1, **returning("lse"))

    def drawn(n):
        return call("/softmax", X=draw(1, kind="randn", discard=[draw(n * 1000, kind="randn")]), timeout=1)
    for name, make in (("one request just below --max-work", square), ("... with projections", projected), ("... of draws", drawn)):
        with Daemon() as daemon:
            low, high = 1, 4000000
            while high - low > 1:
                middle = (low + high) // 2
                brief = make(middle).partition(b"\r\n\r\n")[2].replace(b'"timeout":1', b'"timeout":0.001')
                path = make(1).split(b" ")[1].decode()
                low, high = (low, middle) if daemon.post(path, brief)[0] == 413 else (middle, high)
        yield Case("queue", name, Group(make(low), timeout=1), options=(), total=2048 * MIB, serves=True)


allow_files(4000)
OWN = {content: alone(content) for content in (MEDIUM, SMALL)}
KINDS = {
    "parts": answers_of_many_parts, "scratch": scratch_of_many_workers, "bodies": unfinished_bodies, "answers": unread_answers,
    "lists": long_options, "trees": trees, "reserve": full_memory, "rows": long_rows, "columns": columns, "heads": many_heads,
    "queue": just_below_max_work,
}
for kind in (os.environ.get("COSTS") or ",".join(KINDS)).split(","):
    for case in KINDS[kind]():
        case.run()
finish()
