"""Measures cached calls a second, and the processor time of one, with 1, 2 and 3 servers behind HAProxy.

Usage: measure.py PROGRAM [CALLS]

Needs `ab` (Debian: apache2-utils). Load, balancer, servers and PostgreSQL share the machine, so the calls a second say little
on a small one; processor time per call does not depend on that.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from load import token
from stand import Stand


def seconds(pid: int) -> float:
    """Returns the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    program, calls = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    for count in (1, 2, 3):
        with tempfile.TemporaryDirectory(prefix="helmdeck-measure-") as folder, Stand(Path(folder), program, {}, count) as stand:
            body = Path(folder) / "input.json"
            body.write_text(json.dumps({"key": "a"}))
            url = f"http://127.0.0.1:{stand.port}/api/v1/packs/soak.echo"
            command = ["ab", "-q", "-k", "-c", "16", "-p", str(body), "-T", "application/json",
                       "-H", f"Authorization: Bearer {token('ann')}"]
            subprocess.run([*command, "-n", "300", url], check=True, stdout=subprocess.DEVNULL)
            pids = [deck.process.pid for deck in stand.decks if deck.process]
            before = [seconds(pid) for pid in pids]
            said = subprocess.run([*command, "-n", str(calls), url], check=True, capture_output=True, text=True).stdout
            used = sum(seconds(pid) - at for pid, at in zip(pids, before))
            rate = re.search(r"Requests per second: +([\d.]+)", said)
            failed = re.search(r"Non-2xx responses: +(\d+)", said)
            print(f"{count} servers: {rate and rate[1]} calls/s, {1e6 * used / calls:.0f} us of processor time a call,"
                  f" {failed[1] if failed else 0} not 200", flush=True)


main()
