"""Plants one fault of each kind in a history, and checks that the checker finds exactly that. Exit 1 if it does not."""

import json
import sys
import tempfile
from pathlib import Path

import check


class Told:
    """A caller whose servers answer what the test says."""

    def __init__(self, history: list[dict], fact: bytes, turns: list[str]):
        self.user, self.history, self.fact, self.turns = "u", history, fact, turns

    def send(self, method: str, path: str, body: object = None) -> tuple[int, dict, bytes]:
        if method == "POST":
            return 200, {}, self.fact
        if "/jobs/" in path:
            return 200, {}, json.dumps({"state": self.turns[0]}).encode()
        items = [{"value": {"user_message": turn}} for turn in self.turns]
        return 200, {}, json.dumps({"items": items, "next": None}).encode()


def entry(what: str, **more: object) -> dict:
    return {"user": "u", "what": what, "status": 200, "deck": "deck-1", "began": 10.0, "ended": 10.1, **more}


def main() -> None:
    store, turn = entry("store", key="k"), entry("turn", once="t", status=201)
    purged = entry("after_purge", ran=5.0, purged=8.0)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "writes").write_text('{"key": "a"}\n{"key": "a"}\n')
        (Path(folder) / "jobs").write_text('{"key": "a"}\n{"key": "a"}\n')
        job, none = entry("job", key="j", id="1"), Path(folder) / "none"
        found = {
            "a job twice": check.jobs(Path(folder), []),
            "a job that never ended": check.jobs(none, [Told([job], b"", ["running"])], 0),
            "a job that did not run": check.jobs(none, [Told([job], b"", ["succeeded"])], 0),
            "a lost fact": check.facts([Told([store], b"{}", [])]),
            "a lost turn": check.turns([Told([turn], b"", [])]),
            "a turn twice": check.turns([Told([turn], b"", ["t", "t"])]),
            "a wrong answer": check.answers([entry("echo", right=False)]),
            "a purged answer": check.stale([purged], []),
            "a lost MCP session": check.sessions([entry("mcp", status=404)]),
            "a write twice": check.writes(Path(folder), []),
            "a write that did not run": check.writes(Path(folder) / "none", [entry("write", key="b")]),
        }
        right = {
            "a failed job": check.jobs(none, [Told([job], b"", ["failed"])], 0),
            "a fact": check.facts([Told([store], b"u k", [])]),
            "a turn": check.turns([Told([turn], b"", ["t", "other"])]),
            "an answer": check.answers([entry("echo", right=True), entry("store")]),
            "a new answer after a purge": check.stale([{**purged, "ran": 9.0}], []),
            "an old answer of a server that catches up": check.stale([purged], [("deck-1", 9.5)]),
            "an MCP session": check.sessions([entry("mcp")]),
            "a write": check.writes(Path(folder) / "none", [entry("write", key="b", status=503)]),
        }
    missed = [name for name, wrong in found.items() if len(wrong) != 1] + [name for name, wrong in right.items() if wrong]
    outage = check.failures([entry("echo", status=0), entry("echo", status=0, began=20.0, ended=21.0), entry("echo")], [(19, 22)])
    if missed or outage != (1, 2):
        sys.exit(f"the checker is wrong about {missed}, {outage}")


main()
