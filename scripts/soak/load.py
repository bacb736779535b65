"""The load of the soak: callers that read, write and purge through the balancer, and keep what they were told."""

import base64
import hashlib
import hmac
import http.client
import json
import random
import threading
import time

from stand import SECRET, Stand

# How long a purge may take to reach all servers (docs/memory.md).
BOUND = 1.0
# Longer than a frozen server is frozen: its calls are slow, not lost.
PATIENCE = 60.0


def token(user: str) -> str:
    """Makes a token of a caller, good for a day."""
    def part(value: dict | bytes) -> str:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    now = int(time.time())
    claims = {"sub": user, "tenant": "soak", "scope": "packs:run memory:read memory:write admin", "aud": "soak", "iat": now, "exp": now + 86400}
    message = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    return f"{message}.{part(hmac.new(SECRET.encode(), message.encode(), hashlib.sha256).digest())}"


class Caller(threading.Thread):
    """One caller. It does one thing after the other until it is told to stop."""

    def __init__(self, stand: Stand, number: int, seed: int, shared_system: bool):
        super().__init__(daemon=True)
        self.stand, self.user, self.random = stand, f"user-{number}", random.Random(f"{seed}-{number}")
        self.token, self.shared_system = token(self.user), shared_system
        self.history: list[dict] = []
        self.over = threading.Event()
        self.count = 0
        self.session: str | None = None

    def send(self, method: str, path: str, body: object = None, headers: dict | None = None) -> tuple[int, dict, bytes]:
        """Sends a request through the balancer. Status 0: no whole answer came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.stand.port, timeout=PATIENCE)
        try:
            every = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "Connection": "close"}
            connection.request(method, path, None if body is None else json.dumps(body), {**every, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, {}, b""
        finally:
            connection.close()

    def note(self, what: str, status: int, headers: dict, began: float, **more: object) -> None:
        self.history.append({
            "user": self.user, "what": what, "status": status, "deck": headers.get("helmdeck-server"),
            "began": began, "ended": time.time(), **more,
        })

    def run(self) -> None:
        actions = [self.echo] * 6 + [self.store] * 2 + [self.recall] * 2 + [self.turn] * 2 + [self.purge, self.write, self.job, self.mcp, self.mcp]
        while not self.over.is_set():
            self.count += 1
            self.random.choice(actions)()
            time.sleep(0.01)

    def echo(self) -> None:
        began, key = time.time(), f"{self.user}-{self.random.randrange(50)}"
        status, headers, body = self.send("POST", "/api/v1/packs/soak.echo", {"key": key})
        right = status != 200 or json.loads(body)["output"]["input"] == {"key": key}
        self.note("echo", status, headers, began, right=right)

    def store(self) -> None:
        began, key = time.time(), f"fact-{self.count}"
        status, headers, _ = self.send("POST", "/api/v1/packs/memory.store", {"key": key, "value": f"{self.user} {key}"})
        self.note("store", status, headers, began, key=key)

    def recall(self) -> None:
        stored = [entry["key"] for entry in self.history if entry["what"] == "store" and entry["status"] == 200]
        if not stored:
            return
        began, key = time.time(), self.random.choice(stored)
        status, headers, body = self.send("POST", "/api/v1/packs/memory.recall", {"key": key})
        right = status != 200 or f"{self.user} {key}".encode() in body
        self.note("recall", status, headers, began, key=key, right=right)

    def turn(self) -> None:
        """Adds a turn, and repeats it under the same name until it is acknowledged."""
        once = f"{self.user}-{self.count}"
        turn = {"user_message": once, "assistant_response": "yes", "once": once}
        while not self.over.is_set():
            began = time.time()
            status, headers, _ = self.send("POST", f"/api/v1/conversations/{self.user}/turns", turn)
            self.note("turn", status, headers, began, once=once)
            if status in (200, 201):
                return
            time.sleep(0.2)

    def purge(self) -> None:
        """Purges an answer. After the bound no server may give the old one."""
        key = f"{self.user}-{self.random.randrange(5)}"
        self.send("POST", "/api/v1/packs/soak.clock", {"key": key})
        began = time.time()
        status, headers, body = self.send("POST", "/api/v1/memory/purge", {"tag": f"key:{key}"})
        self.note("purge", status, headers, began)
        if status != 200 or json.loads(body).get("pending"):
            return
        purged = time.time()
        time.sleep(BOUND)
        for _ in range(3):
            began = time.time()
            status, headers, body = self.send("POST", "/api/v1/packs/soak.clock", {"key": key})
            ran = json.loads(body)["output"]["ran"] / 1e9 if status == 200 else None
            self.note("after_purge", status, headers, began, ran=ran, purged=purged)

    def write(self) -> None:
        """Runs a write under a key, and repeats it under the same key if no answer came."""
        key = f"{self.user}-{self.count}"
        for _ in range(4):
            began = time.time()
            headers = {"Idempotency-Key": key} if self.shared_system else {}
            status, headers, _ = self.send("POST", "/api/v1/packs/soak.write", {"key": key}, headers)
            self.note("write", status, headers, began, key=key)
            if status == 200 or not self.shared_system or self.over.is_set():
                return
            time.sleep(0.5)

    def job(self) -> None:
        """Starts a job. What became of it is looked up at the end."""
        if not self.shared_system:
            return
        began, key = time.time(), f"{self.user}-{self.count}"
        status, headers, body = self.send("POST", "/api/v1/packs/soak.job/jobs", {"key": key})
        self.note("job", status, headers, began, key=key, id=json.loads(body)["id"] if status == 202 else None)

    def mcp(self) -> None:
        """Uses a session of an earlier revision, which any server must continue."""
        began, accept = time.time(), {"Accept": "application/json, text/event-stream"}
        if self.session is None:
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
            request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            status, headers, _ = self.send("POST", "/mcp", request, accept)
            self.session = headers.get("mcp-session-id") if status == 200 else None
            self.note("mcp_begin", status, headers, began)
            return
        key = f"{self.user}-{self.random.randrange(50)}"
        request = {"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": {"name": "soak__echo", "arguments": {"key": key}}}
        more = {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-06-18"}
        status, headers, body = self.send("POST", "/mcp", request, {**accept, **more})
        self.note("mcp", status, headers, began, right=status != 200 or key.encode() in body)
