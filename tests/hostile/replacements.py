"""Promise 29: a file of stored layers is replaced by a renaming, and no answer mixes two versions. $REPLACEMENTS is their
number; 100 if it is not set."""
import random
import struct
from hostile import *

REPLACEMENTS = int(os.environ.get("REPLACEMENTS", 100))
LAYERS = os.path.join(FOLDER, "layers")
SIZE = 96  # d_model


def store(value):
    """Puts a file with the weights of one layer into the folder as a whole. All numbers of W_V have this value."""
    size, header, numbers = 4 * SIZE * SIZE, {"__metadata__": {"heads": "2"}}, b""
    for i, name in enumerate(("W_Q", "W_K", "W_V")):
        header[name] = {"dtype": "F32", "shape": [SIZE, SIZE], "data_offsets": [i * size, (i + 1) * size]}
        numbers += struct.pack("<f", value) * (SIZE * SIZE)
    text = json.dumps(header).encode()
    with open(os.path.join(LAYERS, ".new"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + numbers)
    os.rename(file.name, os.path.join(LAYERS, "m.safetensors"))


def read_while_it_is_replaced(readers):
    """Replaces the file again and again, while readers ask for the output of the layer. Returns how many answers were of the
    first version, of the second, and of neither, and the exit status of the daemon."""
    answers, over, lock, moments = [0, 0, 0], threading.Event(), threading.Lock(), random.Random(7)
    question = json.dumps({"X": [[1.0] * SIZE] * 4, "return": ["output"]}).encode()

    def read(daemon):
        while not over.is_set():
            status, answer = daemon.post("/layers/m.attention/attention", question)
            if status == 503:  # The file was replaced between a look at the folder and the reading of its numbers.
                continue
            rows = json.loads(answer)["output"] if status == 200 else []
            versions = {round(number / SIZE, 4) for row in rows for number in row}
            with lock:
                answers[0 if versions == {1} else 1 if versions == {2} else 2] += 1

    with Daemon("--layers", LAYERS) as daemon:
        threads = [threading.Thread(target=read, args=(daemon,)) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for turn in range(REPLACEMENTS):
            store(2 - turn % 2)
            time.sleep(moments.uniform(0, 0.2))
        over.set()
        for thread in threads:
            thread.join()
        return *answers, daemon.stop()


os.mkdir(LAYERS)
store(1)
first, second, mixed, status = read_while_it_is_replaced(8)
check(29, f"8 readers during {REPLACEMENTS} replacements", f"{first} and {second} answers of the two versions, {mixed} others, "
      f"exit status {status}", "both, no others", min(first, second) > 0 and mixed == 0 and status == 0)
finish()
