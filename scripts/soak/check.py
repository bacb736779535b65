"""Checks what the callers of the soak were told against what the servers have at the end."""

import json
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from load import BOUND, OK, Caller

# After a stop a server hears of purges when it continues; this long later it must have.
CATCH_UP = 2.0
# States that a job does not leave.
ENDS = ("succeeded", "failed", "cancelled")


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


def sessions(history: list[dict], removed: list[float]) -> list[str]:
    """No MCP session was forgotten, but those that are older than the removal of their key."""
    gone = [entry for entry in history if entry["what"] == "mcp" and entry["status"] == 404]
    return [f"an MCP session is gone: {entry}" for entry in gone if not any(entry["opened"] < at < entry["ended"] for at in removed)]


def registers(history: list[dict]) -> list[str]:
    """Each read of a caller's register gave the last acknowledged value, or one whose write had no answer.

    A write without an answer may take effect at any later time, so such a value is right from then on.
    """
    wrong = []
    for user in sorted({entry["user"] for entry in history if entry["what"] == "put"}):
        last, open_ended = None, set()
        for entry in (entry for entry in history if entry["user"] == user):
            if entry["what"] == "put" and entry["status"] == 200:
                last = entry["value"]
            elif entry["what"] == "put":
                open_ended.add(entry["value"])
            elif entry["what"] == "get" and entry["status"] == 200 and entry["value"] not in {last, *open_ended}:
                wrong.append(f"{user} read {entry['value']} where {last} was acknowledged: {entry}")
    return wrong


def runs_of(file: Path) -> Counter:
    """How often each key ran. A program whose server was killed before it wrote the input has left an empty line."""
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter(json.loads(line)["key"] for line in lines if line)


def writes(packs: Path, history: list[dict]) -> list[str]:
    """No key ran twice, and every acknowledged one ran."""
    runs = runs_of(packs / "writes")
    acknowledged = {entry["key"] for entry in history if entry["what"] == "write" and entry["status"] == 200}
    wrong = [f"the write {key} ran {count} times" for key, count in runs.items() if count > 1]
    return wrong + [f"the write {key} was acknowledged and did not run" for key in acknowledged if runs[key] == 0]


def jobs(packs: Path, callers: list[Caller], removed: list[float], seconds: float = 300) -> list[str]:
    """Every acknowledged job ended and stayed as it ended, none ran twice, and those that succeeded ran and have their result.

    A result is sealed with the key of its time, so those from before the removal of a key are gone.
    """
    wrong, end = [], time.time() + seconds
    states: dict[str, str] = {}
    for caller in callers:
        ended = {entry["id"]: entry["state"] for entry in caller.history if entry["what"] == "look" and entry["state"] in ENDS}
        for entry in caller.history:
            if entry["what"] == "look" and entry["state"] and ended.get(entry["id"], entry["state"]) != entry["state"] and entry["state"] in ENDS:
                wrong.append(f"the job {entry['id']} was {entry['state']} and then {ended[entry['id']]}")
            if entry["what"] != "job" or not entry["id"]:
                continue
            state = "unknown"
            while state in ("unknown", "queued", "running"):
                status, _, body = caller.send("GET", f"/api/v1/jobs/{entry['id']}")
                state = json.loads(body)["state"] if status == 200 else f"lost ({status})" if status == 404 else "unknown"
                if time.time() > end:
                    break
                time.sleep(0.005)
            states[entry["key"]] = state
            if state not in ENDS:
                wrong.append(f"the job {entry['id']} of {entry['key']} is {state}")
            elif ended.get(entry["id"], state) != state:
                wrong.append(f"the job {entry['id']} was {ended[entry['id']]} and is {state}")
            if state == "succeeded" and not any(entry["began"] < at for at in removed):
                status, _, body = caller.send("GET", f"/api/v1/jobs/{entry['id']}/result")
                if status != 200 or json.loads(body)["output"]["input"] != {"key": entry["key"]}:
                    wrong.append(f"the result of the job {entry['id']} of {entry['key']} is {status} {body[:200]!r}")
    runs = runs_of(packs / "jobs")
    wrong += [f"the job {key} ran {count} times" for key, count in runs.items() if count > 1]
    return wrong + [f"the job {key} succeeded and did not run" for key, state in states.items() if state == "succeeded" and not runs[key]]


def fenced(frozen: list[dict]) -> list[str]:
    """A job of a server that was frozen past its lease has failed, and stays so when the server continues.

    One that another server had taken before the freeze has succeeded there.
    """
    ends = ({"failed"}, {"succeeded"})
    return [f"a frozen server wrote on: {entry}" for entry in frozen if {entry["before"], *entry["after"]} not in ends]


def artifacts(callers: list[Caller]) -> list[str]:
    """Every acknowledged artifact is there, with what its task named."""
    wrong = []
    for caller in callers:
        for key, mark in caller.artifacts:
            status, _, body = caller.send("GET", f"/api/v1/artifacts/{quote(key)}")
            if status != 200 or mark.encode() not in body:
                wrong.append(f"{caller.user}: the artifact {key} of {mark} is lost ({status} {body[:200]!r})")
    return wrong


def events(callers: list[Caller], replayed: list[dict]) -> list[str]:
    """Every acknowledged learning has its event in the stream of NATS, and no event of a project is missing between others."""
    kept = {event["data"].get("context") for replay in replayed for event in replay["events"]}
    marks = [entry["mark"] for caller in callers for entry in caller.history if entry["what"] == "learn" and entry["status"] == 200]
    wrong = [f"the event of {mark} is lost" for mark in marks if mark not in kept]
    return wrong + [f"events are missing: {replay['gaps']}" for replay in replayed if replay["gaps"]]


def failed(history: list[dict], outages: list[tuple[float, float, set[str] | None]]) -> tuple[list[dict], int]:
    """Returns the calls that failed while a server was well and had what the call needs, and how many calls there were.

    An outage has a begin, an end, and the calls that it is for: None means all.
    """
    def during(entry: dict) -> bool:
        return any(entry["began"] <= end and entry["ended"] >= begin and (what is None or entry["what"] in what) for begin, end, what in outages)

    counted = [entry for entry in history if not during(entry)]
    # A session that is gone is counted as such, or was to go.
    return [entry for entry in counted if entry["status"] not in OK and (entry["what"], entry["status"]) != ("mcp", 404)], len(counted)
