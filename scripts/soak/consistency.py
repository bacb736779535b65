"""A second check of the soak, independent of `check.py`: it knows nothing but a history of operations and their real time.

Its callers have API tokens, ask a server directly or through the balancer, and change registers: `soak.set` appends a line to a
register's file, which gives the register its next version, and invalidates `soak.read`, which is cached for an hour. What
callers were told is one entry an operation; at the end each server is asked for everything once more. Then the entries and the
files alone say whether a write ran twice or was lost, a caller did not read its own write, an answer outlived an acknowledged
purge, a turn is missing, double or out of order, and a repeat got another answer than the first one.
"""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

from load import BOUND, send
from stand import Stand

REGISTERS = 6
# Writes whose repeat is asked of each server at the end.
REPEATED = 300


class Client(threading.Thread):
    """One caller with a token. It does one operation after the other, and repeats what had no answer under the same name."""

    def __init__(self, stand: Stand, number: int, seed: int, pause: float):
        super().__init__(daemon=True)
        self.stand, self.user, self.random, self.pause = stand, f"client-{number}", random.Random(f"{seed}-client-{number}"), pause
        self.token = stand.decks[0].api_token(self.user)
        self.entries: list[dict] = []
        self.over = threading.Event()
        self.count = 0
        # The position of the last write of each register.
        self.positions: dict[str, str] = {}

    def ask(self, what: str, method: str, path: str, body: object = None, headers: dict | None = None, deck: int | None = None, **more: object) -> dict:
        """Sends one request to a server, or to the balancer, and keeps what came of it."""
        deck = self.random.choice([None, None, None, 0, 1, 2]) if deck is None else deck
        at = ("127.0.0.1", self.stand.port) if deck is None else (self.stand.decks[deck].address, self.stand.decks[deck].port)
        began = time.time()
        status, told, text = send(*at, self.token, method, path, body, headers)
        said = json.loads(text) if text.startswith((b"{", b"[")) else {}
        entry = {
            "op": what, "user": self.user, "began": began, "ended": time.time(), "status": status,
            "deck": told.get("helmdeck-server") if deck is None else self.stand.decks[deck].name, "cache": told.get("cache-status"), "position": told.get("helmdeck-position"), **more,
        }
        entry["said"] = said if status >= 400 or what in ("turns", "submit") else said.get("output")
        entry["pending"] = bool(said.get("pending")) if isinstance(said, dict) else False
        self.entries.append(entry)
        return entry

    def run(self) -> None:
        while not self.over.is_set():
            self.count += 1
            self.random.choices([self.read, self.set, self.turn, self.submit], [12, 4, 2, 1])[0]()
            time.sleep(self.random.uniform(0, 2 * self.pause))

    def read(self) -> None:
        key = f"r{self.random.randrange(REGISTERS)}"
        after = self.positions.get(key) if self.random.random() < 0.6 else None
        self.ask("read", "POST", "/api/v1/packs/soak.read", {"key": key}, {"Helmdeck-After": after} if after else {}, key=key, after=after)

    def set(self) -> None:
        key, once = f"r{self.random.randrange(REGISTERS)}", f"{self.user}-{self.count}"
        for _ in range(20):
            entry = self.ask("set", "POST", "/api/v1/packs/soak.set", {"key": key, "once": once}, {"Idempotency-Key": once}, key=key, once=once)
            if entry["status"] == 200 and entry["position"]:
                self.positions[key] = entry["position"]
            if entry["status"] in (200, 409) or self.over.is_set():
                return
            time.sleep(0.5)

    def turn(self) -> None:
        once = f"{self.user}-{self.count}"
        turn = {"user_message": once, "assistant_response": "yes", "once": once}
        while self.ask("turn", "POST", f"/api/v1/conversations/{self.user}/turns", turn, once=once)["status"] not in (200, 201):
            if self.over.is_set():
                return
            time.sleep(0.5)

    def submit(self) -> None:
        """Starts a job twice under one name, which is one job."""
        once = f"{self.user}-{self.count}"
        for _ in range(2):
            self.ask("submit", "POST", "/api/v1/packs/soak.job/jobs", {"key": once}, {"Idempotency-Key": once}, once=once)

    def finish(self) -> None:
        """Asks every server for all that this caller was told."""
        acknowledged = {entry["once"]: entry["key"] for entry in self.entries if entry["op"] == "set" and entry["status"] == 200}
        for deck in range(len(self.stand.decks)):
            for number in range(REGISTERS):
                self.ask("last", "POST", "/api/v1/packs/soak.read", {"key": f"r{number}"}, deck=deck, key=f"r{number}")
            for once, key in list(acknowledged.items())[-REPEATED:]:
                self.ask("repeat", "POST", "/api/v1/packs/soak.set", {"key": key, "once": once}, {"Idempotency-Key": once}, deck=deck, once=once, key=key)
        after = ""
        while after is not None:
            page = self.ask("turns", "GET", f"/api/v1/conversations/{self.user}/turns?texts=true&limit=200{after}")
            next_page = page["said"].get("next") if page["status"] == 200 else None
            after = f"&after={next_page}" if next_page else None


