"""test_shards.py FOLDER [KEYS] tests dask_shards.py and ray_shards.py on four machines. A machine is a network namespace: it has its
own loopback interface with a daemon at 127.0.0.1:8080, and one other interface. The kernel counts the bytes of both."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
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
HUB = "10.77.0.1"
HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


def run(command):
    return subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, text=True).stdout


def start(name, command, inside=()):
    with open(FOLDER / f"{name}.log", "ab") as log:
        return subprocess.Popen([*inside, *map(str, command)], stdout=log, stderr=log, cwd=FOLDER)


def wait_for(condition, what, seconds=120):
    for _ in range(seconds * 50):
        if found := condition():
            return found
        time.sleep(0.02)
    raise TimeoutError(f"after {seconds} s there is still not: {what}")


class Machine:
    def __init__(self, number):
        self.name, self.address = f"machine{number}", f"10.77.0.{number + 2}"
        run(f"ip netns add {self.name}")
        run(f"ip link add port{number} master hub up type veth peer name eth0 netns {self.name}")
        run(f"ip -n {self.name} address add {self.address}/24 dev eth0")
        for device in ("lo", "eth0"):
            run(f"ip -n {self.name} link set {device} up")
        self.inside = ["nsenter", f"--net=/run/netns/{self.name}"]
        self.start_daemon()

    def start_daemon(self):
        self.daemon = start(self.name, [os.environ["ATTENTIOND_BIN"]], self.inside)

    def bytes(self, device):
        """Returns the bytes that have come through this interface in both directions; on lo they are the same bytes."""
        counters = json.loads(run(f"ip -n {self.name} -s -j link show {device}"))[0]["stats64"]
        return counters["rx"]["bytes"] + (device != "lo") * counters["tx"]["bytes"]

    def asking(self):
        """Returns the process that is connected to the daemon."""
        said = subprocess.run([*self.inside, "ss", "-tnpH", "state", "established", "dport = :8080"],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
        return int(re.search(r"pid=(\d+)", said)[1]) if "pid=" in said else None


class Dask:
    example = "dask_shards.py"
    address = f"tcp://{HUB}:8786"

    def __init__(self, machines):
        environment = ["env", "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING=False"]
        self.processes = [start("dask", [*environment, BIN / "dask", "scheduler", "--host", HUB, "--no-dashboard"])]
        self.processes += [start(f"dask-{machine.name}", [
            BIN / "dask", "worker", self.address, "--no-dashboard", "--local-directory", f"/run/{machine.name}"],
            machine.inside) for machine in machines]
        self.client = Client(self.address, timeout=120)
        self.wait_for(len(machines))

    def wait_for(self, workers):
        self.client.wait_for_workers(workers, timeout=120)

    def place(self, shards):
        return dask_shards.place(self.client, FOLDER, shards)

    def attention(self, placed, Q):
        return dask_shards.attention(self.client, placed, Q)

    def free(self, placed):
        self.client.cancel(placed)

    def stop(self):
        self.client.shutdown()


class Ray:
    example = "ray_shards.py"
    address = f"{HUB}:6379"

    def __init__(self, machines):
        common = ["--disable-usage-stats", "--object-store-memory=100000000"]
        head = [BIN / "ray", "start", "--block", "--head", "--port=6379", f"--node-ip-address={HUB}", "--num-cpus=0", "--include-dashboard=false",
                "--temp-dir=/run/ray", *common]
        self.processes = [start("ray", head)]
        wait_for(lambda: run("ss -tlnH sport = :6379"), "Ray's head")
        self.processes += [start(f"ray-{machine.name}", [
            BIN / "ray", "start", "--block", f"--address={self.address}", f"--node-ip-address={machine.address}", "--num-cpus=2", f"--temp-dir=/run/ray-{machine.name}", *common], machine.inside)
            for machine in machines]
        ray.init(self.address, log_to_driver=False)
        wait_for(lambda: ray.cluster_resources().get("CPU") == 2 * len(machines), "Ray's nodes")

    def place(self, shards):
        placed = ray_shards.place(FOLDER, shards)
        return placed

    def attention(self, placed, Q):
        return ray_shards.attention(placed, Q)

    def wait_for(self, workers):
        pass

    def free(self, placed):
        for shard in placed:
            ray.kill(shard)

    def stop(self):
        ray.shutdown()


def error(answer, expected):
    """Returns the largest difference of two answers. That of a number above 1 is in units of this number."""
    return max((np.abs(x - y) / np.maximum(np.abs(y), 1)).max() for x, y in zip(answer, expected))


def measure(engine, machines, Q, single):
    for shards in (1, 2, 4, 8):
        placed = engine.place(shards)
        engine.attention(placed, Q[:1])
        before = [sum(machine.bytes(device) for machine in machines) for device in ("eth0", "lo")]
        begin = time.monotonic()
        answer = engine.attention(placed, Q)
        seconds = time.monotonic() - begin
        after = [sum(machine.bytes(device) for machine in machines) for device in ("eth0", "lo")]
        payload = shards * (Q.nbytes + 8 * (Q.size + len(Q)))
        print(engine.example, shards, f"{seconds:.1f}", [b - a for a, b in zip(before, after)], payload, error(answer, single), flush=True)
        if shards != 8:
            engine.free(placed)
    return placed


def kill(engine, machines, placed, Q, single):
    machine = machines[2]
    machine.daemon.send_signal(signal.SIGSTOP)
    answers = []
    call = threading.Thread(target=lambda: answers.append(engine.attention(placed, Q)))
    call.start()
    worker = wait_for(machine.asking, "a worker that asks the daemon")
    time.sleep(1)
    os.kill(worker, signal.SIGKILL)
    machine.daemon.kill()
    machine.daemon.wait()
    begin = time.monotonic()
    machine.start_daemon()
    call.join()
    engine.wait_for(len(machines))
    print("killed", worker, time.monotonic() - begin, error(answers[0], single), flush=True)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    run("mount -t tmpfs tmpfs /run")
    run("ip link set lo up")
    run("ip link add hub up type bridge")
    run(f"ip address add {HUB}/24 dev hub")
    t = time.monotonic()
    generator = np.random.default_rng(7)
    Q = generator.standard_normal((QUERIES, COLUMNS), dtype=np.float32)
    Q *= np.linspace(0, 4, QUERIES, dtype=np.float32)[:, None]
    for name in "KV":
        np.save(FOLDER / f"{name}.npy", generator.standard_normal((KEYS, COLUMNS), dtype=np.float32))
    np.save(FOLDER / "Q.npy", Q)
    print("drawn", time.monotonic() - t, flush=True); t = time.monotonic()
    daemon = start("hub", [os.environ["ATTENTIOND_BIN"], "--max-body", "64GiB", "--max-memory", "16GiB", "--total-memory", "16GiB"])
    K, V = dask_shards.load(FOLDER, 0, 1)
    single = dask_shards.ask(Q=Q, K=K, V=V)
    print("single", time.monotonic() - t, run("grep VmHWM /proc/%d/status" % daemon.pid), flush=True)
    daemon.kill()
    t = time.monotonic()
    exact = []
    for a in range(0, KEYS, 1 << 17):
        scores = Q.astype(float) @ K[a:a + (1 << 17)].T.astype(float) / 8
        top = scores.max(axis=1)
        w = np.exp(scores - top[:, None])
        exact.append(((w / w.sum(1)[:, None]) @ V[a:a + (1 << 17)], top + np.log(w.sum(1))))
    exact = dask_shards.merge(exact)
    print("exact", time.monotonic() - t, "error of single", error(single, exact))
    del K, V
    machines = [Machine(number) for number in range(MACHINES)]
    for kind in Dask, Ray:
        t = time.monotonic()
        engine = kind(machines)
        print(kind.__name__, "started", time.monotonic() - t, flush=True)
        placed = measure(engine, machines, Q, single)
        kill(engine, machines, placed, Q, single)
        engine.stop()
        print(kind.__name__, "all", time.monotonic() - t, flush=True)


main()
