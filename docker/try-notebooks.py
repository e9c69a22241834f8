"""try-notebooks.py URL [OPTION...] posts every tests/notebooks/*.request.json and compares the answers.

curl sends the requests, and gets the options.

Every number must be within 1e-4, which shows that the image computes. tests/notebooks/test_notebooks.c compares
exactly, with the tolerance of each case.
"""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "notebooks"


def close(got, want):
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(close, got, want))
    if isinstance(want, dict):
        return isinstance(got, dict) and all(name in got and close(got[name], want[name]) for name in want)
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        return abs(got - want) <= 1e-4 * max(1, abs(want))
    return got == want


def main(url, *options):
    requests = sorted(FOLDER.glob("*.request.json"))
    failed = 0
    for request in requests:
        case = json.loads(pathlib.Path(str(request).replace(".request.", ".expected.")).read_bytes())
        call = subprocess.run(["curl", "-sS", "-m", "30", "-H", "Content-Type: application/json", "--data-binary",
                               f"@{request}", *options, url + case["path"]], stdout=subprocess.PIPE)
        try:
            answer = json.loads(call.stdout)
        except ValueError:
            print(f"{request.name}: the answer is not JSON")
            failed += 1
            continue
        if not close(answer, case["expect"]):
            print(f"{request.name}: the answer is not the expected one")
            failed += 1
    print(f"notebooks: {len(requests) - failed} as expected, {failed} not")
    return 1 if failed or not requests else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
