"""Promise 33: signals, a stopped process and jumps of the wall clock lose no request."""
import glob
from hostile import *

LOAD = ("--body", NOTEBOOK, "--connections", 50, "--rate", 500, "--seconds", 4)


def whole(result):
    return result["statuses"] == {"200": result["sent"]}


def under_load(what, daemon, act):
    process = start_load(daemon, "/attention", *LOAD)
    time.sleep(0.5)
    act()
    result = end_load(process)
    alive = daemon.process.poll() is None
    check(33, what, f"{result['statuses'].get('200', 0)} of {result['sent']} answered with 200, "
          f"{'alive' if alive else 'gone'}", "all, alive", alive and whole(result))


def storm(daemon):
    for _ in range(1000):
        for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2):
            daemon.signal(number)
        time.sleep(0.001)


def pause(daemon):
    daemon.signal(signal.SIGSTOP)
    time.sleep(2)
    daemon.signal(signal.SIGCONT)


def jump(clock):
    for offset in ("+1d", "-1d", "+0"):
        with open(clock, "w", encoding="ascii") as file:
            file.write(offset + "\n")
        time.sleep(1)


with Daemon() as daemon:
    under_load("4000 signals: HUP, PIPE, USR1, USR2", daemon, lambda: storm(daemon))
with Daemon("--header-timeout", 3, "--idle-timeout", 3) as daemon:
    under_load("SIGSTOP for 2 s", daemon, lambda: pause(daemon))
libraries = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
if not libraries:
    sys.exit("libfaketime is missing: docker/packages.sh hostile")
clock = write("clock", b"+0\n")
preload = ["env", f"LD_PRELOAD={libraries[0]}", f"FAKETIME_TIMESTAMP_FILE={clock}", "FAKETIME_NO_CACHE=1",
           "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"]
with Daemon("--header-timeout", 3, "--idle-timeout", 3, prefix=preload) as daemon:
    under_load("the wall clock jumps a day ahead and two back", daemon, lambda: jump(clock))
finish()
