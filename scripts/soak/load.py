"""The load of the soak: callers that read, write and purge through the balancer, and keep what they were told."""

import base64
import hashlib
import hmac
import http.client
import json
import random
import re
import threading
import time
from urllib.parse import quote

from stand import SECRET, Stand

# How long a purge may take to reach all servers (docs/memory.md).
BOUND = 1.0
# Longer than a frozen server is frozen: its calls are slow, not lost.
PATIENCE = 60.0
# Revisions of MCP with sessions, and the one without.
REVISIONS = ["2025-06-18", "2025-11-25"]
NEWEST = "2026-07-28"
OK = (200, 201, 202)
# Seconds that a call of a pack waits at most for a run of the model.
MODEL = 50
CLIENT = {"name": "soak", "version": "1"}


def token(user: str, more: str = "") -> str:
    """Makes a token of a caller with the usual scopes and more, good for a day."""
    def part(value: dict | bytes) -> str:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    now = int(time.time())
    claims = {"sub": user, "tenant": "soak", "scope": f"packs:run memory:read memory:write{more}", "aud": "soak", "iat": now, "exp": now + 86400}
    message = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    return f"{message}.{part(hmac.new(SECRET.encode(), message.encode(), hashlib.sha256).digest())}"


def send(
    address: str, port: int, bearer: str, method: str, path: str, body: object = None, headers: dict | None = None,
) -> tuple[int, dict, bytes]:
    """Sends one request on a connection of its own. Status 0: no whole answer came."""
    connection = http.client.HTTPConnection(address, port, timeout=PATIENCE)
    try:
        every = {"Host": "localhost", "Authorization": f"Bearer {bearer}", "Content-Type": "application/json", "Connection": "close"}
        connection.request(method, path, None if body is None else json.dumps(body), {**every, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, {}, b""
    finally:
        connection.close()


class Caller(threading.Thread):
    """One caller. It does one thing after the other until it is told to stop."""

    def __init__(self, stand: Stand, number: int, seed: int, shared_system: bool = True, pause: float = 0.02):
        super().__init__(daemon=True)
        self.stand, self.user, self.random = stand, f"user-{number}", random.Random(f"{seed}-{number}")
        # Half of the callers have tokens whose record is in the database.
        self.token = stand.decks[0].api_token(self.user) if number % 2 else token(self.user)
        self.shared_system, self.pause = shared_system, pause
        # Whoever purges by tag is an administrator, who may also read what is another's.
        self.administrator = token(self.user, " admin")
        self.others: list[Caller] = []
        self.history: list[dict] = []
        self.over = threading.Event()
        self.count = 0
        # MCP sessions by revision: id, and when they began.
        self.sessions: dict[str, tuple[str, float]] = {}
        self.stored: list[str] = []
        self.jobs: list[str] = []
        self.artifacts: list[tuple[str, str]] = []

    def send(self, method: str, path: str, body: object = None, headers: dict | None = None) -> tuple[int, dict, bytes]:
        return send("127.0.0.1", self.stand.port, self.token, method, path, body, headers)

    def note(self, what: str, status: int, headers: dict, began: float, body: bytes = b"", **more: object) -> None:
        if status not in OK:
            code = re.search(rb'"code":"([a-z_]+)"', body)
            more["code"] = code[1].decode() if code else ""
        self.history.append({
            "user": self.user, "what": what, "status": status, "deck": headers.get("helmdeck-server"),
            "began": began, "ended": time.time(), **more,
        })

    def actions(self) -> dict:
        """Returns what the caller does, with how often."""
        often = {
            self.echo: 24, self.recall: 10, self.mcp: 8, self.mcp_newest: 8, self.turns: 5, self.pry: 4, self.look: 4,
            self.get: 6, self.put: 3, self.store: 3, self.turn: 4, self.write: 3, self.job: 2, self.purge: 2,
        }
        if self.stand.nats and not self.stand.steady:
            often[self.learn] = 0.7
        if self.stand.bucket:
            often |= {self.solve: 0.15, self.download: 5}
        return often

    def run(self) -> None:
        often = self.actions()
        while not self.over.is_set():
            self.count += 1
            self.random.choices(list(often), list(often.values()))[0]()
            time.sleep(self.random.uniform(0, 2 * self.pause))

    def echo(self) -> None:
        began, key = time.time(), f"{self.user}-{self.random.randrange(50)}"
        status, headers, body = self.send("POST", "/api/v1/packs/soak.echo", {"key": key})
        right = status != 200 or json.loads(body)["output"]["input"] == {"key": key}
        self.note("echo", status, headers, began, body, right=right)

    def store(self) -> None:
        began, key = time.time(), f"fact-{self.count}"
        status, headers, body = self.send("POST", "/api/v1/packs/memory.store", {"key": key, "value": f"{self.user} {key}"})
        if status == 200:
            self.stored.append(key)
        self.note("store", status, headers, began, body, key=key)

    def recall(self) -> None:
        if not self.stored:
            return
        began, key = time.time(), self.random.choice(self.stored)
        status, headers, body = self.send("POST", "/api/v1/packs/memory.recall", {"key": key})
        right = status != 200 or f'"{self.user} {key}"'.encode() in body
        self.note("recall", status, headers, began, body, key=key, right=right)

    def put(self) -> None:
        """Writes the caller's register: a fact that every write replaces."""
        began, value = time.time(), f"{self.user} register {self.count}"
        status, headers, body = self.send("POST", "/api/v1/packs/memory.store", {"key": "register", "value": value})
        self.note("put", status, headers, began, body, value=self.count)

    def get(self) -> None:
        """Reads the register, which must have the last acknowledged value, or one that was never acknowledged."""
        began = time.time()
        status, headers, body = self.send("POST", "/api/v1/packs/memory.recall", {"key": "register"})
        value = re.search(rf'"{self.user} register (\d+)"'.encode(), body)
        right = status != 200 or b" register " not in body or bool(value)
        self.note("get", status, headers, began, body, value=int(value[1]) if value else None, right=right)

    def turn(self) -> None:
        """Adds a turn, and repeats it under the same name until it is acknowledged."""
        once = f"{self.user}-{self.count}"
        turn = {"user_message": once, "assistant_response": "yes", "once": once}
        while not self.over.is_set():
            began = time.time()
            status, headers, body = self.send("POST", f"/api/v1/conversations/{self.user}/turns", turn)
            self.note("turn", status, headers, began, body, once=once)
            if status in (200, 201):
                return
            time.sleep(0.5)

    def turns(self) -> None:
        """Reads turns, which must be the caller's."""
        began = time.time()
        status, headers, body = self.send("GET", f"/api/v1/conversations/{self.user}/turns?texts=true&limit=5")
        # Before the first turn there is no conversation.
        items = json.loads(body)["items"] if status == 200 else []
        right = all(turn["value"]["user_message"].startswith(f"{self.user}-") for turn in items)
        self.note("turns", 200 if status == 404 else status, headers, began, body, right=right)

    def purge(self) -> None:
        """Purges an answer. After the bound no server may give the old one."""
        key = f"{self.user}-{self.random.randrange(5)}"
        self.send("POST", "/api/v1/packs/soak.clock", {"key": key})
        began = time.time()
        status, headers, body = send("127.0.0.1", self.stand.port, self.administrator, "POST", "/api/v1/memory/purge", {"tag": f"key:{key}"})
        self.note("purge", status, headers, began, body)
        if status != 200 or json.loads(body).get("pending"):
            return
        purged = time.time()
        time.sleep(BOUND)
        for _ in range(3):
            began = time.time()
            status, headers, body = self.send("POST", "/api/v1/packs/soak.clock", {"key": key})
            ran = json.loads(body)["output"]["ran"] / 1e9 if status == 200 else None
            self.note("after_purge", status, headers, began, body, ran=ran, purged=purged)

    def write(self) -> None:
        """Runs a write under a key, and repeats it under the same key if no answer came."""
        key = f"{self.user}-{self.count}"
        for _ in range(4):
            began = time.time()
            headers = {"Idempotency-Key": key} if self.shared_system else {}
            status, headers, body = self.send("POST", "/api/v1/packs/soak.write", {"key": key}, headers)
            right = status != 200 or json.loads(body)["output"]["input"] == {"key": key}
            self.note("write", status, headers, began, body, key=key, right=right)
            # A conflict is final: the server of the first try died, and nobody knows what it did.
            if status in (200, 409) or not self.shared_system or self.over.is_set():
                return
            time.sleep(0.5)

    def job(self) -> None:
        """Starts a job. What became of it is looked up at the end."""
        if not self.shared_system:
            return
        began, key = time.time(), f"{self.user}-{self.count}"
        status, headers, body = self.send("POST", "/api/v1/packs/soak.job/jobs", {"key": key})
        job = json.loads(body)["id"] if status == 202 else None
        if job:
            self.jobs.append(job)
        self.note("job", status, headers, began, body, key=key, id=job)

    def look(self) -> None:
        """Reads the state of a job, which no end may leave again."""
        if not self.jobs:
            return
        began, job = time.time(), self.random.choice(self.jobs[-20:])
        status, headers, body = self.send("GET", f"/api/v1/jobs/{job}")
        self.note("look", status, headers, began, body, id=job, state=json.loads(body)["state"] if status == 200 else None)

    def pry(self) -> None:
        """Asks for a job or an artifact of another caller, which must not be found."""
        other = self.random.choice(self.others) if self.others else self
        paths = [f"/api/v1/jobs/{job}" for job in other.jobs[-5:]] + [f"/api/v1/artifacts/{quote(key)}" for key, _ in other.artifacts[-5:]]
        if other is self or not paths:
            return
        began = time.time()
        status, headers, body = self.send("GET", self.random.choice(paths))
        self.note("pry", 200 if status == 404 else status, headers, began, body, right=status not in OK)

    def learn(self) -> None:
        """Adds to the project of whichever server answers, which makes an event."""
        began, mark = time.time(), f"{self.user}-learning-{self.count}"
        learning = {"kind": "successful", "context": mark, "approach": "As the soak does."}
        status, headers, body = self.send("POST", "/api/v1/packs/forge.remember", learning)
        self.note("learn", status, headers, began, body, mark=mark)

    def solve(self) -> None:
        """Lets the model change the repository, which makes artifacts."""
        began, mark = time.time(), f"{self.user}-task-{self.count}"
        task = {"repo_url": str(self.stand.folder / "repository"), "task": f"Write {mark} to notes.", "max_steps": 2}
        status, headers, body = self.send("POST", "/api/v1/packs/swe.solve", task, {"Prefer": f"wait={MODEL}"})
        outcome = json.loads(body) if status == 200 else {}
        keys = [artifact["key"] for artifact in outcome.get("artifacts", [])]
        if status == 202:
            self.jobs.append(json.loads(body)["id"])
        right = status != 200 or mark in outcome["output"]["patch"] or not outcome["output"]["success"]
        self.artifacts += [(key, mark) for key in keys]
        self.note("solve", status, headers, began, body, mark=mark, artifacts=keys, right=right)

    def download(self) -> None:
        if not self.artifacts:
            return
        began, (key, mark) = time.time(), self.random.choice(self.artifacts)
        status, headers, body = self.send("GET", f"/api/v1/artifacts/{quote(key)}")
        self.note("download", status, headers, began, body, right=status != 200 or mark.encode() in body)

    def mcp(self) -> None:
        """Uses a session of an earlier revision, which any server must continue."""
        began, accept = time.time(), {"Accept": "application/json, text/event-stream"}
        revision = self.random.choice(REVISIONS)
        if revision not in self.sessions:
            hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT}
            request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            status, headers, body = self.send("POST", "/mcp", request, accept)
            if status == 200:
                self.sessions[revision] = headers["mcp-session-id"], began
            self.note("mcp_begin", status, headers, began, body, revision=revision)
            return
        key = f"{self.user}-{self.random.randrange(50)}"
        request = {"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": {"name": "soak__echo", "arguments": {"key": key}}}
        session, opened = self.sessions[revision]
        more = {"Mcp-Session-Id": session, "MCP-Protocol-Version": revision}
        status, headers, body = self.send("POST", "/mcp", request, {**accept, **more})
        if status == 404:
            del self.sessions[revision]
        self.note_mcp("mcp", status, headers, began, body, key, opened=opened, revision=revision)

    def mcp_newest(self) -> None:
        """Calls a tool by the revision without sessions."""
        began, key = time.time(), f"{self.user}-{self.random.randrange(50)}"
        part = "io.modelcontextprotocol"
        meta = {f"{part}/protocolVersion": NEWEST, f"{part}/clientCapabilities": {}, f"{part}/clientInfo": CLIENT}
        params = {"name": "soak__echo", "arguments": {"key": key}, "_meta": meta}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": NEWEST}
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "soak__echo"}
        request = {"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": params}
        status, headers, body = self.send("POST", "/mcp", request, headers)
        self.note_mcp("mcp_newest", status, headers, began, body, key, revision=NEWEST)

    def note_mcp(self, what: str, status: int, headers: dict, began: float, body: bytes, key: str, **more: object) -> None:
        """Keeps what a tool answered. A failure that comes as a result, with status 200, is a failure."""
        right = True
        if status == 200:
            answer = parsed(body)
            result = answer.get("result")
            if result is None or result.get("isError"):
                status = 599
            else:
                right = answer.get("id") == self.count and f'"{key}"' in json.dumps(result.get("structuredContent", result))
        self.note(what, status, headers, began, body, right=right, **more)


def parsed(body: bytes) -> dict:
    """Returns the response in a body, which may be a stream of events that ends with it."""
    text = body.decode()
    if not text.lstrip().startswith("{"):
        lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        text = next((line for line in reversed(lines) if '"id"' in line), "{}")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {}
