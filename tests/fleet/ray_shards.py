"""ray_shards.py computes one call of attention on many machines with Ray. Actors hold shards of K and V.

    python ray_shards.py HEAD:6379 FOLDER SHARDS

Q.npy, K.npy and V.npy in FOLDER hold one matrix each. The results are output.npy and lse.npy. Every machine can read
FOLDER. A daemon runs on every machine, at ATTENTIOND_URL or at http://127.0.0.1:8080."""

import json
import os
import sys

import numpy as np
import ray
import urllib3

LENGTH = "Inference-Header-Content-Length"


def load(folder, shard, shards):
    """Reads the rows of K and V that belong to a shard."""
    K, V = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in "KV")
    rows = slice(len(K) * shard // shards, len(K) * (shard + 1) // shards)
    return np.array(K[rows], np.float32), np.array(V[rows], np.float32)


def ask(**tensors):
    """Asks the daemon beside this process over /v2. It is asked again if it is busy, or if it dies and starts again."""
    url = os.environ.get("ATTENTIOND_URL", "http://127.0.0.1:8080") + "/v2/models/attention/infer"
    inputs = [{"name": name, "shape": x.shape, "datatype": {"f": "FP32", "b": "BOOL"}[x.dtype.kind],
               "parameters": {"binary_data_size": x.nbytes}} for name, x in tensors.items()]
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in ("output", "lse")]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    headers = {"Content-Type": "application/octet-stream", LENGTH: str(len(head))}
    retries = urllib3.Retry(8, backoff_factor=0.25, allowed_methods=None, status_forcelist=[503])
    body = b"".join([head, *tensors.values()])
    answer = urllib3.request("POST", url, body=body, headers=headers, retries=retries, timeout=60)
    if answer.status != 200:
        raise RuntimeError(f"{url} answers {answer.status} {answer.data.decode()}")
    numbers, n = np.frombuffer(answer.data, np.float32, offset=int(answer.headers[LENGTH])), len(tensors["Q"])
    return numbers[:-n].reshape(n, -1), numbers[-n:]


def merge(parts):
    """Merges the outputs and lses over parts of the keys. The weight of a part is exp(lse of the part - lse of all)."""
    outputs, lses = (np.array(x, np.float64) for x in zip(*parts))
    lse = np.logaddexp.reduce(lses)
    shares = np.exp(lses - np.where(np.isneginf(lse), 0, lse))  # A query without a key has the lse -inf
    return np.einsum("pn,pnd->nd", shares, outputs), lse


def partial(Q, shard):
    """Computes the output and the lse of the queries over one shard. Each request has at most 32 MiB of it."""
    K, V = shard
    rows = (32 << 20) // (K[0].nbytes + V[0].nbytes)
    return merge([ask(Q=Q, K=K[i:i + rows], V=V[i:i + rows]) for i in range(0, len(K), rows)])


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=-1)
class Shard:
    """Holds a shard. If its process dies, Ray starts another one, which loads the shard again and repeats the call."""

    def __init__(self, folder, shard, shards):
        self.shard = load(folder, shard, shards)

    def attend(self, Q):
        return partial(Q, self.shard)


def place(folder, shards):
    """Lets actors load the shards. Ray spreads the actors over the machines."""
    placed = [Shard.remote(folder, shard, shards) for shard in range(shards)]
    ray.get([shard.__ray_ready__.remote() for shard in placed])
    return placed


def attention(placed, Q):
    """Sends the queries to the shards, and merges their partial outputs."""
    return merge(ray.get([shard.attend.remote(Q) for shard in placed]))


def main(address, folder, shards):
    Q = np.load(f"{folder}/Q.npy").astype(np.float32)
    ray.init(address)
    output, lse = attention(place(folder, int(shards)), Q)
    np.save(f"{folder}/output.npy", output)
    np.save(f"{folder}/lse.npy", lse)


if __name__ == "__main__":
    main(*sys.argv[1:])
