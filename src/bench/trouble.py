"""An upstream in trouble, and 20 callers of this program, of Varnish and of FastMCP's response cache, at the same time.

Each of the three has an answer that was fresh for a second, which it may serve for an hour in trouble, and an upstream of its own,
which counts requests. Run it by trouble.sh.
"""

import asyncio
import http.client
import http.server
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

import httpx2
import mcp.types
from fastmcp.server.middleware import MiddlewareContext
from fastmcp.server.middleware.caching import CallToolSettings, ResponseCachingMiddleware
from fastmcp.tools.base import ToolResult
from key_value.aio.stores.memory import MemoryStore

CALLERS = 20
# Seconds between two calls of a caller.
PAUSE = 0.1
# Trouble, its seconds, and what this program may do: requests, and the 99th percentile of its callers' seconds.
SCENES = [
    ("limited", "429, Retry-After: 7", 30, 5, 1.1),
    ("failing", "500", 60, 12, 1.1),
    ("hanging", "no answer", 30, 5, 1.1),
    ("slow", "an answer after 3 s", 15, None, 1.1),
]


class Upstream:
    """A server whose trouble is set from outside, and that counts requests."""

    def __init__(self):
        self.trouble, self.requests = None, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests += 1
                trouble = outer.trouble
                if trouble == "hanging":
                    while outer.trouble == "hanging":
                        time.sleep(0.05)
                    return
                if trouble == "slow":
                    time.sleep(3)
                body = b'{"n":1}'
                status = {"limited": 429, "failing": 500}.get(trouble, 200)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if status == 200:
                    self.send_header("Cache-Control", "max-age=1")
                if status == 429:
                    self.send_header("Retry-After", "7")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class OverHttp:
    """Callers that send requests to a server."""

    def __init__(self, port, method, path):
        self.port, self.method, self.path = port, method, path

    def call(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            body = "{}" if self.method == "POST" else None
            connection.request(self.method, self.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def run(self, seconds) -> list[tuple[float, bool]]:
        results, end = [], time.monotonic() + seconds

        def caller():
            while time.monotonic() < end:
                started = time.monotonic()
                answered = self.call()
                results.append((time.monotonic() - started, answered))
                time.sleep(PAUSE)

        callers = [threading.Thread(target=caller) for _ in range(CALLERS)]
        for one in callers:
            one.start()
        for one in callers:
            one.join()
        return results


def ours(program, folder, upstream) -> tuple[OverHttp, subprocess.Popen]:
    port, home = free_port(), f"{folder}/home"
    os.makedirs(f"{home}/packs")
    with open(f"{home}/packs/trouble.toml", "w") as file:
        file.write(
            f'name = "trouble.items"\nversion = "v1"\ndescription = "Items of the upstream"\nread_only = true\n'
            f'[handler]\ntimeout = "10s"\n[handler.http]\nurl = "http://127.0.0.1:{upstream.port}/items"\n'
            f'[memory]\ncache = true\nttl = "1s"\nstale_if_error = "1h"\n'
        )
    with open(f"{home}/helmdeck.toml", "w") as file:
        file.write(
            f'packs_dir = "{home}/packs"\ndata_dir = "{home}"\n[egress]\nallow = ["127.0.0.1/32"]\n'
            f"[server]\nrate_per_second = 0\n"
        )
    environment = {"PATH": os.environ["PATH"], "HOME": home, "HELMDECK_MEMORY_KEY": "0" * 63 + "1", "HELMDECK_LOG": "error"}
    arguments = [program, "--config", f"{home}/helmdeck.toml", "serve", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL)
    return OverHttp(port, "POST", "/api/v1/packs/trouble.items"), process


VCL = """
vcl 4.1;
import saintmode;
import directors;
backend origin {{ .host = "127.0.0.1"; .port = "{port}"; .first_byte_timeout = 10s; }}
sub vcl_init {{
    new saint = saintmode.saintmode(origin, 1);
    new choice = directors.fallback();
    choice.add_backend(saint.backend());
}}
sub vcl_backend_fetch {{ set bereq.backend = choice.backend(); }}
sub vcl_backend_response {{
    if (beresp.status >= 429) {{
        saintmode.blacklist(7s);
        if (bereq.is_bgfetch) {{ return (abandon); }}
    }}
    set beresp.grace = 1h;
}}
"""


def varnish(folder, upstream) -> tuple[OverHttp, subprocess.Popen]:
    port = free_port()
    with open(f"{folder}/vcl", "w") as file:
        file.write(VCL.format(port=upstream.port))
    # Without the jail, which could not read the folder.
    arguments = ["varnishd", "-j", "none", "-F", "-n", f"{folder}/varnish", "-a", f"127.0.0.1:{port}"]
    log = open(f"{folder}/varnish.log", "w")
    process = subprocess.Popen([*arguments, "-f", f"{folder}/vcl", "-s", "malloc,64m"], stdout=log, stderr=log)
    return OverHttp(port, "GET", "/items"), process


class FastMcp:
    """Callers of FastMCP's middleware, in this process."""

    def __init__(self, upstream):
        self.upstream = upstream
        settings = CallToolSettings(ttl=1)
        self.middleware = ResponseCachingMiddleware(cache_storage=MemoryStore(), call_tool_settings=settings)

    async def calls(self, seconds) -> list[tuple[float, bool]]:
        results = []
        async with httpx2.AsyncClient(timeout=10) as client:
            end = time.monotonic() + seconds

            async def tool(_context):
                answer = await client.get(f"http://127.0.0.1:{self.upstream.port}/items")
                answer.raise_for_status()
                return ToolResult(content=answer.text)

            async def caller():
                while time.monotonic() < end:
                    started, answered = time.monotonic(), True
                    message = mcp.types.CallToolRequestParams(name="items", arguments={})
                    try:
                        await self.middleware.on_call_tool(MiddlewareContext(message=message, method="tools/call"), tool)
                    except httpx2.HTTPError:
                        answered = False
                    results.append((time.monotonic() - started, answered))
                    await asyncio.sleep(PAUSE)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return results

    def call(self) -> bool:
        return all(answered for _, answered in asyncio.run(self.calls(0.01)))

    def run(self, seconds) -> list[tuple[float, bool]]:
        return asyncio.run(self.calls(seconds))


def main() -> int:
    program, folder = sys.argv[1:]
    upstreams = [Upstream() for _ in range(3)]
    (deck, deck_process), (cache, cache_process) = ours(program, folder, upstreams[0]), varnish(folder, upstreams[1])
    racers = [("helmdeck", deck), ("Varnish", cache), ("FastMCP", FastMcp(upstreams[2]))]
    missed = []
    print("| upstream | for | cache | requests | calls | not answered | p50 ms | p99 ms |\n|---|---|---|---|---|---|---|---|")
    try:
        for trouble, what, seconds, most, longest in SCENES:
            for (name, racer), upstream in zip(racers, upstreams, strict=True):
                # Well again: the wait of the scene before may last for a while.
                upstream.trouble = None
                until = time.monotonic() + 90
                before = upstream.requests
                while not (racer.call() and upstream.requests > before):
                    if time.monotonic() > until:
                        raise SystemExit(f"{name} does not ask a well upstream: {folder}")
                    time.sleep(0.2)
            time.sleep(1.5)
            results = {}

            def run(name, racer, upstream):
                before = upstream.requests
                upstream.trouble = trouble
                done = racer.run(seconds)
                results[name] = (upstream.requests - before, done)
                upstream.trouble = None

            runs = [threading.Thread(target=run, args=(*racer, upstream)) for racer, upstream in zip(racers, upstreams)]
            for one in runs:
                one.start()
            for one in runs:
                one.join()
            for name, (requests, done) in results.items():
                times = sorted(taken for taken, _ in done)
                failed = sum(not answered for _, answered in done)
                p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
                p50 = statistics.median(times)
                print(f"| {what} | {seconds} s | {name} | {requests} | {len(done)} | {failed} | {p50 * 1e3:.0f} | {p99 * 1e3:.0f} |", flush=True)
                if name == "helmdeck" and (failed or p99 > longest or (most is not None and requests > most)):
                    missed.append(what)
    finally:
        deck_process.terminate()
        cache_process.terminate()
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return bool(missed)


sys.exit(main())
