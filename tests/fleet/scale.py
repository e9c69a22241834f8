"""Measures how the rate grows with the number of replicas, and what a request costs in the daemon and in HAProxy.

Each replica has one worker, one I/O thread and a core of its own, as long as there are cores. The load generators may use
all cores. A generator sends to one replica, so the first table is about replicas and the machine alone. In the second
table all requests go through HAProxy. Rounds with different numbers of replicas follow each other in turn, and a figure
is the median of the rounds. The time of a core per request depends little on what else the machine does.
"""
import random
import struct
from statistics import median
from fleet import *

ROUNDS = int(os.environ.get("ROUNDS") or "7")
ROWS = (8, 128, 1024)
COLUMNS = 64
BINARY = "application/vnd.safetensors"


def questions():
    """Yields the name of a question and the options of the load generator for it."""
    chance = random.Random(7)
    for rows in ROWS:
        numbers = [struct.unpack("<f", struct.pack("<f", chance.gauss(0, 1)))[0] for _ in range(rows * COLUMNS)]
        X = [[float(f"{x:.9g}") for x in numbers[i * COLUMNS:(i + 1) * COLUMNS]] for i in range(rows)]
        yield f"{rows}×{COLUMNS}, JSON", write(f"{rows}.json", body(X=X, **{"return": ["output"]})), "application/json"
        head = body(X={"dtype": "F32", "shape": [rows, COLUMNS], "data_offsets": [0, 4 * len(numbers)]},
                    __metadata__={"return": '["output"]'})
        data = struct.pack("<Q", len(head)) + head + struct.pack(f"<{len(numbers)}f", *numbers)
        yield f"{rows}×{COLUMNS}, binary", write(f"{rows}.safetensors", data), BINARY


def rate(targets, options):
    """Sends to these daemons, or to the fleet, at the same time. Returns the requests per second of all."""
    processes = [start_load(target, "/attention", *options, "--connections", 16, "--seconds", SECONDS, cores=CORES)
                 for target in targets]
    results = [end_load(process) for process in processes]
    if any(result["wrong"] or result["ends"]["whole"] != result["sent"] for result in results):
        sys.exit(f"an answer is wrong or missing: {results}")
    return sum(result["goodput"] for result in results)


def table(fleet):
    daemons = list(fleet.daemons.values())
    print("request               1 replica/s   2 replicas/s   3 replicas/s   2 : 1   daemon, ms of a core"
          "   through HAProxy/s   HAProxy, ms of a core")
    for name, path, type_ in questions():
        options = ["--body", path, "--type", type_]
        rates = {1: [], 2: [], 3: []}
        spent, answered = -sum(daemon.cpu() for daemon in daemons), 0
        for _ in range(ROUNDS):
            for count, of_count in rates.items():
                of_count.append(rate(daemons[:count], options))
                answered += of_count[-1] * SECONDS
        spent += sum(daemon.cpu() for daemon in daemons)
        proxy, begun = [], cpu_of(fleet.proxy.pid)
        for _ in range(ROUNDS):
            proxy.append(rate([fleet], options))
        of_proxy = (cpu_of(fleet.proxy.pid) - begun) / sum(proxy) / SECONDS
        ratio = median(two / one for one, two in zip(rates[1], rates[2]))
        print(f"{name:20}", *(f"{median(rates[count]):14.0f}" for count in rates), f"{ratio:7.2f}",
              f"{spent / answered * 1000:22.3f} {median(proxy):19.0f} {of_proxy * 1000:23.3f}", flush=True)


enter_namespace()
cores = [[CORES[i % len(CORES)]] for i in range(len(PORTS))]
print(f"{len(CORES)} cores; the replicas have the cores {', '.join(str(core[0]) for core in cores)}")
fleet = Fleet(cores=cores)
table(fleet)
fleet.stop()
