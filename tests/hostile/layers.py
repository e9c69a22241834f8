"""Files of stored layers that are broken, hostile, or become shorter while they are read. None ends the daemon, and GET
/layers has a reason for each file that is not served."""
import random
import struct
from hostile import *

FILES = int(os.environ.get("FILES", 500))
LAYERS = os.path.join(FOLDER, "layers")
TYPES = "F32", "F16", "BF16", "F64", "I8", "F8_E4M3", "F8_E8M0", "BOOL", "X", "", 7, None
NAMES = "W_Q", "W_K", "W_V", "W_O", "b_Q", "norm_Q", "in_proj_weight", "out_proj.weight", "a.self.query.weight", "../../x", "/etc/passwd"


def plain(d_model, layers=1):
    """Returns the header and the bytes of a sound file."""
    size, header, count = 4 * d_model * d_model, {"__metadata__": {"heads": "2"}}, 0
    for layer in range(layers):
        for name in ("W_Q", "W_K", "W_V"):
            header[f"h.{layer}.{name}"] = {"dtype": "F32", "shape": [d_model] * 2, "data_offsets": [count, count + size]}
            count += size
    return header, struct.pack("<f", 0.01) * (count // 4)


def join(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length % (1 << 64)) + text + data


def hostile(chance):
    """Returns a file of which one thing is wrong, or a few."""
    header, data = plain(chance.choice((2, 4, 8)), chance.choice((1, 2)))
    names = [name for name in header if name != "__metadata__"]
    for _ in range(chance.choice((1, 1, 1, 3))):
        tensor = header[chance.choice(names)]
        match chance.randrange(11):
            case 0: tensor["dtype"] = chance.choice(TYPES)
            case 1: tensor["shape"] = chance.choice(([], [0], [1], [-1, 4], [1 << 40] * 4, [4, 4, 4], "4", [2.5], [1e400], None))
            case 2: tensor["data_offsets"] = chance.choice(([0, 0], [8, 4], [0, 1 << 62], [-4, 0], [0], "0", [0, 1e18], [3, 67]))
            case 3: header[chance.choice(NAMES)] = dict(tensor)
            case 4: header["__metadata__"] = chance.choice(({}, {"heads": chance.choice(("0", "-1", "x", "3", "1e9", "NaN", ""))},
                                                          {"heads": 2}, [], "heads", {"config": "{", "heads": "2"},
                                                          {"config": '{"num_attention_heads":1e300,"rope_scaling":[]}'}))
            case 5: data = data[:chance.randrange(len(data))]
            case 6: data += bytes(chance.randrange(1, 99))
            case 7: return join(header, data, chance.choice((0, 1, 1 << 20, 1 << 40, 1 << 63, -1, 99999999)))
            case 8:
                text = bytearray(json.dumps(header).encode())
                for _ in range(chance.choice((1, 3, 30))):
                    text[chance.randrange(len(text))] = chance.randrange(256)
                return join(bytes(text), data)
            case 9: return join(b"[" * chance.choice((1, 1000, 60000)) + json.dumps(header).encode(), data)
            case 10: data = struct.pack("<f", chance.choice((float("nan"), float("inf"), 3e38))) * (len(data) // 4)
    return join(header, data)


def fill():
    """Writes the files, and things that are no files. Returns the names of the models."""
    chance, models = random.Random(11), []
    for i in range(FILES):
        name = f"m{i}"
        path = os.path.join(LAYERS, f"{name}.safetensors")
        kind = chance.randrange(40)
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            os.symlink(chance.choice(("/etc/passwd", "/dev/zero", path, "nothing", "../layers")), path)
        elif kind == 2:
            os.mkdir(path)
        elif kind == 3:
            with open(os.path.join(LAYERS, f"{name}.safetensors.index.json"), "w", encoding="ascii") as file:
                file.write(chance.choice(("{", "{}", '{"weight_map":{}}', '{"weight_map":{"a":"../m1.safetensors"}}',
                                          '{"weight_map":{"a":"m1.safetensors","b":"none.safetensors"}}', '{"weight_map":[1]}')))
        else:
            with open(path, "wb") as file:
                file.write(hostile(chance))
        models.append(name)
    return models


def shrink(daemon):
    """Cuts a file again and again while clients use its layers. Returns the counts of the statuses. The daemon looks at the
    folder now and then, so every tenth time the file stays whole until a client has used it."""
    path, statuses, over, lock = os.path.join(LAYERS, "big.safetensors"), {}, threading.Event(), threading.Lock()
    whole = join(*plain(256, 4))
    body = json.dumps({"X": [[0.5] * 256] * 2, "return": ["output"]}).encode()

    def use(i):
        while not over.is_set():
            status = daemon.post(f"/layers/big.h.{i}/attention", body)[0]
            with lock:
                statuses[status] = statuses.get(status, 0) + 1

    threads = [threading.Thread(target=use, args=(i % 4,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for turn in range(100):
        with open(path, "wb") as file:
            file.write(whole)
        used, end = statuses.get(200, 0), time.monotonic() + 20
        while turn % 10 == 0 and statuses.get(200, 0) == used and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.02)
        os.truncate(path, random.Random(turn).randrange(len(whole)))
        time.sleep(0.02)
    over.set()
    for thread in threads:
        thread.join()
    return statuses


def listed(daemon):
    """Returns all layers that are served, and all files and layers that are not. The list comes in pages."""
    page, layers, refused = {"next": ""}, [], []
    while "next" in page:
        status, answer = daemon.get(f"/layers?limit=100&after={page['next']}", 60)
        assert status == 200, answer
        page = json.loads(answer)
        layers += page["layers"]
        refused += page["refused"]
    return layers, refused


os.mkdir(LAYERS)
names = fill()
with Daemon("--layers", LAYERS) as daemon:
    served, unserved = listed(daemon)
    known = {entry["model"] for entry in served}
    reasons = {entry["model"]: entry.get("reason", "") for entry in unserved}
    silent = [name for name in names if name not in known and not reasons.get(name)]
    check(28, f"{FILES} hostile files", f"{len(known)} serve a layer, {len(reasons)} have a reason, {len(silent)} neither",
          "none neither", not silent and len(reasons) > FILES // 2)
    refused = 0
    for entry in served:
        body = json.dumps({"X": [[0.5] * entry["d_model"]]}).encode()
        status, answer = daemon.post(f"/layers/{entry['name']}/attention", body)
        refused += status not in (200, 422) or b"nan" in answer.lower()
    check(28, f"the {len(served)} layers in them", f"{refused} strange answers", "0", refused == 0)
    statuses = shrink(daemon)
    check(28, "a file that is cut while it is used", f"statuses {statuses}", "200, 404, 422 and 503 only",
          statuses.get(200, 0) > 0 and set(statuses) <= {200, 404, 422, 503})
    check(28, "the daemon afterwards", f"exit status {daemon.stop()}", "0", daemon.process.poll() == 0)
finish()
