"""Promise 23: behind haproxy and nginx, too, a client gets the answer to its own request, and gets it once.

A proxy in front of a daemon of its own keeps its connections to it and shares them among all clients. Through it goes
every raw request of tests/data/framing.txt, at once and in two pieces, with ids of its own, and others ask in between
and after: if proxy and daemon disagreed on where a request ends, the rest of it would spoil their answers. At the
end the logs of both must name the same requests. A lenient proxy lets pass what it can be told to. The careless one
is ours: behind it, clients are kept apart by nothing but what the daemon refuses.
"""
import collections
import itertools
import queue
from hostile import *

PATIENCE = 1  # seconds that a proxy waits for the rest of a request
HEAD_END = rb"[^\r\n]\r?\n\r?\n"
ids = (f"{i:08d}" for i in itertools.count(1))

HAPROXY = """
global
    maxconn 100
    nbthread 1
    log stdout format raw local0
defaults
    mode http
    log global
    log-format "asked %[capture.req.hdr(0)] %[capture.res.hdr(0)] %s %ST"
    timeout connect 5s
    timeout client {patience}s
    timeout http-keep-alive 60s
    timeout server 60s
    http-reuse always
    {lenient}
frontend clients
    bind {folder}/socket
    option disable-h2-upgrade
    declare capture request len 16
    declare capture response len 16
    http-request capture req.hdr(X-Request-Id) id 0
    http-response capture res.hdr(X-Request-Id) id 0
    default_backend attention
backend attention
    server attentiond 127.0.0.1:{port}
"""

