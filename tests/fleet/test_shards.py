"""test_shards.py FOLDER [KEYS] tests dask_shards.py and ray_shards.py on four machines. Each machine is a network
namespace. It has a loopback interface with a daemon at 127.0.0.1:8080, and the interface eth0, which leads to the other
machines. The kernel counts the bytes of both. shards.sh starts this test in a namespace of processes, which all end
with the test."""

import concurrent.futures
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask_shards
import numpy as np
import ray
import ray_shards
from distributed import Client

FOLDER = Path(sys.argv[1])
KEYS = int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 22
QUERIES, COLUMNS, MACHINES, TOLERANCE = 64, 64, 4, 1e-6
SECONDS = 120  # This is how long an engine may take to start.
HUB = "10.77.0.1"
DAEMON, BIN, HERE = os.environ["ATTENTIOND_BIN"], Path(sys.executable).parent, Path(__file__).parent


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def start(log, *command):
    with open(FOLDER / f"{log}.log", "ab") as file:
        return subprocess.Popen([str(word) for word in command], stdout=file, stderr=file)


def wait_for(condition, what):
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {SECONDS} s there is no {what}")
        time.sleep(0.02)
    return found


class Machine:
    def __init__(self, number):
        self.name, self.address = f"machine{number}", f"10.77.0.{number + 2}"
        self.inside = ["nsenter", f"--net=/run/netns/{self.name}"]
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", f"port{number}", "master", "hub", "up", "type", "veth",
            "peer", "eth0", "netns", self.name)
        run("ip", "-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", self.name, "link", "set", device, "up")
        self.start_daemon()

    def start_daemon(self):
        self.daemon = start(self.name, *self.inside, DAEMON)

    def bytes(self):
        """Returns the bytes that came and went through eth0, and those that came through lo."""
        said = json.loads(run("ip", "-n", self.name, "-s", "-j", "link"))
        counted = {device["ifname"]: [device["stats64"][way]["bytes"] for way in ("rx", "tx")] for device in said}
        return np.array([sum(counted["eth0"]), counted["lo"][0]])

    def asking(self):
        """Returns a process that has a connection to the daemon, or None."""
        said = run(*self.inside, "ss", "-tnpH", "state", "established", "dport = :8080")
        return next((int(pid) for pid in re.findall(r"pid=(\d+)", said)), None)


class Dask:
    script, address = "dask_shards.py", f"tcp://{HUB}:8786"

    def __init__(self, machines):
        self.workers = len(machines)
        start("dask", "env", "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING=False",
              BIN / "dask", "scheduler", "--host", HUB, "--no-dashboard")
        for machine in machines:
            start(f"dask-{machine.name}", *machine.inside,
                  BIN / "dask", "worker", self.address, "--no-dashboard", "--local-directory", f"/run/{machine.name}")
        self.client = Client(self.address, timeout=SECONDS)
        self.await_workers()

    def await_workers(self):
        self.client.wait_for_workers(self.workers, timeout=SECONDS)

    def place(self, shards):
        return dask_shards.place(self.client, FOLDER, shards)

    def attention(self, placed, Q):
        return dask_shards.attention(self.client, placed, Q)

    def free(self, placed):
        self.client.cancel(placed)

    def stop(self):
        self.client.shutdown()


class Ray:
    script, address = "ray_shards.py", f"{HUB}:6379"

    def __init__(self, machines):
        command = [BIN / "ray", "start", "--block", "--disable-usage-stats", "--object-store-memory=100000000"]
        start("ray", *command, "--head", "--port=6379", f"--node-ip-address={HUB}", "--num-cpus=0",
              "--include-dashboard=false", "--temp-dir=/run/ray")
        wait_for(lambda: run("ss", "-tlnH", "sport = :6379"), "head of Ray")
        for machine in machines:
            start(f"ray-{machine.name}", *machine.inside, *command, f"--address={self.address}",
                  f"--node-ip-address={machine.address}", "--num-cpus=2", f"--temp-dir=/run/ray-{machine.name}")
        ray.init(self.address, log_to_driver=False)
        wait_for(lambda: ray.cluster_resources().get("CPU") == 2 * len(machines), "node of Ray on every machine")

    def await_workers(self):
        """The actor that died has answered, so Ray has replaced it already."""

    def place(self, shards):
        return ray_shards.place(FOLDER, shards)

    def attention(self, placed, Q):
        return ray_shards.attention(placed, Q)

    def free(self, placed):
        for shard in placed:
            ray.kill(shard)

    def stop(self):
        ray.shutdown()


def check(what, answer, expected):
    """Returns the largest error of output and lse. The error of a number above 1 is in units of this number."""
    error = np.max([np.max(np.abs(x - y) / np.maximum(np.abs(y), 1)) for x, y in zip(answer, expected)])
    if not error <= TOLERANCE:
        raise AssertionError(f"{what}: the error is {error:.1e}, not at most {TOLERANCE:.0e}")
    return error


def check_sources():
    """Both examples have the same functions beside those of their engine."""
    for name in ("load", "ask", "merge", "partial"):
        if inspect.getsource(getattr(dask_shards, name)) != inspect.getsource(getattr(ray_shards, name)):
            raise AssertionError(f"the two examples differ in {name}()")


