"""Promises 9 and 11: SIGTERM at a random moment under load loses no request that was admitted.

A request is admitted if its connection had been accepted, and if the daemon had neither closed this connection nor answered
with "Connection: close". A connection that has carried an answer had been accepted. If nobody can know whether a connection
was accepted, its request is counted apart, because a load balancer sends such a request again.
"""
import random
from hostile import *

TIMES = int(os.environ.get("TIMES") or "20")


def once(number, options):
    """Returns the generator's results, the exit status, the seconds of the drain, and the losses that `ends` does not count."""
    random.seed(number)
    log = os.path.join(FOLDER, "requests")
    with Daemon("--drain-timeout", 20) as daemon:
        process = start_load(daemon, "/attention", *options, "--seconds", 30, "--until-gone", "yes", "--seed", number, "--log", log)
        time.sleep(random.uniform(0.3, 1.3))
        begun = time.monotonic()
        daemon.signal(signal.SIGTERM)
        status = daemon.wait(40)
        seconds = time.monotonic() - begun
        result = end_load(process)
    if result["ends"]["lost_used"] + result["ends"]["cut"] > 0:
        print_losses(log, begun * 1e6)
    return result, status, seconds, sent_before(log, begun * 1e6)


def rows(log):
    with open(log, encoding="ascii") as file:
        for line in file:
            fields = line.split()
            yield [int(x) for x in fields[:6]] + [fields[6]]


def sent_before(log, moment):
    """Counts lost requests on new connections that were wholly sent 0.1 s before the signal. These had been accepted."""
    return sum(1 for row in rows(log) if row[6] == "lost_new" and 0 < row[2] < moment - 100000)


def print_losses(log, moment):
    for due, begun, sent, ended, _, size, end in rows(log):
        if end in ("lost_used", "cut"):
            print(f"   {end}: {size} bytes, begun {(begun - moment) / 1000:+.2f} ms from the signal, sent "
                  f"{(sent - begun) / 1000 if sent else float('nan'):.2f} ms later, over after {(ended - begun) / 1000:.2f} ms")


def repeat(what, options):
    ends = dict.fromkeys(("whole", "lost_used", "cut", "nonsense", "lost_new", "timeout"), 0)
    wrong = failed = early = 0
    longest = 0.0
    for number in range(1, TIMES + 1):
        result, status, seconds, lost = once(number, options)
        for end in ends:
            ends[end] += result["ends"][end]
        wrong += result["wrong"]
        failed += status != 0
        early += lost
        longest = max(longest, seconds)
    lost = ends["lost_used"] + ends["cut"] + ends["nonsense"] + ends["timeout"] + early
    check(9, f"{TIMES} x SIGTERM, {what}", f"{lost} of {ends['whole'] + lost} admitted requests without a whole answer "
          f"({ends['lost_used']} before it, {ends['cut']} within it, {early} on a new connection), {wrong} wrong; "
          f"{ends['lost_new'] - early} perhaps never accepted", "0, 0", lost == 0 and wrong == 0)
    check(11, f"{TIMES} x SIGTERM, {what}: exit status", f"{failed} not 0; longest drain {longest:.2f} s", "all 0", failed == 0)


with open(NOTEBOOK, "rb") as notebook:
    small = write("small.json", notebook.read())
mixed = ["--body", f"{small}=95", "--body", f"{write('big.json', standard_body())}=5"]
with Daemon() as daemon:
    rate = 0.8 * load(daemon, "/attention", *mixed, "--seconds", 2)["goodput"]
repeat(f"0.8 R = {rate:.0f}/s", [*mixed, "--connections", 200, "--rate", rate])
# A drain may see no request for a while, although a request may still come on an open connection.
repeat("100/s on 50 connections", [*mixed, "--connections", 50, "--rate", 100, "--warm", "yes"])
finish()
