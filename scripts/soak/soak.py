"""Runs load against three servers while faults happen, and checks the history. See `run` beside this file."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import check
import consistency
from faults import Faults
from load import Caller
from stand import Stand, dump
from watch import Watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="the helmdeck program")
    parser.add_argument("--old", type=Path, help="the program of the version before, for the rolling upgrade")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.1, help="mean pause of a caller between two calls, in seconds")
    parser.add_argument("--gap", type=float, default=10.0, help="mean time between two faults, in seconds")
    parser.add_argument("--faults", help="these in this order instead of rounds of all, each a method of faults.py; \"none\" for a run without faults")
    parser.add_argument("--failed-per-mille", type=float, default=1.0, help="most calls that may fail")
    parser.add_argument("--failed-calls", type=int, help="most calls that may fail, instead of a share of them")
    parser.add_argument("--small", action="store_true", help="without NATS, a bucket and namespaces")
    parser.add_argument("--clients", type=int, default=3, help="callers of the second check")
    parser.add_argument("--fsync", action="store_true", help="PostgreSQL syncs to the disk")
    parser.add_argument("--weed", help="the program of SeaweedFS; without it there is no bucket")
    parser.add_argument("--local-system", action="store_true", help="each server has its own system database")
    parser.add_argument("--keep", type=Path, help="a folder for the history and the logs")
    arguments = parser.parse_args()
    old = arguments.old.resolve() if arguments.old else None
    # Whoever ends it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    with tempfile.TemporaryDirectory(prefix="helmdeck-soak-") as folder, \
            Stand(Path(folder), arguments.program.resolve(), {}, small=arguments.small, weed=arguments.weed, steady=arguments.faults == "none",
                  fsync=arguments.fsync) as stand:
        print(f"seed {arguments.seed}, {type(stand.network).__name__.lower()}, NATS {bool(stand.nats)}, bucket {bool(stand.bucket)}", flush=True)
        faults = Faults(stand, arguments.seed, old)
        callers = [Caller(stand, number, arguments.seed, not arguments.local_system, arguments.pause) for number in range(arguments.callers)]
        # They need the system database of all servers.
        clients = [] if arguments.local_system else [consistency.Client(stand, number, arguments.seed, arguments.pause) for number in range(arguments.clients)]
        watch = Watch(stand.decks)
        try:
            watch.start()
            load(faults, callers, clients, arguments)
            grown = watch.finish(sum(len(caller.history) for caller in callers))
            history = sorted((entry for caller in callers for entry in caller.history), key=lambda entry: entry["began"])
            for client in clients:
                client.finish()
            entries = sorted((entry for client in clients for entry in client.entries), key=lambda entry: entry["began"])
            if arguments.keep:
                keep(arguments.keep, stand, faults, history)
                dump(arguments.keep / "entries.jsonl", entries)
            print(consistency.summary(entries))
            wrong = consistency.check(stand.packs, entries, faults.removed)
            wrong += [f"a cached answer was refused: {entry}" for entry in consistency.refused(entries, faults.windows)]
            if clients and not any(entry.get("after") for entry in entries):
                wrong.append("no read was made with a position")
            report(stand, faults, callers, history, arguments, grown, wrong)
        finally:
            if arguments.keep:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                for log in Path(folder).glob("*.log"):
                    shutil.copy(log, arguments.keep)


def load(faults: Faults, callers: list[Caller], clients: list[consistency.Client], arguments: argparse.Namespace) -> None:
    """Lets the callers call while faults happen."""
    for caller in callers:
        caller.others = [other for other in callers if other is not caller]
    for caller in [*callers, *clients]:
        caller.start()
    end, planned = time.time() + arguments.seconds, arguments.faults.split(",") if arguments.faults else None
    try:
        while planned == ["none"] and time.time() < end:
            time.sleep(1)
        while time.time() < end and planned not in ([], ["none"]):
            time.sleep(faults.random.uniform(0.5, 1.5) * arguments.gap)
            faults.next(planned.pop(0) if planned else None)
        time.sleep(2)
    finally:
        for caller in [*callers, *clients]:
            caller.over.set()
        for caller in [*callers, *clients]:
            caller.join(120)


def keep(folder: Path, stand: Stand, faults: Faults, history: list[dict]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    dump(folder / "history.jsonl", history)
    outages = [(began, ended, sorted(what) if what else None) for began, ended, what in faults.outages]
    known = {"outages": outages, "continued": faults.continued, "fenced": faults.fenced, "removed": faults.removed, "windows": faults.windows}
    (folder / "faults.json").write_text(json.dumps(known))
    for name in ("writes", "jobs", *(file.name for file in stand.packs.glob("register-*"))):
        if (stand.packs / name).exists():
            shutil.copy(stand.packs / name, folder)


def report(
    stand: Stand, faults: Faults, callers: list[Caller], history: list[dict], arguments: argparse.Namespace, grown: list[str], wrong: list[str],
) -> None:
    """Checks everything, says what was found, and ends the program with 1 if anything is wrong."""
    # A server that is killed, or that others are killed beside, fills its caches again.
    wrong = wrong + (grown if arguments.faults == "none" else []) + check.facts(callers) + check.turns(callers) + check.answers(history) + check.registers(history)
    wrong += check.stale(history, faults.continued) + check.sessions(history, faults.removed) + check.writes(stand.packs, history)
    wrong += check.jobs(stand.packs, callers, faults.removed) + check.fenced(faults.fenced) + check.artifacts(callers)
    if stand.nats:
        replayed = []
        for deck in stand.decks:
            replayed.append(json.loads(deck.run("forge", "events", "--server", "--json"))["data"])
        wrong += check.events(callers, replayed)
        print(f"events in the stream: {sum(len(replay['events']) for replay in replayed)}")
    failed, counted = check.failed(history, faults.outages)
    share = 1000 * len(failed) / max(counted, 1)
    kinds = dict(Counter((entry["what"], entry["status"], entry.get("code", "")) for entry in failed))
    allowed = counted * arguments.failed_per_mille / 1000 if arguments.failed_calls is None else arguments.failed_calls
    if len(failed) > allowed:
        wrong.append(f"{len(failed)} of {counted} calls failed ({share:.2f} per mille): {kinds}")
    by_fault: Counter = Counter()
    for entry in failed:
        during = [which for which, began, ended in faults.windows if entry["began"] <= ended + 2 and entry["ended"] >= began]
        by_fault[during[0] if during else "none"] += 1
    print(f"faults: {dict(faults.done)}")
    print(f"calls: {len(history)}, {dict(Counter(entry['what'] for entry in history))}")
    print(f"answered by: {dict(Counter(entry['deck'] for entry in history))}")
    print(f"failed while a server was well: {len(failed)} of {counted} ({share:.2f} per mille): {kinds}")
    print(f"by fault: {dict(by_fault)}")
    print(f"fenced: {len(faults.fenced)}, artifacts: {sum(len(caller.artifacts) for caller in callers)}")
    used = os.times()
    print(f"processor time of the load and the relays: {used.user + used.system:.0f} s")
    for line in wrong[:30]:
        print(f"WRONG {line}")
    if len(history) < 10 or len(wrong) > 0:
        sys.exit(1)
    print("nothing acknowledged was lost, nothing of another caller was seen, nothing ran twice")


main()
