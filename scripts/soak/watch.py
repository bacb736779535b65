"""Watches what the servers hold while they work: memory, open files, threads, and the size of their logs."""

import os
import threading
import time
from pathlib import Path
from statistics import mean

# Interval of samples, in seconds.
EVERY = 5.0
# What may differ between two quarters of a run: a share of the first, and so much in any case.
SHARE = 0.05
ALLOWED = {"resident KiB": 2048, "own KiB": 2048, "open files": 8, "threads": 4}


def sample(process: int) -> dict[str, int] | None:
    """Returns what a process holds, `None` if it is gone."""
    proc = Path("/proc") / str(process)
    try:
        memory = dict(line.split(":") for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
        kib = {name: int(value.split()[0]) for name, value in memory.items()}
        return {
            "resident KiB": kib["Rss"], "own KiB": kib["Anonymous"],
            "open files": len(os.listdir(proc / "fd")), "threads": len(os.listdir(proc / "task")),
        }
    except (OSError, ValueError, KeyError):
        return None


class Watch(threading.Thread):
    """Takes samples of every server until it is told to stop."""

    def __init__(self, decks: list):
        super().__init__(daemon=True)
        self.decks, self.over = decks, threading.Event()
        self.samples: dict[tuple[str, int], list[dict[str, int]]] = {}

    def run(self) -> None:
        while not self.over.wait(EVERY):
            for deck in self.decks:
                if deck.process and (found := sample(deck.process.pid)):
                    self.samples.setdefault((deck.name, deck.process.pid), []).append(found)

    def finish(self, calls: int) -> list[str]:
        """Prints what each server held, and returns what grew from the second quarter of its samples to the last one.

        The first quarter is left out: caches fill. A server with few samples was started again, and says nothing.
        """
        self.over.set()
        self.join(30)
        wrong = []
        for (name, _), samples in self.samples.items():
            quarter = len(samples) // 4
            if quarter < 10:
                continue
            line = []
            for what, allowed in ALLOWED.items():
                before = mean(one[what] for one in samples[quarter:2 * quarter])
                after = mean(one[what] for one in samples[-quarter:])
                line.append(f"{what} {before:.0f} -> {after:.0f}")
                if after > before * (1 + SHARE) + allowed:
                    wrong.append(f"{name}: {what} grew from {before:.0f} to {after:.0f}")
            print(f"{name}, second and last quarter of {len(samples) * EVERY / 60:.0f} min: {', '.join(line)}")
        logged = sum(deck.stand.folder.joinpath(f"{deck.name}.log").stat().st_size for deck in self.decks)
        print(f"logs of all servers: {logged} bytes for {calls} calls")
        return wrong