def lines(packs: Path, name: str) -> list[dict]:
    """Returns the inputs of all runs, in order. A program that was killed before it wrote has left an empty line."""
    file = packs / name
    return [json.loads(line) if line else {} for line in file.read_text().splitlines()] if file.exists() else []


def check(packs: Path, entries: list[dict], removed: list[float]) -> list[str]:
    """Returns what is wrong with a history, in which keys were removed at some times."""
    return writes(packs, entries) + reads(entries) + repeats(entries, removed) + turns(entries) + jobs(packs, entries)


def done(entries: list[dict]) -> list[dict]:
    """Returns the acknowledged writes."""
    return [entry for entry in entries if (entry["op"], entry["status"]) == ("set", 200)]


def writes(packs: Path, entries: list[dict]) -> list[str]:
    """No write ran twice, and each acknowledged one is at its version."""
    runs = {key: [line.get("once") for line in lines(packs, f"register-{key}")] for key in {entry["key"] for entry in done(entries)}}
    wrong = [f"{once} ran {count} times" for ran in runs.values() for once, count in Counter(ran).items() if once and count > 1]
    for entry in done(entries):
        version = entry["said"]["version"]
        if runs[entry["key"]][version - 1:version] != [entry["once"]]:
            wrong.append(f"not at its version: {entry}")
    return wrong


def reads(entries: list[dict]) -> list[str]:
    """A read with a position has that write; one without has what was acknowledged a bound before it; the last ones have all."""
    wrong, written = [], done(entries)
    # Two writes of a server at the same time may have the same position.
    by_position = {(entry["position"], entry["key"]): entry for entry in written if entry["position"] and "key" in entry}
    for read in entries:
        if read["op"] == "last" and read["status"] != 200:
            wrong.append(f"no answer at the end: {read}")
        if read["op"] not in ("read", "last") or read["status"] != 200:
            continue
        version, known = read["said"]["version"], by_position.get((read.get("after"), read["key"]))
        if known and version < known["said"]["version"]:
            wrong.append(f"did not read its own write of version {known['said']['version']}: {read}")
        # What was pending is purged by the end.
        due = [one["said"]["version"] for one in written if one["key"] == read["key"] and one["ended"] + BOUND < read["began"]
               and (read["op"] == "last" or not one["pending"])]
        if version < max(due, default=0):
            wrong.append(f"older than version {max(due)}, acknowledged {BOUND} s before: {read}")
    return wrong


def repeats(entries: list[dict], removed: list[float]) -> list[str]:
    """Each server repeats each answer. Answers are sealed with the key of their time: those of before the removal of a key are gone."""
    first = {entry["once"]: entry["said"] for entry in done(entries)}
    gone = {entry["once"] for entry in done(entries) if any(entry["began"] < at for at in removed)}
    return [f"another answer than the first one, {first[one['once']]}: {one}" for one in entries
            if one["op"] == "repeat" and one["once"] not in gone and (one["status"], one["said"]) != (200, first[one["once"]])]


def turns(entries: list[dict]) -> list[str]:
    """Each acknowledged turn is there once, in the order in which they were acknowledged."""
    wrong = []
    for user in sorted({entry["user"] for entry in entries}):
        told = [entry["once"] for entry in entries if (entry["op"], entry["user"]) == ("turn", user) and entry["status"] in (200, 201)]
        pages = [entry for entry in entries if (entry["op"], entry["user"], entry["status"]) == ("turns", user, 200)]
        kept = [turn["value"]["user_message"] for page in pages for turn in page["said"]["items"]]
        double = [turn for turn, count in Counter(kept).items() if count > 1]
        if set(told) - set(kept) or double:
            wrong.append(f"turns of {user}: lost {set(told) - set(kept)}, double {double}")
        # A page begins with the oldest or the newest.
        elif [turn for turn in kept if turn in set(told)] not in (told, told[::-1]):
            wrong.append(f"turns of {user} are out of order")
    return wrong


def jobs(packs: Path, entries: list[dict]) -> list[str]:
    """One name is one job, which runs once at most."""
    ids: dict[str, set[str]] = {}
    for entry in entries:
        if (entry["op"], entry["status"]) == ("submit", 202):
            ids.setdefault(entry["once"], set()).add(entry["said"]["id"])
    ran = Counter(line.get("key") for line in lines(packs, "jobs"))
    wrong = [f"{once} is {len(several)} jobs" for once, several in ids.items() if len(several) > 1]
    return wrong + [f"the job {once} ran {ran[once]} times" for once in ids if ran[once] > 1]


def refused(entries: list[dict], windows: list[tuple[str, float, float]]) -> list[dict]:
    """Returns reads of the cached pack that failed while the database was away, or the pooler: they need neither."""
    away = [(began, ended) for which, began, ended in windows if which in ("database", "shutdown", "failover", "database_clock", "pooler", "cut")]
    return [entry for entry in entries if entry["op"] == "read" and entry["status"] != 200
            and any(began <= entry["began"] and entry["ended"] <= ended for began, ended in away)]


def summary(entries: list[dict]) -> str:
    """Says what a history has."""
    counts = dict(Counter((entry["op"], entry["status"]) for entry in entries))
    with_position = sum(1 for entry in entries if entry["op"] == "read" and entry["after"])
    return f"second check: {counts}, {with_position} reads with a position, {sum(entry['pending'] for entry in entries)} pending writes"
