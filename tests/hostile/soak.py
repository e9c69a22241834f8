"""Promise 30: under mixed load at 0.7 R with bad requests and clients that leave, nothing grows for MINUTES."""
import statistics
from hostile import *

MINUTES = float(os.environ.get("MINUTES") or "10")
MIB = 1 << 20

huge = write("huge.json", body(X=matrix(512, 64, heads=2), **{"return": ["weights"]}))  # an answer sent in chunks
mixed = ["--body", f"{NOTEBOOK}=80", "--body", f"{write('standard.json', standard_body())}=19", "--body", f"{huge}=1",
         "--bad", 5, "--connections", 100]
with Daemon() as daemon:
    result = load(daemon, "/attention", *mixed, "--seconds", 5)
    rate = 0.7 * result["answered"] / result["seconds"]
    daemon.get("/health/live")
    time.sleep(0.5)
    files, begin = daemon.files(), daemon.rss()
    process = start_load(daemon, "/attention", *mixed, "--leave", 2, "--rate", rate, "--seconds", 60 * MINUTES)
    resident = []
    with healthy(daemon, f"{MINUTES:g} minutes at 0.7 R"):
        while process.poll() is None:
            resident.append(daemon.rss())
            time.sleep(0.2)
    result = end_load(process)
    time.sleep(0.5)
    third = len(resident) // 3
    middle, last = statistics.median(resident[third:2 * third]), statistics.median(resident[2 * third:])
    tenths = [statistics.median(resident[i * len(resident) // 10:(i + 1) * len(resident) // 10]) for i in range(10)]
    print("   MiB resident, by tenths of the time:", *(f"{size / MIB:.0f}" for size in tenths))
    growth, allowed = last - middle, max(2 * MIB, 0.03 * middle)
    ends = {end: count for end, count in result["ends"].items() if count > 0}
    check(30, f"{MINUTES:g} minutes at {rate:.0f}/s", f"{ends}, {result['statuses']}, {result['wrong']} wrong",
          "whole or left, none wrong", set(ends) <= {"whole", "left"} and result["wrong"] == 0)
    check(30, "memory, last third over middle third", f"{growth / MIB:+.2f} MiB of {middle / MIB:.0f} MiB",
          f"<= {allowed / MIB:.1f} MiB", growth <= allowed)
    check(30, "descriptors after it", f"{daemon.files()}", f"{files}", daemon.files() <= files + 1)
    time.sleep(6)  # the daemon returns unused memory meanwhile
    check(30, "memory at rest", f"{daemon.rss() / MIB:.0f} MiB", f"<= {begin / MIB:.0f} MiB, as before",
          daemon.rss() <= begin + 2 * MIB)
    check(30, "exit status", f"{daemon.stop()}", "0", daemon.process.returncode == 0)
finish()
