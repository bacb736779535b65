#!/usr/bin/env python3
"""What a process sees of memory, for callers in Python: `helmdeck seam` does the work.

As a module it has `recall_here`, `offer_save_here`, `state_path` and `plans`; as a program it runs `helmdeck seam` with the same arguments.
The program is the one that HELMDECK_BIN names (a path, or a name on the PATH), else `helmdeck` on the PATH. Nothing is ever written.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

WHICH = ("plan", "progress", "tracker", "both")
# How long a call may take, in seconds: it takes milliseconds unless a disk hangs.
TIMEOUT = 10.0


class SeamError(Exception):
    """The state of a plan cannot be told. `code` is for programs, the text for people."""

    def __init__(self, message, code="failed"):
        super().__init__(message)
        self.code = code


class ActivePlanError(SeamError):
    """What binds the work tree to a plan is there and cannot be trusted."""


class TaskNameRequired(SeamError):
    """The project has several tasks, and none was named."""


class UnsafeNameError(SeamError, ValueError):
    """A name is not one part of a path."""


def _program():
    named = os.environ.get("HELMDECK_BIN") or "helmdeck"
    # A path that leads nowhere is told by who starts it.
    return shutil.which(named) or (named if os.sep in named else None)


def _run(arguments, text=None):
    """Runs a command; OSError or ValueError if that is not possible."""
    program = _program()
    if not program:
        raise FileNotFoundError("{} is not on the PATH".format(os.environ.get("HELMDECK_BIN") or "helmdeck"))
    stdin = {"input": text.encode("utf-8")} if text is not None else {"stdin": subprocess.DEVNULL}
    command = [program, "seam", *arguments]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=TIMEOUT, **stdin)
    except subprocess.TimeoutExpired as error:
        raise SeamError("helmdeck: no answer within {} s; see what its disk does".format(TIMEOUT), "timeout") from error


def _plain(value):
    """Returns a value with nothing in it that JSON lacks: numbers that are none become null, keys and what is unknown become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    # Half of a pair, as in names of files that are no text, cannot be written.
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _flags(context, *names):
    context = context or {}
    flags = []
    for name in names:
        value = context.get(name)
        if value is not None:
            flags.append("--{}={}".format(name, os.fspath(value) if name == "cwd" else value))
    return flags


def _is_text(name):
    """Says whether a name can be given to a program as it is."""
    if name is None:
        return True
    try:
        return b"\0" not in str(name).encode("utf-8") and not isinstance(name, bytes)
    except UnicodeEncodeError:
        return False


def _warn(done):
    text = done.stderr.decode("utf-8", "replace")
    if text:
        sys.stderr.write(text)


def recall_here(context=None, *, query=None, limit=None):
    """Returns what memory knows of where the caller works, as Markdown; "" without memory. Never raises."""
    try:
        arguments = ["recall-here", *_flags(context, "cwd", "phase")]
        if query is not None:
            arguments.append("--query={}".format(query))
        if limit is not None:
            arguments.append("--limit={}".format(int(limit)))
        done = _run(arguments)
        _warn(done)
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
    except Exception:  # noqa: BLE001 - memory that is absent or broken is no reason to stop
        return ""


def offer_save_here(context, candidate):
    """Returns the candidate with its project and place, in a list; [] without memory. Saves nothing, never raises."""
    try:
        if not candidate:
            return []
        text = json.dumps(_plain(candidate))
        done = _run(["offer-save-here", "--candidate-json=-", *_flags(context, "cwd", "phase")], text)
        _warn(done)
        return json.loads(done.stdout.decode("utf-8")) if done.returncode == 0 else []
    except Exception:  # noqa: BLE001 - as above
        return []


def _harness(context):
    """Returns the folder of the project's own state: that of the nearest folder above with `.harness` or `.git`, else of the current one."""
    start = Path(os.path.abspath(context.get("cwd") or os.getcwd()))
    roots = (folder for folder in (start, *start.parents) if (folder / ".harness").is_dir() or (folder / ".git").exists())
    return next(roots, start) / ".harness"


