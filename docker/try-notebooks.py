"""try-notebooks.py URL posts every tests/notebooks/*.request.json and compares the answers.

Every number must be within 1e-4, which shows that the image computes. tests/notebooks/test_notebooks.c compares
exactly, with the tolerance of each case.
"""

import json
import pathlib
import sys
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "notebooks"


def close(got, want):
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(close, got, want))
    if isinstance(want, dict):
        return isinstance(got, dict) and all(name in got and close(got[name], want[name]) for name in want)
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        return abs(got - want) <= 1e-4 * max(1, abs(want))
    return got == want


def main(url):
    requests = sorted(FOLDER.glob("*.request.json"))
    failed = 0
    for request in requests:
        case = json.loads(pathlib.Path(str(request).replace(".request.", ".expected.")).read_bytes())
        call = urllib.request.Request(url + case["path"], request.read_bytes(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(call, timeout=30) as response:
                answer = json.load(response)
        except OSError as error:
            print(f"{request.name}: {error}")
            failed += 1
            continue
        if not close(answer, case["expect"]):
            print(f"{request.name}: the answer is not the expected one")
            failed += 1
    print(f"notebooks: {len(requests) - failed} as expected, {failed} not")
    return 1 if failed or not requests else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
