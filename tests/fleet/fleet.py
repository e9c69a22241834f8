"""A fleet: three daemons behind HAProxy with docker/haproxy.cfg, in a network namespace of its own.

The namespace has only the loopback interface, so the ports of the configuration are free, and packets can be lost. Three
lines of the configuration are replaced: the names of the replicas, their resolver and the path of the certificate.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hostile"))
from hostile import *  # noqa: E402  # its folder is in the path now


def enter_namespace():
    """Starts this program again in a new network namespace, and turns its loopback interface on."""
    if os.environ.get("FLEET_NAMESPACE") != "yes":
        os.environ["FLEET_NAMESPACE"] = "yes"
        os.rmdir(FOLDER)  # the program makes another one
        rights = "-n" if os.getuid() == 0 else "-rn"
        os.execvp("unshare", ["unshare", rights, sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


CONFIGURATION = os.path.join(os.path.dirname(TESTS), "docker", "haproxy.cfg")
PORTS = (9001, 9002, 9003)


class Fleet:
    """`cores` has the cores of each daemon. With `patience`, HAProxy waits only this many seconds for the rest of a request."""

    def __init__(self, *options, cores=None, patience=None):
        self.options = ["--drain-delay", 1, *options]
        self.cores = dict(zip(PORTS, cores or [None] * len(PORTS)))
        self.daemons = {port: self.start(port) for port in PORTS}
        self.port = 8080
        with open(CONFIGURATION, encoding="ascii") as file:
            text = file.read()
        servers = "".join(f"    server replica{port} 127.0.0.1:{port}\n" for port in PORTS)
        text, count = re.subn(r" *server-template .*\n", servers, text)
        text, resolvers = re.subn(r"resolvers docker\n(    .*\n)*", "", text)
        text, certificates = re.subn("/etc/haproxy/certificate.pem", self.certificate(), text)
        if (count, resolvers, certificates) != (1, 1, 1):
            sys.exit("docker/haproxy.cfg has not exactly one server-template, one resolvers docker and one certificate")
        if patience:
            text = re.sub(r"timeout (client|http-request) \d+s", rf"timeout \1 {patience}s", text)
        path = write("haproxy.cfg", text.encode())
        self.log_path = os.path.join(FOLDER, "haproxy.log")
        with open(self.log_path, "wb") as log:
            self.proxy = subprocess.Popen(
                ["haproxy", "-db", "-f", path], stdout=log, stderr=subprocess.STDOUT,
                env={**environment(), "MALLOC_TOP_PAD_": "67108864"}, preexec_fn=lambda: os.sched_setaffinity(0, LOAD_CORES))
        running.append(self.proxy)
        self.wait_until_up()

    @staticmethod
    def certificate():
        path = os.path.join(FOLDER, "certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-subj", "/CN=localhost", "-keyout", path + ".key", "-out", path], check=True, stderr=subprocess.DEVNULL)
        return path

    def start(self, port):
        return Daemon("--port", port, *self.options, cores=self.cores[port])

    def replace(self, port):
        """Starts a new daemon at the port of one that has ended, and waits until HAProxy sends requests to it."""
        self.daemons[port] = self.start(port)
        self.wait_until_up()

    def count(self, metric):
        """Returns the sum of these metrics of HAProxy."""
        with socket.create_connection(("127.0.0.1", 8404), 5) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
        return sum(int(value) for value in re.findall(rf"^{metric} (\d+)$", text, re.M))

    def retries(self):
        """Returns how often HAProxy has sent a request again."""
        return self.count("haproxy_backend_retry_warnings_total{.*}") + self.count("haproxy_backend_redispatch_warnings_total{.*}")

    def failed(self):
        """Returns the lines of HAProxy's log about requests that got no 200, or not the whole of it."""
        with open(self.log_path, encoding="ascii") as log:
            return [line.strip() for line in log if " clients " in line and not re.search(r" 200 \d+ - - -", line)]

    def wait_until_up(self, count=len(PORTS)):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if self.count('haproxy_server_status{.*state="UP"}') == count:
                    return
            time.sleep(0.02)
        with open(self.log_path, encoding="ascii") as log:
            sys.exit(f"HAProxy does not see {count} replicas after 20 s:\n{log.read()[-2000:]}")

    def stop(self):
        """Ends all processes. Returns whether each daemon ended with status 0."""
        statuses = [daemon.stop() for daemon in self.daemons.values()]
        self.proxy.kill()
        self.proxy.wait()
        return statuses == [0] * len(statuses)


def rows_of(log):
    """Yields when each request of a log of the load generator was due and when it ended, in seconds."""
    with open(log, encoding="ascii") as file:
        for line in file:
            due, _, _, ended, *_ = line.split()
            yield int(due) / 1e6, int(ended) / 1e6


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
