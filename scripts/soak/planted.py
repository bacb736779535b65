"""Plants one fault of each kind in a history, and checks that the checker finds exactly that. Exit 1 if it does not."""

import json
import sys
import tempfile
from pathlib import Path

import check
import consistency


class Told:
    """A caller whose servers answer what the test says."""

    def __init__(self, history: list[dict], fact: bytes = b"", turns: list[str] | None = None, result: str = "j", file: bytes | None = None):
        self.user, self.history, self.fact, self.turns, self.result, self.file = "u", history, fact, turns or [], result, file
        self.artifacts = [("p/r/a", "mark")] if file is not None else []

    def send(self, method: str, path: str, body: object = None) -> tuple[int, dict, bytes]:
        if method == "POST":
            return 200, {}, self.fact
        if "/artifacts/" in path:
            return 200 if self.file else 404, {}, self.file or b""
        if path.endswith("/result"):
            return 200, {}, json.dumps({"output": {"input": {"key": self.result}}}).encode()
        if "/jobs/" in path:
            return 200, {}, json.dumps({"state": self.turns[0]}).encode()
        items = [{"value": {"user_message": turn}} for turn in self.turns]
        return 200, {}, json.dumps({"items": items, "next": None}).encode()


def entry(what: str, **more: object) -> dict:
    return {"user": "u", "what": what, "status": 200, "deck": "deck-1", "began": 10.0, "ended": 10.1, **more}


def did(op: str, at: float = 10.0, version: int | None = None, **more: object) -> dict:
    """An operation of the second check."""
    return {
        "op": op, "user": "u", "status": 200, "began": at, "ended": at + 0.1, "key": "r", "once": "a", "position": None, "pending": False,
        "said": {"version": version}, **more,
    }


def of_consistency(folder: Path) -> list[str]:
    """Returns what the second check is wrong about."""
    (folder / "register-r").write_text('{"once": "a"}\n{"once": "b"}\n')
    (folder / "register-twice").write_text('{"once": "a"}\n{"once": "a"}\n')
    one, two = did("set", 10, 1, position="p1"), did("set", 11, 2, once="b", position="p2")
    turn, page = did("turn", status=201), lambda *texts: did("turns", said={"items": [{"value": {"user_message": text}} for text in texts]})
    job = did("submit", status=202, said={"id": "1"})
    found = {
        "a write that ran twice": [did("set", 10, 1, key="twice")],
        "a write that did not run": [did("set", 10, 3, once="c")],
        "a read that is older than its position": [one, two, did("read", 11.3, 1, after="p2")],
        "a read that is older than the bound allows": [one, two, did("read", 13, 1)],
        "a pending purge that never came": [one, {**two, "pending": True, "position": None}, did("last", 13, 1)],
        "a repeat with another answer": [one, did("repeat", 13, 2)],
        "a repeat that has not ended": [one, did("repeat", 13, status=409)],
        "a lost turn": [turn, page()],
        "a turn twice": [turn, page("a", "b", "b")],
        "turns out of order": [turn, {**turn, "once": "b"}, {**turn, "once": "c"}, page("b", "a", "c")],
        "two jobs of one name": [job, {**job, "said": {"id": "2"}}],
        "a job that ran twice": [{**job, "once": "j"}],
    }
    (folder / "jobs").write_text('{"key": "j"}\n{"key": "j"}\n')
    right = [
        one, two, did("read", 11.3, 1), did("read", 11.3, 2, after="p2"), did("read", 13, 2), did("last", 13, 2), did("repeat", 13, 1),
        turn, {**turn, "once": "b"}, page("a", "b"), job, job,
    ]
    missed = [name for name, entries in found.items() if len(consistency.check(folder, entries, [])) != 1]
    failed = did("read", 12, status=503)
    counts = [len(consistency.refused([failed], [("database", *when)])) for when in ((11, 13), (13, 14))]
    return missed + (["a right history"] if consistency.check(folder, right, []) else []) + ([] if counts == [1, 0] else ["a refused read"])


