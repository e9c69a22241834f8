"""Promise 29: a file of stored layers is replaced by a renaming, and no answer mixes two versions. $REPLACEMENTS is their
number; 100 if it is not set."""
import multiprocessing
import random
import struct
from hostile import *

REPLACEMENTS = int(os.environ.get("REPLACEMENTS", 100))
LAYERS = os.path.join(FOLDER, "layers")
SIZE = 96  # d_model


def store(name, value):
    """Puts a file with the weights of one layer into the folder as a whole. All numbers of W_V have this value."""
    size, header, numbers = 4 * SIZE * SIZE, {"__metadata__": {"heads": "2"}}, b""
    for i, weight in enumerate(("W_Q", "W_K", "W_V")):
        header[weight] = {"dtype": "F32", "shape": [SIZE, SIZE], "data_offsets": [i * size, (i + 1) * size]}
        numbers += struct.pack("<f", value) * (SIZE * SIZE)
    text = json.dumps(header).encode()
    with open(os.path.join(LAYERS, ".new"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + numbers)
    os.rename(file.name, os.path.join(LAYERS, name))


def replace_with_pauses():
    """Replaces the file again and again, with up to 0.2 s between. The last one is the second version."""
    moments = random.Random(7)
    for turn in range(REPLACEMENTS):
        time.sleep(moments.uniform(0, 0.2))
        store("m.safetensors", 1 + turn % 2)
    store("m.safetensors", 2)


def replace_without_pauses(seconds=8):
    """Gives the name to the one and the other of two files as often as possible, so that the file changes while it is read.
    The last one is the second version."""
    store(".1", 1)
    store(".2", 2)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for version in (".1", ".2"):
            os.link(os.path.join(LAYERS, version), os.path.join(LAYERS, ".new"))
            os.rename(os.path.join(LAYERS, ".new"), os.path.join(LAYERS, "m.safetensors"))


def read_while(replace, readers=8):
    """Asks for the output of the layer, at first of the first version. Another process replaces its file meanwhile. Goes on
    until there is an answer of the last version, which is the second one, 60 s at most. Returns how many answers were of
    the first version, of the second, and of neither, how many were a 503, how many of the second version came after the
    last replacement, and the exit status of the daemon."""
    answers, over, lock = [0, 0, 0, 0], threading.Event(), threading.Lock()
    question = json.dumps({"X": [[1.0] * SIZE] * 4, "return": ["output"]}).encode()

    def read(daemon):
        status, answer = daemon.post("/layers/m.attention/attention", question)
        rows = json.loads(answer)["output"] if status == 200 else []
        versions = {round(number / SIZE, 4) for row in rows for number in row}
        # A 503 says that the file was replaced between a look at the folder and the reading of its numbers.
        version = 3 if status == 503 else 0 if versions == {1} else 1 if versions == {2} else 2
        with lock:
            answers[version] += 1
            if version == 2 and answers[version] == 1:
                print(f"The first of the other answers: {status} {answer[:300]!r}")

    def go_on_reading(daemon):
        while not over.is_set():
            read(daemon)

    store("m.safetensors", 1)
    writer = multiprocessing.get_context("fork").Process(target=replace)
    with Daemon("--layers", LAYERS) as daemon:
        read(daemon)
        threads = [threading.Thread(target=go_on_reading, args=(daemon,)) for _ in range(readers)]
        writer.start()
        for thread in threads:
            thread.start()
        writer.join()
        before, end = answers[1], time.monotonic() + 60
        while answers[1] == before and time.monotonic() < end:
            time.sleep(0.05)
        over.set()
        for thread in threads:
            thread.join()
        assert writer.exitcode == 0, "the process that replaces the file has failed"
        return *answers, answers[1] - before, daemon.stop()


os.mkdir(LAYERS)
# A file that changes all the time may never be read, so an answer is due only before the first and after the last replacement.
for replace, what in ((replace_with_pauses, f"8 readers during {REPLACEMENTS} replacements"),
                      (replace_without_pauses, "8 readers during replacements without pauses")):
    first, second, mixed, later, after, status = read_while(replace)
    check(29, what, f"{first} and {second} answers of the two versions, {later} times 503, {after} answers of the last version "
          f"after it came, {mixed} others, exit status {status}", "both, answers after it, no others",
          first > 0 and after > 0 and mixed == 0 and status == 0)
finish()
