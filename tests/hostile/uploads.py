"""Promises 28 and 29: the files of stored layers are replaced as a whole, whatever happens to the daemon. $UPLOADS is the
number of times; 100 if it is not set."""
import hashlib
import random
import struct
from hostile import *

TIMES = int(os.environ.get("UPLOADS", 100))
KEY = b"Authorization: Bearer a-key-that-may-write\r\n"
KEYS = write("keys", b"a-key-that-may-write\n")
LAYERS = os.path.join(FOLDER, "layers")
FILE = os.path.join(LAYERS, "m.safetensors")
SIZES = 96, 128  # d_model of the two files


def model(d_model, value):
    """Returns a safetensors file with the weights of one layer. All numbers of W_V have this value."""
    size, header, numbers = 4 * d_model * d_model, {"__metadata__": {"heads": "2"}}, b""
    for i, name in enumerate(("W_Q", "W_K", "W_V")):
        header[name] = {"dtype": "F32", "shape": [d_model, d_model], "data_offsets": [i * size, (i + 1) * size]}
        numbers += struct.pack("<f", value) * (d_model * d_model)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def serve():
    return Daemon("--layers", LAYERS, "--layers-writable", "64MiB", "--api-key-file", KEYS)


def ask(daemon, method, path, data=b""):
    """Sends a request with the key. Returns the status and the body; the status is 0 if there is no answer."""
    head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(data)}\r\n".encode()
    try:
        return daemon.ask(head + KEY + b"\r\n" + data, 60)
    except OSError:
        return 0, b""


def kill_while_it_takes_a_file(files):
    """Kills the daemon at any moment of an upload, again and again. Returns how often the file was then the old one, the new
    one, and anything else."""
    moments = random.Random(7)
    hashes = [hashlib.sha256(file).digest() for file in files]
    kept, current = [0, 0, 0], 0
    with open(FILE, "wb") as file:
        file.write(files[0])
    for _ in range(TIMES):
        with serve() as daemon:
            status, answer = ask(daemon, "GET", "/layers/m.attention")
            served = status == 200 and json.loads(answer)["d_model"] == SIZES[current]
            thread = threading.Thread(target=ask, args=(daemon, "PUT", "/layers/m", files[1 - current]))
            thread.start()
            time.sleep(moments.uniform(0, 0.01))
            daemon.process.kill()
            daemon.process.wait()
            thread.join()
        with open(FILE, "rb") as file:
            found = hashlib.sha256(file.read()).digest()
        good = served and found in hashes
        kept[2 if not good else found == hashes[1 - current]] += 1
        current = hashes.index(found) if good else current
    return kept


def read_while_it_is_replaced(readers):
    """Replaces the file again and again, while readers ask for the output of the layer. Returns the numbers of answers of one
    version, of answers of any other kind, and of uploads that failed."""
    answers, over, lock = [0, 0], threading.Event(), threading.Lock()
    question = json.dumps({"X": [[1.0] * SIZES[0]] * 4, "return": ["output"]}).encode()

    def read(daemon):
        while not over.is_set():
            status, answer = ask(daemon, "POST", "/layers/m.attention/attention", question)
            rows = json.loads(answer)["output"] if status == 200 else []
            versions = {round(number / SIZES[0], 4) for row in rows for number in row}
            with lock:
                answers[versions not in ({1}, {2})] += 1

    with serve() as daemon:
        files = [model(SIZES[0], 1), model(SIZES[0], 2)]
        failed = ask(daemon, "PUT", "/layers/m", files[0])[0] not in (200, 201)
        threads = [threading.Thread(target=read, args=(daemon,)) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for turn in range(TIMES):
            failed += ask(daemon, "PUT", "/layers/m", files[turn % 2])[0] != 200
        over.set()
        for thread in threads:
            thread.join()
        return *answers, failed, daemon.stop()


os.mkdir(LAYERS)
old, new, mixed = kill_while_it_takes_a_file([model(size, 1) for size in SIZES])
check(28, f"{TIMES} times kill -9 during PUT", f"{old} old, {new} new, {mixed} other files", "no other", mixed == 0)
check(28, "the kills met both sides of the renaming", f"{old} and {new}", "both", min(old, new) > 0)
whole, torn, failed, status = read_while_it_is_replaced(8)
check(29, f"8 readers during {TIMES} replacements", f"{whole} answers of one version, {torn} others, {failed} failed uploads, "
      f"exit status {status}", "no others", whole > 0 and torn == 0 and failed == 0 and status == 0)
finish()
