"""try-notebooks.py URL [OPTION...] posts every tests/notebooks/*.request.json and checks the answers.

Every number must be within 1e-4, which shows that the image computes. tests/notebooks/test_notebooks.c compares
exactly, with the tolerance of each case. curl sends the requests, and gets all options but these:

    --requests FOLDER   has the requests, in place of tests/notebooks
    --write FOLDER      gets the answers
    --compare FOLDER    has the answers of the version before. An answer must have its status, its type and its members,
                        with equal numbers but for their last bits. CHANGELOG.md says that it may have more members.
"""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "notebooks"
# Two right results differ by at most twice the error that the service promises, in parts of the largest number.
LAST_BITS = {"float32": 2e-6, "float64": 2e-14}


def close(got, want):
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(close, got, want))
    if isinstance(want, dict):
        return isinstance(got, dict) and all(name in got and close(got[name], want[name]) for name in want)
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        return abs(got - want) <= 1e-4 * max(1, abs(want))
    return got == want


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def largest(value):
    """Returns the largest magnitude of the numbers in a result."""
    if isinstance(value, list):
        return max(map(largest, value), default=0)
    return abs(value) if is_number(value) else 0


def agree(now, before, bound, scale=None):
    """Returns whether a client of the version before finds in `now` all that it found in `before`. Numbers may differ
    by `bound` in parts of the largest one in their result (`scale`)."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(name in now and agree(now[name], value, bound)
                                             for name, value in before.items())
    if isinstance(before, list):
        scale = largest(before) if scale is None else scale
        return isinstance(now, list) and len(now) == len(before) and all(
            agree(*pair, bound, scale) for pair in zip(now, before))
    if is_number(before):
        return is_number(now) and abs(now - before) <= bound * (abs(before) if scale is None else scale)
    return type(now) is type(before) and now == before


def ask(url, request, options):
    """Returns the status and the type of the answer in a line, and its bytes."""
    call = subprocess.run(["curl", "-sS", "-m", "30", "-H", "Content-Type: application/json", "--data-binary",
                           f"@{request}", "-w", "\n%{http_code} %{content_type}", *options, url],
                          stdout=subprocess.PIPE)
    body, _, head = call.stdout.rpartition(b"\n")
    return head, body


def check(request, case, head, body, earlier):
    """Returns what is wrong with an answer, or None."""
    try:
        answer = json.loads(body)
    except ValueError:
        return "the answer is not JSON"
    if not close(answer, case["expect"]):
        return "the answer is not the expected one"
    if earlier:
        before_head, _, before = earlier.partition(b"\n")
        dtype = json.loads(request.read_bytes()).get("dtype", "float32")
        if head != before_head:
            return f"{head.decode()}, and before {before_head.decode()}"
        if not agree(answer, json.loads(before), LAST_BITS[dtype]):
            return f"{body.decode()}, and before {before.decode()}"
    return None


def main(url, *options):
    options, own = list(options), {"--requests": FOLDER, "--write": None, "--compare": None}
    for name in own:
        if name in options:
            at = options.index(name)
            own[name] = pathlib.Path(options[at + 1])
            del options[at : at + 2]
    folder, write, compare = own.values()
    if write:
        write.mkdir()
    requests = sorted(folder.glob("*.request.json"))
    failed = same = 0
    for request in requests:
        case = json.loads(pathlib.Path(str(request).replace(".request.", ".expected.")).read_bytes())
        head, body = ask(url + case["path"], request, options)
        if write:
            (write / request.name).write_bytes(head + b"\n" + body)
        earlier = (compare / request.name).read_bytes() if compare else b""
        wrong = check(request, case, head, body, earlier)
        if wrong:
            print(f"{request.name}: {wrong}")
            failed += 1
        same += head + b"\n" + body == earlier
    beside = f"; {same} equal those of the version before byte for byte, the others but for last bits" if compare else ""
    print(f"notebooks: {len(requests) - failed} as expected, {failed} not{beside if not failed else ''}")
    return 1 if failed or not requests else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
