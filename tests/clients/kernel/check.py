#!/usr/bin/python3
"""check.py NAME URL sends kernel.safetensors of the current folder with the curl of README.md. The verdict must say that all
results are right. Then it changes the sign of the last number: the status must be 409, and the exit status of curl 22."""

import json
import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
FILE = pathlib.Path("kernel.safetensors")
ADDRESS = "http://127.0.0.1:8080"
RESULTS = {"output", "lse", "grad_Q", "grad_K", "grad_V"}


def send(status):
    """Returns the answer, in which curl must end with this status."""
    command = re.search(r"^```sh\n(curl .*?)^```$", README, re.M | re.S)[1]
    assert ADDRESS in command, f"the command does not ask {ADDRESS}"
    command = command.replace(ADDRESS, sys.argv[2])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == status, f"curl ended with {done.returncode}, not {status}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def main():
    answer = send(0)
    assert set(answer) == {"comparison"}, f"the answer has {set(answer)}"
    verdicts = {name: result["verdict"] for name, result in answer["comparison"]["results"].items()}
    assert set(verdicts) == RESULTS and set(verdicts.values()) <= {"equal", "rounded"}, f"the verdicts are {verdicts}"
    changed = bytearray(FILE.read_bytes())
    changed[-1] ^= 0x80
    FILE.write_bytes(changed)
    problem = send(22)
    assert (problem["status"], problem["comparison"]["verdict"]) == (409, "wrong"), f"the answer is {problem}"
    print(f"{sys.argv[1]}: the results are right, and one with a wrong number is refused")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