def state_path(context, which):
    """Returns the path of the plan, its progress or its tracker, whether it is there or not; for `both` those of plan and progress, as a pair.

    Raises ValueError for what is none of them and for an unsafe name, ActivePlanError for state that is corrupt, TaskNameRequired if
    the task must be named, and SeamError (`timeout`) if helmdeck gives no answer. Without helmdeck it is the path in `.harness/`; if
    a plan is named, or a marker there names one, FileNotFoundError: nobody can tell which plan that is.
    """
    if which not in WHICH:
        raise ValueError("which must be one of {}, not {!r}".format(", ".join(WHICH), which))
    context = dict(context or {})
    if not _is_text(context.get("plan")):
        raise UnsafeNameError("plan: {!r} is no text; name a plan as foo or PLAN-foo.md".format(context["plan"]), "unsafe-name")
    if context.get("plan") is not None and not str(context["plan"]).strip():
        # A blank name is the plan without a name; on the command line it would count as not given.
        context["plan"] = "PLAN"
    try:
        done = _run(["state-path", which, *_flags(context, "cwd", "plan")])
    except FileNotFoundError:
        harness = _harness(context)
        if context.get("plan") not in (None, "PLAN") or os.path.lexists(harness / "active-plan"):
            raise
        names = {"plan": "PLAN.md", "progress": "progress.md", "tracker": "tracker.md"}
        both = (harness / names["plan"], harness / names["progress"])
        return both if which == "both" else harness / names[which]
    if done.returncode != 0:
        raise _error(done)
    _warn(done)
    line = done.stdout[:-1] if done.stdout.endswith(b"\n") else done.stdout
    # No path that is printed has a tab in it.
    paths = tuple(Path(os.fsdecode(path)) for path in line.split(b"\t"))
    if not line or len(paths) != (2 if which == "both" else 1):
        raise SeamError("helmdeck: {!r} is no answer; see which program HELMDECK_BIN names".format(os.fsdecode(line)))
    return paths if which == "both" else paths[0]


def plans(context=None):
    """Returns the plans as a dict: `store`, `plans` (each with `name`, `path`, `status`, `last_progress`, `active`), `active`, `warnings`.

    Never raises: what is wrong stands in `warnings`, each with `code` and `message`.
    """
    none = {"store": None, "plans": [], "active": None, "warnings": []}
    try:
        done = _run(["plans", "--json", *_flags(context, "cwd")])
        if done.returncode != 0:
            raise _error(done)
        return {**none, **json.loads(done.stdout.decode("utf-8"))}
    except Exception as error:  # noqa: BLE001 - as above
        code = "no-helmdeck" if isinstance(error, FileNotFoundError) else getattr(error, "code", "failed")
        return {**none, "warnings": [{"code": code, "message": str(error)}]}


def _error(done):
    line = done.stderr.decode("utf-8", "replace").strip()
    code, message = "failed", line
    if line.startswith("error[") and "]: " in line:
        code, message = line[len("error["):].split("]: ", 1)
    elif line.startswith("{"):
        problem = json.loads(line)
        code, message = problem["code"], problem["detail"]
    kind = {
        "corrupt-state": ActivePlanError,
        "task-name-required": TaskNameRequired,
        "unsafe-name": UnsafeNameError,
    }.get(code, SeamError)
    return kind(message, code)


def main(argv=None):
    """Runs `helmdeck seam` with these arguments, those of this program if none are given; returns its exit code, 2 if it cannot be started."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    program = _program()
    try:
        if not program:
            raise FileNotFoundError("not found")
        sys.stdout.flush()
        sys.stderr.flush()
        ended = subprocess.run([program, "seam", *arguments], check=False).returncode
        # As a shell has it: 128 and the signal.
        return 128 - ended if ended < 0 else ended
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        sys.stderr.write(
            "error[no-helmdeck]: {}: {}; put helmdeck on the PATH, or name it in HELMDECK_BIN\n".format(program or os.environ.get("HELMDECK_BIN") or "helmdeck", cause)
        )
    return 2


if __name__ == "__main__":
    sys.exit(main())
