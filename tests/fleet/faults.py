"""Promises 34, 35 and 23: a fleet loses no request when one replica fails or is replaced.

The load is steady: requests are due at fixed times, at half of what the fleet answers at most. Each request
must get one answer with the right bytes. First there is no fault. Then one replica after the other has the same fault,
while the others are well. The latency counts from the time when a request was due.
"""
from fleet import *
from proxies import Attack, Neighbour, check_answers, raw_requests

REQUESTS = int(os.environ.get("REQUESTS") or "50000")


class Load:
    """Requests of several sizes, the bytes of their answers, and the rate at which they are sent."""

    def __init__(self, fleet, shares):
        self.fleet, self.options, self.usual = fleet, ["--connections", 200], None
        for rows, share in shares.items():
            text = body(X=matrix(rows, 64), **{"return": ["output"]})
            status, answer = fleet.daemons[PORTS[0]].post("/attention", text)
            if status != 200:
                sys.exit(f"the request of {rows} rows gets a {status}")
            self.options += ["--body", write(f"{rows}.json", text) + f"={share}", "--expect", write(f"{rows}.answer", answer)]
        self.rate = 0.5 * load(fleet, "/attention", *self.options, "--seconds", 3)["goodput"]

    def during(self, fault, seconds, requests):
        """Sends the requests, for this time at least, while fault(port) is called for one replica after the other. Returns the
        result of the load generator, the latencies in milliseconds, and in words what happened."""
        log = os.path.join(FOLDER, "requests")
        retries, faults = self.fleet.retries(), 0
        process = start_load(self.fleet, "/attention", *self.options, "--rate", self.rate,
                             "--seconds", max(requests / self.rate + 1, seconds), "--log", log)
        while process.poll() is None:
            fault(PORTS[faults % len(PORTS)])
            faults += process.poll() is None  # a fault that ends after the load does not count
        result = end_load(process)
        result["faults"] = faults
        return result, [(ended - due) * 1000 for due, ended in rows_of(log)], (
            f"{result['sent']} requests at {self.rate:.0f}/s, {faults} faults, {self.fleet.retries() - retries} sent again")

    def loses_nothing(self, name, fault, seconds):
        result, times, what = self.during(fault, seconds, REQUESTS)
        lost = result["sent"] - result["statuses"].get("200", 0)
        wrong = result["wrong"] + result["mismatches"]
        p99 = percentile(times, 0.99)
        self.usual = self.usual or p99
        check(34, name, f"{what}; {lost} lost, {wrong} wrong; p50 {percentile(times, 0.5):.1f}, p99 {p99:.1f} ms "
              f"({p99 / self.usual:.1f} times that without a fault), longest {max(times):.0f} ms",
              "0, 0, <= 5 times", lost == 0 and wrong == 0 and result["faults"] >= 2, p99 <= 5 * self.usual)
        self.explain(result, lost + wrong)

    def fails_cleanly(self, name, fault, seconds):
        """Requests that HAProxy cannot keep may fail: with an answer that says so, or with an end of the connection. HAProxy
        ends it without an answer if the request was not the first one on it, so that the client sends the request again."""
        result, _, what = self.during(fault, seconds, REQUESTS / 100)
        statuses, ends = result["statuses"], result["ends"]
        ended = ends["lost_used"] + ends["lost_new"]
        failed = statuses.get("502", 0) + ends["cut"] + ended
        wrong = result["sent"] - statuses.get("200", 0) - failed + result["mismatches"]
        check(34, name, f"{what}; {statuses.get('502', 0)} got a 502, {ends['cut']} were cut, {ended} got no answer, "
              f"{wrong} wrong", "0 wrong", wrong == 0 and statuses.get("200", 0) > 0 and result["faults"] >= 2)
        self.explain(result, wrong)

    def explain(self, result, failed):
        if failed > 0:
            print("   ", result["ends"], result["statuses"], *self.fleet.failed()[-5:], sep="\n    ", flush=True)


def faults(fleet):
    """Returns what can happen to the replica at a port, and the seconds that are enough for it to happen twice."""
    def none(_):
        time.sleep(1)

    def kill(port):
        fleet.daemons[port].signal(signal.SIGKILL)
        fleet.daemons[port].wait()
        time.sleep(0.5)
        fleet.replace(port)

    def replace(port):
        fleet.daemons[port].signal(signal.SIGTERM)
        status = fleet.daemons[port].wait()
        if status != 0:
            check(35, "SIGTERM under load", f"exit status {status}", "0", False)
        fleet.replace(port)

    def stop(port):
        fleet.daemons[port].signal(signal.SIGSTOP)
        fleet.wait_until_up(len(PORTS) - 1)
        fleet.daemons[port].signal(signal.SIGCONT)
        fleet.wait_until_up()

    def stop_and_kill(port):
        fleet.daemons[port].signal(signal.SIGSTOP)
        fleet.wait_until_up(len(PORTS) - 1)
        kill(port)

    def slow(port):
        until = time.monotonic() + 3
        while time.monotonic() < until:  # the replica runs a quarter of the time
            fleet.daemons[port].signal(signal.SIGSTOP)
            time.sleep(0.003)
            fleet.daemons[port].signal(signal.SIGCONT)
            time.sleep(0.001)

    def lose_packets(port):
        rules = [["INPUT", "-p", "tcp", side, str(port), "-m", "statistic", "--mode", "random", "--probability", "0.02",
                  "-j", "DROP"] for side in ("--sport", "--dport")]
        for rule in rules:
            subprocess.run(["iptables", "-A", *rule], check=True)
        time.sleep(3)
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule], check=True)
        fleet.wait_until_up()

    return {"no fault": (none, 6), "SIGKILL": (kill, 8), "replaced one after the other": (replace, 18),
            "SIGSTOP, then SIGCONT": (stop, 18), "SIGSTOP, then SIGKILL": (stop_and_kill, 18),
            "a quarter of the speed": (slow, 10), "2 % of the packets lost": (lose_packets, 12)}


def lose_nothing():
    fleet = Fleet()
    happens = faults(fleet)
    # HAProxy reads each of these answers as a whole before it sends a part of it. An answer of more than 15 KiB may be cut.
    requests = Load(fleet, {4: 80, 32: 15, 48: 5})
    for name, fault in happens.items():
        requests.loses_nothing(name, *fault)
    # HAProxy keeps no request of 1024 rows. The answer to 256 rows comes in several pieces.
    Load(fleet, {256: 1, 1024: 1}).fails_cleanly("SIGKILL, long requests and answers", *happens["SIGKILL"])
    check(35, "the end of the fleet", "exit statuses", "0", fleet.stop())


def frame():
    """Sends every raw request of tests/data/framing.txt through the fleet, as tests/hostile/proxies.py does."""
    fleet = Fleet("--max-body", "1KiB", patience=1)
    neighbours = [Neighbour(fleet.port) for _ in range(2)]
    attacks = [Attack(fleet.port, row, message, in_pieces, neighbours[in_pieces])
               for row, message in raw_requests() for in_pieces in (False, True)]
    for attack in attacks:
        attack.read(10)
    for neighbour in neighbours:
        neighbour.connection.close()
    kept = sum(int(daemon.metric("attentiond_connections")) - 1 for daemon in fleet.daemons.values())
    check_answers("the fleet", attacks, neighbours, kept)
    fleet.stop()


enter_namespace()
lose_nothing()
frame()
finish()