NGINX = """
daemon off;
master_process off;
pid pid;
events {{ }}
http {{
    log_format asked 'asked $http_x_request_id $upstream_http_x_request_id $upstream_addr $status';
    access_log log asked;
    client_body_timeout {patience}s;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    upstream attention {{
        server 127.0.0.1:{port};
        keepalive 16;
    }}
    server {{
        listen unix:{folder}/socket;
        {lenient}
        location / {{
            proxy_pass http://attention;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""

PROXIES = {  # the configuration, what makes it lenient, the command for one process without privileges, and what ends it
    "haproxy": (HAPROXY, "option accept-invalid-http-request", "haproxy -db -f configuration", signal.SIGUSR1),
    "nginx": (NGINX, "ignore_invalid_headers off; merge_slashes off; proxy_request_buffering off;",
              "nginx -e stderr -p . -c configuration", signal.SIGQUIT),
}
Answer = collections.namedtuple("Answer", "status id last body bytes")


class Connection:
    """To a socket in the file system or to a port; or one that was accepted."""

    def __init__(self, to):
        self.bytes, self.socket = b"", to
        if not isinstance(to, socket.socket):
            self.socket = socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET)
            self.socket.connect(to if isinstance(to, str) else ("127.0.0.1", to))
        self.close = self.socket.close

    def send(self, message):
        with contextlib.suppress(OSError):  # closed: the answer tells
            self.socket.sendall(message)

    def more(self, timeout):
        self.socket.settimeout(timeout)
        piece = self.socket.recv(1 << 16)
        if not piece:
            raise ConnectionError
        self.bytes += piece

    def take(self, size, timeout):
        while len(self.bytes) < size:
            self.more(timeout)
        taken, self.bytes = self.bytes[:size], self.bytes[size:]
        return taken

    def take_to(self, end, timeout):
        """To the end of what this expression finds."""
        while not (found := re.search(end, self.bytes)):
            self.more(timeout)
        return self.take(found.end(), timeout)

    def answer(self, timeout):
        """None at the end of the connection; TimeoutError if neither comes."""
        try:
            head = self.take_to(HEAD_END, timeout)
            fields = fields_of(head)
            text = self.take(int(fields.get("content-length", 0)), timeout)
        except ConnectionError:
            rest, self.bytes = self.bytes, b""
            return Answer(0, None, True, rest, rest) if rest else None  # HTTP/0.9 has no head
        return Answer(int(head[9:12]), fields.get("x-request-id"), fields.get("connection") == "close", text, head + text)


def fields_of(head):
    lines = re.sub("\r\n[ \t]+", " ", head.decode("latin-1")).split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


class Proxy:
    """A real one. `address` is the socket it listens on."""

    def __init__(self, name, port):
        self.folder = os.path.join(FOLDER, name.replace(" ", "-"))
        self.address = self.folder + "/socket"
        text, lenient, command, self.end = PROXIES[name.split()[-1]]
        os.mkdir(self.folder)
        with self.open("configuration", "w") as file:
            file.write(text.format(folder=self.folder, port=port, patience=PATIENCE,
                                   lenient=lenient if name.startswith("lenient") else ""))
        with self.open("log", "a") as log, self.open("errors", "a") as errors:
            self.process = subprocess.Popen(command.split(), cwd=self.folder, stdout=log, stderr=errors)
        running.append(self.process)
        until = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                Connection(self.address).close()
                return
            time.sleep(0.01)
        with self.open("errors") as errors:
            sys.exit(f"{name} does not start: {errors.read()}")

    def open(self, name, mode="r"):
        return open(os.path.join(self.folder, name), mode, encoding="latin-1")

    def stop(self):
        """When it has written down every request."""
        self.process.send_signal(self.end)
        self.process.wait(10)

    def forwarded(self):
        """Of each request that it sent on: its id, that of the answer, the status."""
        with self.open("log") as log:
            for line in log:
                if line.startswith("asked "):
                    _, asked, answered, server, status = line.split()
                    if server not in ("-", "<NOSRV>"):
                        yield asked, answered, int(status)


class Careless:
    """Sends bytes on as they came, over three connections in turns. It finds a number in any length, believes the last of
    several, minds no space in a name, joins a folded line to the one before it, and looks for chunks only where there is no
    length. A bare LF ends a line, as for libmicrohttpd 0.9.75: where they disagree on that within chunks, no filter of ours
    would see it."""

    def __init__(self, name, port):
        self.port, self.sent, self.pool = port, [], queue.Queue()
        for _ in range(3):
            self.pool.put(Connection(port))
        self.address = os.path.join(FOLDER, name)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address)
        listener.listen()
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            client = Connection(listener.accept()[0])
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        last = False
        with contextlib.suppress(OSError, ValueError), contextlib.closing(client):
            while not last:
                message, asked = self.request(client)
                server = self.pool.get()
                server.send(message)
                answer = Answer(502, None, True, b"", b"HTTP/1.1 502 -\r\nConnection: close\r\n\r\n")
                with contextlib.suppress(TimeoutError):
                    answer = server.answer(10) or answer
                self.sent.append((asked, answer.id or "-", answer.status))
                last = answer.last
                if last:
                    server.close()
                    server = Connection(self.port)
                self.pool.put(server)
                client.send(answer.bytes)

    def request(self, client):
        """Its bytes and its id."""
        message = client.take_to(HEAD_END, 60)
        fields = fields_of(message)
        if "content-length" in fields:
            message += client.take(int(re.search(r"\d+|$", fields["content-length"])[0] or 0), PATIENCE)
        elif "chunked" in fields.get("transfer-encoding", "").lower():
            size = 1
            while size > 0:
                line = client.take_to(b"\n", PATIENCE)
                size = int(line.partition(b";")[0], 16)
                message += line + client.take(max(0, size + 2) if size else 0, PATIENCE)
            while line.strip():
                line = client.take_to(b"\n", PATIENCE)
                message += line
        return message, fields.get("x-request-id", "-")

    def stop(self):
        """It has written down every request."""

    def forwarded(self):
        return self.sent


def raw_requests():
    """The names of the rows, and their bytes."""
    shorthands = {}
    with open(os.path.join(TESTS, "data", "framing.txt"), encoding="ascii") as file:
        for line in file:
            text = re.sub("<([A-Z]+)>", lambda match: shorthands[match[1]], line.rstrip("\n"))
            if named := re.match("([A-Z]+) = (.*)", text):
                shorthands[named[1]] = named[2]
            elif row := re.match(r"\d+ \w+ +([^:]+): (.*)", text):
                yield row[1], row[2].encode().decode("unicode_escape").encode("latin-1")


class Question:
    """A sound request that has an answer like no other near it."""

    def __init__(self, more=""):
        self.id = next(ids)
        self.size = int(self.id) % 32 + 1
        headers = f"Content-Type: application/json\r\nX-Request-Id: {self.id}\r\n{more}"
        self.bytes = request("/softmax", body(X=[0] * self.size), headers)

    def is_answered_by(self, answer):
        return answer.id == self.id and answer.status == 200 and len(json.loads(answer.body)["output"]) == self.size


class Neighbour:
    """Asks on a connection of its own; remembers what is wrong with the answers."""

    def __init__(self, address):
        self.address, self.connection, self.asked, self.wrong = address, Connection(address), 0, []

    def ask(self):
        question, answer = Question(), None
        self.asked += 1
        self.connection.send(question.bytes)
        with contextlib.suppress(TimeoutError):
            answer = self.connection.answer(10)
        if answer is None or not question.is_answered_by(answer):
            self.wrong.append(f"a neighbour's {question.id} is answered by {answer and answer[:3]}")
            self.connection.close()
            self.connection = Connection(self.address)


class Attack:
    """A raw request, a neighbour's question in the midst or before, and, where the connection is open still, a question on it."""

    def __init__(self, address, name, message, in_pieces, neighbour):
        self.name, self.ids, self.answers, self.over = name, [], [], False
        while b"00000000" in message:
            self.ids.append(next(ids))
            message = message.replace(b"00000000", self.ids[-1].encode(), 1)
        cut = message.find(b"\r\n\r\n") + 4 if in_pieces else 0
        cut = cut if cut < len(message) else len(message) // 2
        self.connection = Connection(address)
        self.connection.send(message[:cut])
        neighbour.ask()
        self.connection.send(message[cut:])
        self.read(0.2, max(1, len(self.ids)))
        self.question = Question("Connection: close\r\n")
        if not self.over and not any(answer.last for answer in self.answers):
            self.connection.send(self.question.bytes)
        neighbour.ask()
        self.read(0.2)

    def read(self, timeout, most=None):
        with contextlib.suppress(TimeoutError):  # it waits for more
            while not self.over and len(self.answers) != most:
                answer = self.connection.answer(timeout)
                self.over = answer is None
                self.answers += [] if self.over else [answer]
            if self.over:
                self.connection.close()

    def faults(self):
        """Answers without an id are the proxy's own, or libmicrohttpd's."""
        order = iter([*self.ids, self.question.id])
        if len(self.answers) > max(1, len(self.ids)) + 1 or any(answer.last for answer in self.answers[:-1]):
            yield "an answer too many"
        if not all(answer.id in order for answer in self.answers if re.fullmatch(r"\d{8}", answer.id or "")):
            yield "the answer to another, or to one twice"
        if not all(self.question.is_answered_by(answer) for answer in self.answers if answer.id == self.question.id):
            yield "the question after it is not answered"
        if not self.over:
            yield "the connection does not end"


