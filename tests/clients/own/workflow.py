#!/usr/bin/python3
"""workflow.py PYTHON URL runs what server/clients/python has to copy for a continuous integration: the commands of workflow.yml, and
check.sh. Each gets a right kernel and a wrong one, in an environment of its own in which python3 is PYTHON, which has NumPy.
The daemon at URL is the service of the workflow, and a script in the place of docker starts $ATTENTIOND_BIN for check.sh. ADDRESS is a
repository with the client of this tree. Nothing needs the network."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import yaml

CLIENT = pathlib.Path(__file__).resolve().parents[3] / "server" / "clients" / "python"
KERNEL = """
import numpy as np

def attention(q, k, v, causal=False):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.float32(q.shape[-1] ** 0.5)
    n, m = scores.shape[-2:]
    if causal:
        scores = np.where(np.tri(n, m, m - n if causal == "bottom_right" else 0, dtype=bool), scores, np.float32(-np.inf))
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), np.float32(-1e30)))
    return weights @ v / np.maximum(weights.sum(-1, keepdims=True), np.float32(1e-30))
"""
RIGHT, WRONG = '"bottom_right" else 0', '"bottom_right" else 1'  # each query sees the key after its own, too
# This stands in for docker, and does what check.sh asks for. The id of a container is the process of a daemon and its address.
DOCKER = """#!/bin/bash
set -eu
case "$*" in
"run -d --rm -p 127.0.0.1::8080 --read-only --cap-drop=ALL some/image:1")
    mkfifo "$HOME/said"
    ATTENTIOND_PORT=0 '{program}' >"$HOME/said" 2>/dev/null &
    read -r line <"$HOME/said"
    echo $! >"$HOME/running"
    echo $!,"${{line##*/}}" ;;
"port "*" 8080/tcp") echo "${{2#*,}}" ;;
"rm -f "*) kill "${{3%,*}}" && rm "$HOME/running" ;;
*) echo "docker $*?" >&2 && exit 1 ;;
esac
"""


def make_repository(folder):
    """Makes a repository with the client, and returns its address."""
    shutil.copytree(CLIENT, folder / "server/clients/python", ignore=shutil.ignore_patterns("__pycache__"))
    for words in ("init -q", "add .", "-c user.name=test -c user.email=test@localhost commit -q -m client"):
        subprocess.run(["git", "-C", folder, *words.split()], check=True)
    return f"file://{folder}"


class Copy:
    """What a reader does with a file: it stands in a folder with a kernel, with the names replaced. The environment is that of a
    machine which has python3, and in which docker starts the daemon."""

    def __init__(self, folder, python, kernel):
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        docker = folder / "bin/docker"
        docker.write_text(DOCKER.format(program=os.path.realpath(os.environ["ATTENTIOND_BIN"])), encoding="utf-8")
        docker.chmod(0o755)
        (folder / "kernel.py").write_text(kernel, encoding="utf-8")
        self.environment = {"PATH": f"{folder}/bin:{os.path.dirname(python)}:/usr/bin:/bin", "HOME": str(folder), "RUNNER_TEMP": str(folder), "PIP_NO_INDEX": "1",
                            "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *command):
        ended = subprocess.run(command, cwd=self.folder, env=self.environment, text=True, capture_output=True, timeout=300, check=False)
        return ended.returncode, ended.stdout + ended.stderr


def run_workflow(copy, text, url):
    """Runs the commands of the steps as GitHub does, up to the first that fails. Returns its status, and what was printed."""
    text = text.replace("127.0.0.1:8080", url.removeprefix("http://"))
    job, = yaml.safe_load(text)["jobs"].values()
    status, printed = 0, ""
    for step in job["steps"]:
        if status == 0 and "run" in step:
            status, said = copy.run("bash", "-e", "-c", step["run"])
            printed += said
    return status, printed


def check_workflow(text):
    """Checks what is not run: the service, and the steps that others have written. Returns the folder's file that is kept."""
    workflow = yaml.safe_load(text)
    (name, job), = workflow["jobs"].items()
    service, = job["services"].values()
    assert service == {"image": "IMAGE", "ports": ["8080:8080"]}, f"{name} has another service: {service}"
    used = [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]
    assert used == ["actions/checkout", "actions/setup-python", "actions/upload-artifact"], f"the workflow uses {used}"
    last = job["steps"][-1]
    assert last.get("if") == "always()", "the report of a wrong kernel is not kept"
    return last["with"]["path"]


def check(what, copy, ended, is_right, report):
    """Checks the status and the report of a check of a kernel."""
    status, printed = ended
    assert status == (0 if is_right else 1), f"{what} ended with {status}:\n{printed}"
    assert (copy.folder / report).exists(), f"{what} wrote no {report}:\n{printed}"
    suite = xml.etree.ElementTree.parse(copy.folder / report).getroot()
    wrong = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert int(suite.get("tests")) - int(suite.get("skipped")) > 40, f"{what} ran too few cases:\n{printed}"
    assert ("causal-16" in wrong) != is_right, f"{what}: the report has the wrong cases {wrong}"


def main():
    python, url = sys.argv[1:]
    workflow, script = ((CLIENT / name).read_text(encoding="utf-8") for name in ("workflow.yml", "check.sh"))
    report = check_workflow(workflow)
    with tempfile.TemporaryDirectory() as scratch:
        address = make_repository(pathlib.Path(scratch, "source"))
        workflow, script = (text.replace("ADDRESS", address).replace("IMAGE", "some/image:1") for text in (workflow, script))
        for is_right in (True, False):
            kernel = KERNEL if is_right else KERNEL.replace(RIGHT, WRONG)
            copy = Copy(pathlib.Path(scratch, f"workflow-{is_right}"), python, kernel)
            check("workflow.yml", copy, run_workflow(copy, workflow, url), is_right, report)
            copy = Copy(pathlib.Path(scratch, f"script-{is_right}"), python, kernel)
            (copy.folder / "check.sh").write_text(script, encoding="utf-8")
            ended = copy.run("sh", "check.sh", "kernel.py:attention")
            if (copy.folder / "running").exists():
                os.kill(int((copy.folder / "running").read_text(encoding="utf-8")), signal.SIGTERM)
                raise AssertionError(f"check.sh leaves the container:\n{ended[1]}")
            check("check.sh", copy, ended, is_right, report)
    print("python: workflow.yml and check.sh accept a right kernel and refuse a wrong one")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"workflow.py: {error}")
