"""Promise 23: a client gets the answer to its own request, and gets it once, also behind haproxy and nginx.

A proxy stands in front of a daemon of its own. It keeps its connections to the daemon and shares them among all clients.
Every raw request of tests/data/framing.txt goes through the proxy, once whole and once in two pieces, with ids of its own.
Other clients ask in between and afterwards. If proxy and daemon disagreed on where a request ends, the rest of it would
spoil the answers to the others. At the end the logs of proxy and daemon must name the same requests. A lenient proxy
has the settings that let most bad requests pass. The careless proxy is part of this file: behind it, only the checks of
the daemon protect the clients from each other.
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

PROXIES = {  # configuration, lenient settings, the command for one process without privileges, the signal that ends it
    "haproxy": (HAPROXY, "option accept-invalid-http-request", "haproxy -db -f configuration", signal.SIGUSR1),
    "nginx": (NGINX, "ignore_invalid_headers off; merge_slashes off; proxy_request_buffering off;",
              "nginx -e stderr -p . -c configuration", signal.SIGQUIT),
}
Answer = collections.namedtuple("Answer", "status id last body bytes")


class Connection:
    """A connection to a socket in the file system or to a port, or one that was accepted."""

    def __init__(self, to):
        self.bytes, self.socket = b"", to
        if not isinstance(to, socket.socket):
            self.socket = socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET)
            self.socket.connect(to if isinstance(to, str) else ("127.0.0.1", to))
        self.close = self.socket.close

    def send(self, message):
        with contextlib.suppress(OSError):  # answer() notices a closed connection
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
        """Receives the bytes up to the end of the first match of this expression."""
        while not (found := re.search(end, self.bytes)):
            self.more(timeout)
        return self.take(found.end(), timeout)

    def answer(self, timeout):
        """Receives an answer. Returns None at the end of the connection. Raises TimeoutError if neither of them comes."""
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
    """haproxy or nginx. `address` is the socket on which it listens."""

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
        """Ends the proxy. It has then logged every request."""
        self.process.send_signal(self.end)
        self.process.wait(10)

    def forwarded(self):
        """Yields the id, the id in the answer, and the status of each request that the proxy forwarded."""
        with self.open("log") as log:
            for line in log:
                if line.startswith("asked "):
                    _, asked, answered, server, status = line.split()
                    if server not in ("-", "<NOSRV>"):
                        yield asked, answered, int(status)


class Careless:
    """A proxy that forwards bytes as they came, over three connections in turns. It finds a number in any Content-Length,
    takes the last of several, and accepts spaces in a name. It joins a folded line to the line before it, and looks for
    chunks only if there is no Content-Length. A bare LF ends a line, as in libmicrohttpd 0.9.75. If the two disagreed on
    that within chunks, no filter of the daemon could see it."""

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
        """Makes a request. Returns its bytes and its id."""
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
        """Does nothing, because `sent` has every request already."""

    def forwarded(self):
        return self.sent


def raw_requests():
    """Yields the name of each row, and its bytes."""
    shorthands = {}
    with open(os.path.join(TESTS, "data", "framing.txt"), encoding="ascii") as file:
        for line in file:
            text = re.sub("<([A-Z]+)>", lambda match: shorthands[match[1]], line.rstrip("\n"))
            if named := re.match("([A-Z]+) = (.*)", text):
                shorthands[named[1]] = named[2]
            elif row := re.match(r"\d+ \w+ +([^:]+): (.*)", text):
                yield row[1], row[2].encode().decode("unicode_escape").encode("latin-1")


class Question:
    """A valid request. Its answer differs from those to the requests before and after it."""

    def __init__(self, more=""):
        self.id = next(ids)
        self.size = int(self.id) % 32 + 1
        headers = f"Content-Type: application/json\r\nX-Request-Id: {self.id}\r\n{more}"
        self.bytes = request("/softmax", body(X=[0] * self.size), headers)

    def is_answered_by(self, answer):
        return answer.id == self.id and answer.status == 200 and len(json.loads(answer.body)["output"]) == self.size


class Neighbour:
    """Another client, on a connection of its own. It records what is wrong with its answers."""

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
    """Sends a raw request. A neighbour asks before its end. If the connection is still open, a valid request follows on it."""

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
        with contextlib.suppress(TimeoutError):  # the daemon waits for more
            while not self.over and len(self.answers) != most:
                answer = self.connection.answer(timeout)
                self.over = answer is None
                self.answers += [] if self.over else [answer]
            if self.over:
                self.connection.close()

    def faults(self):
        """Yields what is wrong, in words. Answers without an id come from the proxy or from libmicrohttpd itself."""
        order = iter([*self.ids, self.question.id])
        if len(self.answers) > max(1, len(self.ids)) + 1 or any(answer.last for answer in self.answers[:-1]):
            yield "there is an answer too many"
        if not all(answer.id in order for answer in self.answers if re.fullmatch(r"\d{8}", answer.id or "")):
            yield "an answer belongs to another request, or comes twice"
        if not all(self.question.is_answered_by(answer) for answer in self.answers if answer.id == self.question.id):
            yield "the valid request after it is not answered"
        if not self.over:
            yield "the connection does not end"


def through(name, kind):
    """Sends everything through one proxy, and then checks the answers and the logs."""
    log = os.path.join(FOLDER, f"{name}.log")
    with Daemon("--max-body", "1KiB", "--log-requests", "yes", "--log-format", "json", "--log-file", log) as daemon:
        proxy = kind(name, daemon.port)
        neighbours = [Neighbour(proxy.address) for _ in range(2)]
        attacks = []
        for row, message in raw_requests():
            for in_pieces in (False, True):
                attacks.append(Attack(proxy.address, row, message, in_pieces, neighbours[len(attacks) % 2]))
                time.sleep(0.004)  # the daemon logs at most a thousand requests in a second
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
    """Compares the log of the proxy with that of the daemon. A request was refused on the way if the daemon's log has no line
    for it and its answer has no id. Then libmicrohttpd itself refused it, or the proxy gave up a bad chunk before the daemon
    had begun with the request."""
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
    check(23, f"{name}, requests that it forwarded", f"{sent.total()}, in the daemon's log {handled.total()}, "
          f"refused on the way {foreign.total()}", "the same", not wrong)
    tell(wrong)


if __name__ == "__main__":
    for name in ("haproxy", "lenient haproxy", "nginx", "lenient nginx"):
        through(name, Proxy)
    through("careless", Careless)
    finish()
