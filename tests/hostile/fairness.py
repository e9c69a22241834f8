"""Promise 4: small requests do not wait for huge ones.

The client of the huge requests reads an answer of 45 MB for each. If there are four cores, this client has one of its own,
so the client of the small requests does not wait for it.
"""
from hostile import *

huge = write("huge.json", body(X=matrix(8192, 64, heads=8), **{"return": ["output"]}))
small = ["--body", NOTEBOOK, "--connections", 100]
apart = CORES[-2:-1] if len(CORES) >= 4 else LOAD_CORES
with Daemon(cores=CORES[:-2] if len(CORES) >= 4 else None) as daemon:
    load(daemon, "/attention", *small, "--seconds", 1)
    alone = load(daemon, "/attention", *small, "--seconds", 2 * SECONDS)
    with healthy(daemon, "8192 queries of 8 heads in a row"):
        other = start_load(daemon, "/attention", "--body", huge, "--connections", 1, "--seconds", 2 * SECONDS + 1,
                           "--timeout", 120, cores=apart)
        time.sleep(1)
        beside = load(daemon, "/attention", *small, "--seconds", 2 * SECONDS)
        done = end_load(other)
    p99 = [result["latency_200"]["p99"] / 1000 for result in (alone, beside)]
    check(4, "100 connections send small requests beside one that asks for 7e10 multiply-adds again and again",
          f"p99 {p99[1]:.1f} ms, alone {p99[0]:.1f} ms: {p99[1] / p99[0]:.1f} x; {beside['goodput']:.0f}/s, alone "
          f"{alone['goodput']:.0f}/s; {done['answered']} huge requests took {done['took_200'].get('p50', 0) / 1e6:.1f} s each",
          "<= 5 x, every answer 200",
          done["answered"] >= 1 and set(beside["statuses"]) == set(done["statuses"]) == {"200"}, p99[1] <= 5 * p99[0])
finish()
