"""Promises 1, 2, 3 and 5: under overload some requests are refused, and the others are served as before.

There are three requests. `compute` is work for the workers, and is refused with a 503 when their queue is full. `decode` and
`small` are work for the I/O threads, and a client waits until its connection is read.
"""
from hostile import *

CONNECTIONS = 900  # fewer than the daemon admits, but more than the queue holds


def latency(result, kind, percentile):
    """Returns the latency in milliseconds since a request was sent. It is sent late only if every connection waits."""
    return result[f"took_{kind}"].get(percentile, 0) / 1000


def sound(result):
    """Returns whether every answer is right, or a 503 with Retry-After."""
    return (result["resets"] == 0 and result["timeouts"] == 0 and result["refused"] == 0 and result["wrong"] == 0
            and result["without_retry"] == 0 and result["mismatches"] == 0)


def faults(result):
    return (f"{result['resets']} resets, {result['timeouts']} timeouts, {result['refused']} refused, "
            f"{result['wrong']} wrong, {result['without_retry']} without Retry-After, {result['mismatches']} other bytes")


def attack(name, content):
    file = write(f"{name}.json", content)
    with Daemon() as daemon:
        expected = write(f"{name}.expected", daemon.post("/attention", content)[1])
        options = ["--body", file, "--expect", expected, "--seconds", SECONDS]
        load(daemon, "/attention", *options, "--connections", 16)  # warm
        cpu = daemon.cpu()
        capacity = load(daemon, "/attention", *options, "--connections", 16)
        rate, cost = capacity["goodput"], (daemon.cpu() - cpu) / capacity["answered"]
        print(f"-- {name}: R = {rate:.0f}/s, p99 {latency(capacity, '200', 'p99'):.2f} ms, {cost * 1e6:.0f} us of CPU each",
              flush=True)
        for factor in (0.5, 1, 2, 5, 10):
            overload(daemon, name, options, rate, cost, factor)


def overload(daemon, name, options, rate, cost, factor):
    cpu = daemon.cpu()
    with healthy(daemon, f"{name} at {factor} R"):
        result = load(daemon, "/attention", *options, "--connections", CONNECTIONS, "--rate", rate * factor)
    cpu = daemon.cpu() - cpu
    shed = result["statuses"].get("503", 0)
    print(f"   {result['sent']} sent, {result['unsent']} not sent because no connection was free, {shed} shed; 200s took p99 "
          f"{latency(result, '200', 'p99'):.1f} ms, max {latency(result, '200', 'max'):.1f} ms", flush=True)
    what = f"{name} at {factor} R"
    check(1, what, faults(result), "none", sound(result))
    share, least = result["goodput"] / rate, 0.9 * min(factor, 1)
    check(1, f"{what}: goodput", f"{share:.2f} R", f">= {least:.2f} R", share > 0, share >= least)
    if name == "compute":
        waiting = 256 / rate * 1000  # milliseconds to work through a full queue
        check(2, f"{what}: p99 of 200", f"{latency(result, '200', 'p99'):.0f} ms", f"<= 3 full queues, {3 * waiting:.0f} ms",
              True, latency(result, "200", "p99") <= 3 * waiting)
    if name == "compute" and shed > 1000:
        each = (cpu - cost * result["statuses"].get("200", 0)) / shed
        check(3, f"{what}: p99 of 503, and CPU", f"{latency(result, '503', 'p99'):.1f} ms, {each * 1e6:.0f} us each", "<= 10 ms",
              True, latency(result, "503", "p99") <= 10)


attack("compute", standard_body())
attack("decode", body(**{k: matrix(128, 64) for k in "QKV"}, **{"return": ["output"]}))
with open(NOTEBOOK, "rb") as notebook:
    attack("small", notebook.read())
finish()
