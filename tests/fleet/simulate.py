"""Simulates a large fleet behind one balancer, with service times that are measured now on one daemon with one worker.

Requests arrive at random (Poisson). The balancer sends each to the replica with the fewest open requests, as docker/haproxy.cfg
says. A replica computes one request at a time. After a second some replicas fail at the same moment:

    kill   they refuse connections. Their open requests begin again elsewhere at once. A new request may meet one of them
           and begins again; after RETRIES times it is lost. After ERRORS refused connections a replica gets no requests.
    stop   they say nothing, and the checks notice it after 4.7 seconds. Their open requests wait until somebody kills them.
    slow   they take four times as long, and nobody notices.

The p99 is of the time from arrival to answer, over the requests that arrive within a second of the failure. The goodput
is the share of them that is answered within 50 ms, and those that are lost or wait are counted.
"""
import heapq
import itertools
import random
from fleet import *

BUSY = float(os.environ.get("BUSY") or "0.6")
BEGIN, LAST, NOTICED = 1, 1, 4.7
RETRIES, ERRORS = 3, 3


def service_times():
    """Returns the seconds that the daemon took for each request of the mixed load, one after the other."""
    with Daemon() as daemon:
        options, log = ["--connections", 1, "--seconds", 3], os.path.join(FOLDER, "requests")
        for rows, share in ((4, 80), (64, 15), (256, 5)):
            options += ["--body", write(f"{rows}.json", body(X=matrix(rows, 64), **{"return": ["output"]})) + f"={share}"]
        load(daemon, "/attention", *options, "--log", log)
    return [ended - due for due, ended in rows_of(log)]


class Replica:
    def __init__(self):
        self.requests, self.state, self.listed, self.errors = [], None, True, 0  # each request is (arrival, service time)


def simulate(times, count, kind, failing):
    """Returns the latencies of the requests that arrive after the failure, how many are lost, and how many wait."""
    chance, replicas = random.Random(1), [Replica() for _ in range(count)]
    arrivals = BUSY * count / (sum(times) / len(times))
    events, order, latencies, lost = [], itertools.count(), [], []

    def begin(replica, now):
        if replica.requests and replica.state not in ("kill", "stop"):
            service = replica.requests[0][1] * (4 if replica.state == "slow" else 1)
            heapq.heappush(events, (now + service, next(order), end, replica))

    def send(request, now):
        for _ in range(1 + RETRIES):
            least = min(len(r.requests) for r in replicas if r.listed)
            replica = chance.choice([r for r in replicas if r.listed and len(r.requests) == least])
            if replica.state != "kill":
                replica.requests.append(request)
                if least == 0:
                    begin(replica, now)
                return
            replica.errors += 1
            replica.listed = replica.errors < ERRORS
        lost.append(request)

    def end(now, replica):
        if replica.state in ("kill", "stop"):
            return
        arrival, _ = replica.requests.pop(0)
        if arrival >= BEGIN:
            latencies.append(now - arrival)
        begin(replica, now)

    def arrive(now, _):
        send((now, chance.choice(times)), now)
        if now < BEGIN + LAST:
            heapq.heappush(events, (now + chance.expovariate(arrivals), next(order), arrive, None))

    def fail(now, _):
        for replica in replicas[:failing]:
            replica.state = kind
        if kind in ("kill", "stop"):
            heapq.heappush(events, (now + (NOTICED if kind == "stop" else 0), next(order), remove, None))

    def remove(now, _):
        for replica in replicas[:failing]:
            if kind == "stop":
                replica.listed = False
                continue
            open_, replica.requests = replica.requests, []
            for request in open_:
                send(request, now)

    heapq.heappush(events, (0, next(order), arrive, None))
    heapq.heappush(events, (BEGIN, next(order), fail, None))
    while events:
        now, _, what, replica = heapq.heappop(events)
        what(now, replica)
    return latencies, len(lost), sum(len(replica.requests) for replica in replicas)


def main():
    times = service_times()
    print(f"{len(times)} measured service times: mean {sum(times) / len(times) * 1000:.2f} ms, p99 "
          f"{percentile(times, 0.99) * 1000:.2f} ms. Each replica is busy {BUSY:.0%} of the time.")
    print("replicas  failing        requests  p50 ms  p99 ms  p99.9 ms  longest ms  goodput  lost  wait")
    for count, kind, failing in [(100, None, 0), *((100, kind, k) for kind in ("kill", "stop", "slow") for k in (1, 10, 30))]:
        latencies, lost, wait = simulate(times, count, kind, failing)
        shares = (percentile(latencies, share) * 1000 for share in (0.5, 0.99, 0.999, 1))
        print(f"{count:8}  {failing:4} {kind or '':8} {len(latencies):9} {next(shares):7.2f} {next(shares):7.2f} {next(shares):9.2f} "
              f"{next(shares):11.2f}  {sum(x <= 0.05 for x in latencies) / (len(latencies) + lost + wait):.5f} {lost:5} {wait:5}",
              flush=True)


main()
