"""Runs load against three servers while faults happen, and checks the history. See `run` beside this file."""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import check
from load import Caller
from stand import Stand, dump, wait_for

# Time after an outage of PostgreSQL in which writes may still fail: connections are made again.
SETTLE = 5.0


class Faults:
    """What happens to the servers, one thing at a time, in an order that the seed gives."""

    def __init__(self, stand: Stand, seed: int):
        self.stand, self.random = stand, random.Random(seed)
        self.outages: list[tuple[float, float]] = []
        self.continued: list[tuple[str, float]] = []
        self.done: Counter = Counter()

    def next(self, which: str | None = None) -> None:
        which = which or self.random.choice(["kill", "kill", "freeze", "drain", "cut", "database"])
        print(f"{time.strftime('%H:%M:%S')} {which}", flush=True)
        getattr(self, which)()
        self.done[which] += 1
        wait_for("the servers", lambda: all(deck.is_ready() for deck in self.stand.decks), 90)

    def kill(self) -> None:
        """A server dies at once, and is started again."""
        deck = self.random.choice(self.stand.decks)
        deck.signal(signal.SIGKILL)
        deck.wait(30)
        time.sleep(self.random.uniform(0, 3))
        deck.start()

    def freeze(self) -> None:
        """A server is stopped for longer than a lease, and then continues as if nothing had been."""
        deck = self.random.choice(self.stand.decks)
        deck.signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(5, 25))
        deck.signal(signal.SIGCONT)
        self.continued.append((deck.name, time.time()))

    def drain(self) -> None:
        """A server is stopped in good order, as in an upgrade, and must end with 0."""
        deck = self.random.choice(self.stand.decks)
        deck.signal(signal.SIGTERM)
        code = deck.wait(60)
        if code != 0:
            raise SystemExit(f"{deck.name} ended with {code} after SIGTERM")
        deck.start()

    def cut(self) -> None:
        """A server alone does not reach PostgreSQL for a while. The others go on."""
        deck = self.random.choice(self.stand.decks)
        deck.relay.cut()
        time.sleep(self.random.uniform(3, 15))
        deck.relay.mend()
        self.continued.append((deck.name, time.time()))
        time.sleep(SETTLE)

    def clock(self) -> None:
        """A server restarts with a clock that is an hour ahead, runs for a while, and restarts with the right one."""
        deck = self.random.choice(self.stand.decks)
        for ahead in ("+1h", None):
            deck.signal(signal.SIGTERM)
            deck.wait(60)
            deck.ahead = ahead
            deck.start()
            wait_for(f"{deck.name}", deck.is_ready, 60)
            time.sleep(self.random.uniform(3, 8))

    def database(self) -> None:
        """PostgreSQL dies and is started again."""
        began = time.time()
        self.stand.postgres.stop()
        time.sleep(self.random.uniform(0, 3))
        self.stand.postgres.start()
        self.outages.append((began, time.time() + SETTLE))
        time.sleep(SETTLE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="the helmdeck program")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--faults", help="these in this order instead of random ones: kill, freeze, drain, cut, clock, database")
    parser.add_argument("--failed-per-mille", type=float, default=1.0, help="most calls that may fail")
    parser.add_argument("--local-system", action="store_true", help="each server has its own system database")
    parser.add_argument("--keep", type=Path, help="a folder for the history")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="helmdeck-soak-") as folder, Stand(Path(folder), arguments.program.resolve(), {}) as stand:
        faults = Faults(stand, arguments.seed)
        callers = [Caller(stand, number, arguments.seed, not arguments.local_system) for number in range(arguments.callers)]
        for caller in callers:
            caller.start()
        end, planned = time.time() + arguments.seconds, (arguments.faults or "").split(",") if arguments.faults else None
        try:
            while time.time() < end and planned != []:
                time.sleep(faults.random.uniform(2, 6))
                faults.next(planned.pop(0) if planned else None)
            time.sleep(2)
        finally:
            for caller in callers:
                caller.over.set()
            for caller in callers:
                caller.join(120)
        history = sorted((entry for caller in callers for entry in caller.history), key=lambda entry: entry["began"])
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            dump(arguments.keep / "history.jsonl", history)
        report(stand, faults, callers, history, arguments.failed_per_mille)


def report(stand: Stand, faults: Faults, callers: list[Caller], history: list[dict], limit: float) -> None:
    """Checks everything, says what was found, and ends the program with 1 if anything is wrong."""
    wrong = check.facts(callers) + check.turns(callers) + check.answers(history)
    wrong += check.stale(history, faults.continued) + check.sessions(history) + check.writes(stand.packs, history)
    wrong += check.jobs(stand.packs, callers)
    failed, counted = check.failures(history, faults.outages)
    share = 1000 * failed / max(counted, 1)
    if share > limit:
        kinds = Counter((entry["what"], entry["status"]) for entry in history if entry["status"] not in (200, 201, 202))
        wrong.append(f"{failed} of {counted} calls failed ({share:.2f} per mille): {dict(kinds)}")
    print(f"faults: {dict(faults.done)}")
    print(f"calls: {dict(Counter(entry['what'] for entry in history))}")
    print(f"answered by: {dict(Counter(entry['deck'] for entry in history))}")
    print(f"failed while PostgreSQL was there: {failed} of {counted} ({share:.2f} per mille)")
    for line in wrong[:20]:
        print(f"WRONG {line}")
    if len(history) < 10 or len(wrong) > 0:
        sys.exit(1)
    print("nothing acknowledged was lost, nothing of another caller was seen, nothing ran twice")


main()
