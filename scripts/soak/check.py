"""Checks what the callers of the soak were told against what the servers have at the end."""

import json
import time
from collections import Counter
from pathlib import Path

from load import BOUND, Caller

# After a stop a server hears of purges when it continues; this long later it must have.
CATCH_UP = 2.0


def facts(callers: list[Caller]) -> list[str]:
    """Every acknowledged fact is there, with its value."""
    wrong = []
    for caller in callers:
        for entry in caller.history:
            if entry["what"] == "store" and entry["status"] == 200:
                status, _, body = caller.send("POST", "/api/v1/packs/memory.recall", {"key": entry["key"]})
                if status != 200 or f"{caller.user} {entry['key']}".encode() not in body:
                    wrong.append(f"{caller.user}: the fact {entry['key']} is lost ({status} {body[:200]!r})")
    return wrong


def turns(callers: list[Caller]) -> list[str]:
    """Every acknowledged turn is there, and once."""
    wrong = []
    for caller in callers:
        acknowledged = {entry["once"] for entry in caller.history if entry["what"] == "turn" and entry["status"] in (200, 201)}
        kept: Counter = Counter()
        after = ""
        while True:
            status, _, body = caller.send("GET", f"/api/v1/conversations/{caller.user}/turns?texts=true&limit=200{after}")
            if status == 404:
                break
            page = json.loads(body)
            kept.update(turn["value"]["user_message"] for turn in page["items"])
            if not page.get("next"):
                break
            after = f"&after={page['next']}"
        wrong += [f"{caller.user}: the turn {once} is lost" for once in acknowledged - set(kept)]
        wrong += [f"{caller.user}: the turn {once} is there {count} times" for once, count in kept.items() if count > 1]
    return wrong


def answers(history: list[dict]) -> list[str]:
    """No answer was another caller's, or another call's."""
    return [f"a wrong answer: {entry}" for entry in history if entry.get("right") is False]


def stale(history: list[dict], continued: list[tuple[str, float]]) -> list[str]:
    """After the bound, no server answered from before a purge."""
    def catches_up(entry: dict) -> bool:
        times = [at for deck, at in continued if deck == entry["deck"]]
        return any(at - BOUND <= entry["ended"] and entry["began"] <= at + CATCH_UP for at in times)

    late = [entry for entry in history if entry["what"] == "after_purge" and entry["ran"] and entry["ran"] < entry["purged"] - BOUND]
    # The run may have been under way when the purge came: only one that ended before it is stale, and runs are short.
    return [f"a purged answer: {entry}" for entry in late if not catches_up(entry)]


def sessions(history: list[dict]) -> list[str]:
    """No MCP session was forgotten."""
    return [f"an MCP session is gone: {entry}" for entry in history if entry["what"] == "mcp" and entry["status"] == 404]


def writes(packs: Path, history: list[dict]) -> list[str]:
    """No key ran twice, and every acknowledged one ran."""
    file = packs / "writes"
    runs = Counter(json.loads(line)["key"] for line in file.read_text().splitlines()) if file.exists() else Counter()
    acknowledged = {entry["key"] for entry in history if entry["what"] == "write" and entry["status"] == 200}
    wrong = [f"the write {key} ran {count} times" for key, count in runs.items() if count > 1]
    return wrong + [f"the write {key} was acknowledged and did not run" for key in acknowledged if runs[key] == 0]


def jobs(packs: Path, callers: list[Caller], seconds: float = 60) -> list[str]:
    """Every acknowledged job ended, none ran twice, and those that succeeded ran."""
    file = packs / "jobs"
    wrong, end = [], time.time() + seconds
    states: dict[str, str] = {}
    for caller in callers:
        for entry in caller.history:
            if entry["what"] != "job" or not entry["id"]:
                continue
            state = "unknown"
            while state in ("unknown", "queued", "running"):
                status, _, body = caller.send("GET", f"/api/v1/jobs/{entry['id']}")
                state = json.loads(body)["state"] if status == 200 else f"lost ({status})" if status == 404 else "unknown"
                if time.time() > end:
                    break
                time.sleep(0.02)
            states[entry["key"]] = state
            if state not in ("succeeded", "failed", "cancelled"):
                wrong.append(f"the job {entry['id']} of {entry['key']} is {state}")
    runs = Counter(json.loads(line)["key"] for line in file.read_text().splitlines()) if file.exists() else Counter()
    wrong += [f"the job {key} ran {count} times" for key, count in runs.items() if count > 1]
    return wrong + [f"the job {key} succeeded and did not run" for key, state in states.items() if state == "succeeded" and not runs[key]]


def failures(history: list[dict], outages: list[tuple[float, float]]) -> tuple[int, int]:
    """Returns how many calls failed while PostgreSQL was there, and how many there were."""
    def during(entry: dict) -> bool:
        return any(entry["began"] <= end and entry["ended"] >= begin for begin, end in outages)

    # A turn that loses every race to others is refused and repeated, by contract.
    counted = [entry for entry in history if not during(entry)]
    failed = [entry for entry in counted if entry["status"] not in (200, 201, 202)]
    return len(failed), len(counted)