def check_hidden_keys(Q, K, V):
    """A query may see no key of a part, or no key at all. Its lse there is minus infinity."""
    mask = np.random.default_rng(1).random((len(Q), len(K))) < 0.5
    mask[0], mask[1, :len(K) // 2] = False, False
    parts = [dask_shards.ask(Q=Q, K=K[i:i + 100], V=V[i:i + 100], mask=np.ascontiguousarray(mask[:, i:i + 100]))
             for i in range(0, len(K), 100)]
    output, lse = dask_shards.merge(parts)
    single = dask_shards.ask(Q=Q, K=K, V=V, mask=mask)
    if output[0].any() or lse[0] != -np.inf or single[1][0] != -np.inf:
        raise AssertionError(f"a query that sees no key has the output {output[0]} and the lse {lse[0]}")
    check("hidden keys", (output[1:], lse[1:]), (single[0][1:], single[1][1:]))


def check_script(engine):
    """The example runs as a program. NumPy computes the same in float64."""
    small = FOLDER / "small"
    small.mkdir(exist_ok=True)
    Q, K, V = (np.random.default_rng(2).standard_normal((1009, columns)) for columns in (16, 16, 24))
    for name, matrix in zip("QKV", (Q[:5], K, V)):
        np.save(small / f"{name}.npy", matrix)
    run(sys.executable, HERE / engine.script, engine.address, small, 3)
    weights = np.exp(Q[:5] @ K.T / 4)
    expected = weights @ V / weights.sum(axis=1, keepdims=True), np.log(weights.sum(axis=1))
    check(engine.script, [np.load(small / f"{name}.npy") for name in ("output", "lse")], expected)


def measure(engine, machines, shards, Q, single):
    """Asks over all keys in so many shards, prints a row of the table, and returns the shards."""
    placed = engine.place(shards)
    before, begin = sum(machine.bytes() for machine in machines), time.monotonic()
    answer = engine.attention(placed, Q)
    seconds = time.monotonic() - begin
    network, loopback = sum(machine.bytes() for machine in machines) - before
    error = check(f"{engine.script} with {shards} shards", answer, single)
    print(f"{engine.script:15} {shards:6} {seconds:8.1f} {network:14,} {loopback:15,} {error:10.1e}", flush=True)
    partials = 8 * (Q.size + len(Q))
    if network > 2 * shards * (Q.nbytes + partials) + (2 << 20):
        raise AssertionError(f"{network} bytes travelled, not {shards} times {Q.nbytes} of Q and {partials} of outputs")
    if loopback < KEYS * COLUMNS * 8:
        raise AssertionError(f"only {loopback} bytes of K and V came to the daemons")
    return placed


def check_death(engine, machine, placed, Q, single, with_worker):
    """Kills a daemon while it is asked, and perhaps the worker that asks it. The daemon is started again."""
    machine.daemon.send_signal(signal.SIGSTOP)  # The call cannot end before the death.
    with concurrent.futures.ThreadPoolExecutor() as thread:
        call = thread.submit(engine.attention, placed, Q)
        worker = wait_for(machine.asking, f"process that asks the daemon of {machine.name}")
        if with_worker:
            os.kill(worker, signal.SIGKILL)
        machine.daemon.kill()
        machine.daemon.wait()
        machine.start_daemon()
        dead = "the daemon and the worker" if with_worker else "the daemon"
        error = check(f"{engine.script} after the death of {dead}", call.result(), single)
    engine.await_workers()
    print(f"{engine.script:15} {dead} of {machine.name} died: the answer has an error of {error:.1e}", flush=True)


def main():
    run("mount", "-t", "tmpfs", "tmpfs", "/run")  # /run/netns and the files of the engines go there.
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "hub", "up", "type", "bridge")
    run("ip", "address", "add", f"{HUB}/24", "dev", "hub")
    check_sources()
    draw = np.random.default_rng(7)
    # The first query sees all keys alike. The last ones see little more than a few keys.
    Q = draw.standard_normal((QUERIES, COLUMNS), np.float32) * np.linspace(0, 4, QUERIES, dtype=np.float32)[:, None]
    for name in "KV":
        np.save(FOLDER / f"{name}.npy", draw.standard_normal((KEYS, COLUMNS), np.float32))
    K, V = (np.load(FOLDER / f"{name}.npy", mmap_mode="r") for name in "KV")
    daemon = start("single", DAEMON, "--max-body", "16GiB", "--max-memory", "16GiB", "--total-memory", "16GiB")
    check_hidden_keys(Q, K[:1009], V[:1009])
    single = dask_shards.ask(Q=Q, K=K, V=V)
    daemon.kill()
    machines = [Machine(number) for number in range(MACHINES)]
    print(f"{QUERIES} queries over {KEYS:,} keys of {COLUMNS} columns, {MACHINES} machines, {os.cpu_count()} cores")
    print("example         shards  seconds  network bytes  loopback bytes      error")
    for kind in (Dask, Ray):
        engine = kind(machines)
        for shards in (1, 2, 4):
            engine.free(measure(engine, machines, shards, Q, single))
        placed = measure(engine, machines, 8, Q, single)
        check_death(engine, machines[1], placed, Q[:32], [x[:32] for x in single], with_worker=False)
        check_death(engine, machines[2], placed, Q[:16], [x[:16] for x in single], with_worker=True)
        engine.free(placed)
        check_script(engine)
        engine.stop()


main()