def through(name, kind):
    """Everything by one proxy, then what the answers and the logs say."""
    log = os.path.join(FOLDER, f"{name}.log")
    with Daemon("--max-body", "1KiB", "--log-requests", "yes", "--log-format", "json", "--log-file", log) as daemon:
        proxy = kind(name, daemon.port)
        neighbours = [Neighbour(proxy.address) for _ in range(2)]
        attacks = []
        for row, message in raw_requests():
            for in_pieces in (False, True):
                attacks.append(Attack(proxy.address, row, message, in_pieces, neighbours[len(attacks) % 2]))
                time.sleep(0.004)  # the daemon logs a thousand requests in a second and no more
        for attack in attacks:
            attack.read(10)
        for neighbour in neighbours:
            neighbour.connection.close()
        kept = int(daemon.metric("attentiond_connections")) - 1
        proxy.stop()
    check_answers(name, attacks, neighbours, kept)
    check_logs(name, proxy, log)


def tell(wrong):
    for text in wrong[:10]:
        print("   ", text)


def check_answers(name, attacks, neighbours, kept):
    wrong = [f"{attack.name}: {fault}: {[answer[:3] for answer in attack.answers]}" for attack in attacks for fault in attack.faults()]
    wrong += [text for neighbour in neighbours for text in neighbour.wrong]
    check(23, f"{name}, {len(attacks)} raw requests and {sum(n.asked for n in neighbours)} of neighbours",
          f"{len(wrong)} answered wrongly, {kept} connections shared by all", "0, a few", not wrong and 0 < kept <= 16)
    tell(wrong)


def check_logs(name, proxy, log):
    """Refused on the way are those that have no line in the daemon's log and no id in their answer: by libmicrohttpd itself,
    or by a proxy that gave up a bad chunk before the daemon had begun with its request."""
    with open(log, encoding="ascii") as lines:
        records = [json.loads(line) for line in lines]
    handled = collections.Counter(r["request_id"] for r in records if r.get("path", "/metrics") != "/metrics")
    sent, refused, wrong = collections.Counter(), collections.Counter(), []
    for asked, answered, status in proxy.forwarded():
        own = asked if asked != "-" else answered
        sent[own] += 1
        refused[own] += answered == "-" and status >= 400
        wrong += [f"{own} was answered as {answered}"] if answered not in ("-", own) else []
    foreign = sent - handled
    wrong += [f"{own}: in the daemon's log only" for own in handled - sent]
    wrong += [f"{own}: in the proxy's log only" for own in foreign - refused]
    check(23, f"{name}, requests that it sent on", f"{sent.total()}, in the daemon's log {handled.total()}, "
          f"refused on the way {foreign.total()}", "the same", not wrong)
    tell(wrong)


for name in ("haproxy", "lenient haproxy", "nginx", "lenient nginx"):
    through(name, Proxy)
through("careless", Careless)
finish()