def main() -> None:
    store, turn = entry("store", key="k"), entry("turn", once="t", status=201)
    purged, session = entry("after_purge", ran=5.0, purged=8.0), entry("mcp", status=404, opened=1.0)
    first, second, lost = entry("put", value=1), entry("put", value=2), entry("put", value=2, status=503)
    learned, replay = entry("learn", mark="m"), {"events": [{"data": {"context": "m"}}], "gaps": []}
    ended = entry("look", id="1", state="failed")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "writes").write_text('{"key": "a"}\n{"key": "a"}\n')
        (Path(folder) / "jobs").write_text('{"key": "a"}\n{"key": "a"}\n')
        (Path(folder) / "once").mkdir()
        (Path(folder) / "once/jobs").write_text('\n{"key": "j"}\n')
        job, none, once = entry("job", key="j", id="1"), Path(folder) / "none", Path(folder) / "once"
        found = {
            "a job twice": check.jobs(Path(folder), [], []),
            "a job that never ended": check.jobs(none, [Told([job], turns=["running"])], [], 0),
            "a job that did not run": check.jobs(none, [Told([job], turns=["succeeded"])], [], 0),
            "a job with another's result": check.jobs(once, [Told([job], turns=["succeeded"], result="other")], [], 0),
            "a job that left its end": check.jobs(once, [Told([ended, job], turns=["succeeded"])], [], 0),
            "a job that was seen to leave its end": check.jobs(none, [Told([ended, {**ended, "state": "succeeded"}])], [], 0),
            "a frozen server that wrote": check.fenced([{"before": "failed", "after": ["failed", "succeeded"]}]),
            "a job of a frozen server that nobody ended": check.fenced([{"before": "running", "after": ["failed"]}]),
            "a lost fact": check.facts([Told([store], b"{}")]),
            "a register that went back": check.registers([first, second, entry("get", value=1)]),
            "a register that is empty": check.registers([first, entry("get", value=None)]),
            "a lost turn": check.turns([Told([turn])]),
            "a turn twice": check.turns([Told([turn], turns=["t", "t"])]),
            "a wrong answer": check.answers([entry("echo", right=False)]),
            "another's job": check.answers([entry("pry", right=False)]),
            "a purged answer": check.stale([purged], []),
            "a lost MCP session": check.sessions([session], []),
            "a session that is newer than the new key": check.sessions([{**session, "opened": 6.0}], [5.0]),
            "a write twice": check.writes(Path(folder), []),
            "a write that did not run": check.writes(none, [entry("write", key="b")]),
            "a lost artifact": check.artifacts([Told([], file=b"")]),
            "another's artifact": check.artifacts([Told([], file=b"other")]),
            "a lost event": check.events([Told([learned])], [{"events": [], "gaps": []}]),
            "a gap between events": check.events([Told([learned])], [{**replay, "gaps": [3]}]),
        }
        right = {
            "a failed job": check.jobs(none, [Told([job, ended], turns=["failed"])], [], 0),
            "a job that ran": check.jobs(once, [Told([job], turns=["succeeded"])], [], 0),
            "a result that is older than the new key": check.jobs(once, [Told([job], turns=["succeeded"], result="other")], [11.0], 0),
            "a fenced server": check.fenced([{"before": "failed", "after": ["failed"]}]),
            "a fact": check.facts([Told([store], b"u k")]),
            "a register": check.registers([first, second, entry("get", value=2)]),
            "a write without an answer, done or not": check.registers([first, lost, entry("get", value=1), entry("get", value=2)]),
            "a turn": check.turns([Told([turn], turns=["t", "other"])]),
            "an answer": check.answers([entry("echo", right=True), entry("store")]),
            "a new answer after a purge": check.stale([{**purged, "ran": 9.0}], []),
            "an old answer of a server that catches up": check.stale([purged], [("deck-1", 9.5)]),
            "an MCP session": check.sessions([entry("mcp", opened=1.0)], []),
            "a session that is older than the new key": check.sessions([session], [5.0]),
            "a write": check.writes(none, [entry("write", key="b", status=503)]),
            "an artifact": check.artifacts([Told([], file=b"a mark")]),
            "an event": check.events([Told([learned])], [replay]),
        }
    with tempfile.TemporaryDirectory() as folder:
        missed = of_consistency(Path(folder))
    missed += [name for name, wrong in found.items() if len(wrong) != 1] + [name for name, wrong in right.items() if wrong]
    late = entry("echo", status=0, began=20.0, ended=21.0)
    failures = {
        "an outage of everything": ([entry("echo", status=0), late, entry("echo")], [(19, 22, None)], (1, 2)),
        "an outage of the bucket": ([late, {**late, "what": "solve"}], [(19, 22, {"solve"})], (1, 1)),
        "a failure behind status 200": ([entry("mcp", status=599), session], [], (1, 2)),
    }
    for name, (history, outages, expected) in failures.items():
        failed, counted = check.failed(history, outages)
        missed += [] if (len(failed), counted) == expected else [name]
    if missed:
        sys.exit(f"the checker is wrong about {missed}")


main()
