"""The service that the check asks: that of a URL, one that answers at the usual address, or one that is started for the check."""

import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.request

from attentiond import Client

BUNDLED = pathlib.Path(__file__).with_name("bundle") / "attentiond"  # a wheel for Linux has it
USUAL = "http://127.0.0.1:8080"
IMAGE = "attentiond"  # as README.md of the repository calls it; it is never pulled, because a registry may have another one of this name


class Daemon:
    """Has the `client` of the service. close() ends what was started."""

    def __init__(self, url=None, api_key=None):
        self.close = lambda: None
        self.client = Client(url or os.environ.get("ATTENTIOND_URL") or (USUAL if answers(USUAL) else self.start()),
                             api_key or os.environ.get("ATTENTIOND_API_KEY"))

    def start(self):
        """Starts the program, or a container, and returns its URL."""
        image = os.environ.get("ATTENTIOND_IMAGE")
        program = os.environ.get("ATTENTIOND_BIN") or (None if image else str(BUNDLED) if BUNDLED.exists() else shutil.which("attentiond"))
        if program:
            return self.start_program(program)
        tried = [f"nothing answers at {USUAL}", "ATTENTIOND_BIN is not set", *([] if image else ["there is no program attentiond"])]
        for engine in "docker", "podman":
            if shutil.which(engine) is None:
                tried.append(f"there is no {engine}")
                continue
            try:
                return self.start_container(engine, image or IMAGE, "missing" if image else "never")
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                said = [line for line in (getattr(error, "stderr", None) or str(error)).splitlines() if line and not line.startswith(("Run ", "See "))]
                tried.append(f"{engine} does not run the image {image or IMAGE} ({said[-1][:200] if said else 'it failed'})")
        raise ValueError(f"there is no service: {', '.join(tried)}. Start one, name it with --url, or set ATTENTIOND_BIN to the program, or "
                         "ATTENTIOND_IMAGE to the name of an image")

    def start_program(self, program):
        process = subprocess.Popen([program, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def close():
            process.terminate()
            process.wait()
            process.stdout.close()
        self.close = close
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        if found is None:
            close()
            raise ValueError(f"{program} has not started")
        return f"http://127.0.0.1:{found[1]}"

    def start_container(self, engine, image, pull):
        def ask(*arguments, timeout=60):
            done = subprocess.run([engine, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=True)
            return (done.stdout.strip().splitlines() or [""])[-1]
        container = ask("run", "-d", "--rm", f"--pull={pull}", "-p", "127.0.0.1::8080", "--read-only", "--cap-drop=ALL", image,
                        timeout=60 if pull == "never" else 600)
        self.close = lambda: subprocess.run([engine, "kill", container], capture_output=True, check=False)  # it may have ended
        try:
            url = f"http://{ask('port', container, '8080')}"
            end = time.monotonic() + 20
            while not answers(url):
                if time.monotonic() > end:
                    raise ValueError("its service does not answer after 20 s")
                time.sleep(0.1)
        except BaseException:
            self.close()
            self.close = lambda: None
            raise
        return url


def answers(url):
    """Returns whether a service answers at this URL."""
    try:
        with urllib.request.urlopen(f"{url}/health/live", timeout=1) as response:
            return response.status == 200
    except (OSError, ValueError):
        return False
