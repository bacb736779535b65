#!/usr/bin/env python3
"""A stand-in for GitHub's REST API on loopback, made of real exchanges with api.github.com that others recorded and published:

  pygithub/   PyPI PyGithub, tests/ReplayData      about 1000 files, with real ETag, Link and rate-limit headers
  github3/    PyPI github3.py, tests/cassettes     betamax cassettes
  octokit/    npm @octokit/fixtures                recorded scenarios, among them a list of five pages

usage: replay.py FOLDER [--port N] [--rate N] [--log FILE]      (FOLDER as fetch.sh leaves it; port 0 = a free one)
Prints `ready <port>` when it answers.

GitHub's behaviour on top of the recordings: If-None-Match with the recorded ETag answers 304 and costs no quota; the quota
counts down and answers 403 at 0; links are rewritten to this server; an unknown path answers GitHub's own 404.

Control, never part of GitHub:
  POST /__ctl {"status":502,"times":3,"headers":{},"body":{}}   the next requests fail so; also {"drop":true}, {"delay_ms":9}
  POST /__ctl {"rate":5}                                       requests left
  POST /__ctl {"touch":"/repos/o/r/issues"}                    from now on its ETag and its content are new
  GET /__log, GET /__keys?q=part
"""
import argparse
import ast
import base64
import glob
import gzip
import json
import os
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

API = "https://api.github.com"
# Headers that the server makes itself or that would be wrong here.
OWN_HEADERS = {
    "transfer-encoding", "content-encoding", "content-length", "connection", "status", "strict-transport-security",
    "set-cookie", "x-ratelimit-remaining", "x-ratelimit-limit", "x-ratelimit-reset", "x-ratelimit-used", "date", "server",
}
JSON = {"content-type": "application/json; charset=utf-8"}


class Recordings:
    """(method, path, query) -> [(status, headers, body)], the newest first, good answers before others."""

    def __init__(self):
        self.routes = {}

    def add(self, method, url, status, headers, body):
        parts = urlsplit(url)
        pairs = headers.items() if isinstance(headers, dict) else headers
        headers = {name.lower(): (value[0] if isinstance(value, list) else value) for name, value in pairs}
        key = (method, parts.path, frozenset(parse_qsl(parts.query, True)))
        self.routes.setdefault(key, []).append((int(status), headers, body))

    def load_pygithub(self, folder):
        """Ten lines an exchange: scheme, method, host, port, path, headers, body, status, answer's headers, answer."""
        for path in sorted(glob.glob(folder + "/*.txt")):
            with open(path, encoding="utf8", errors="replace") as file:
                lines = file.read().split("\n")
            at = 0
            while at + 9 < len(lines):
                if lines[at] not in ("https", "http"):
                    at += 1
                    continue
                method, host, url, status, headers, body = (lines[at + n] for n in (1, 2, 4, 7, 8, 9))
                at += 10
                try:
                    headers = ast.literal_eval(headers)
                except (SyntaxError, ValueError):
                    continue
                if host == "api.github.com" and status.isdigit():
                    self.add(method, url, status, headers, body.encode())

    def load_github3(self, folder):
        for path in sorted(glob.glob(folder + "/*.json")):
            with open(path, encoding="utf8") as file:
                exchanges = json.load(file).get("http_interactions", [])
            for exchange in exchanges:
                url, answer = exchange["request"]["uri"], exchange["response"]
                if not url.startswith(API):
                    continue
                body = answer["body"]
                raw = base64.b64decode(body["base64_string"]) if "base64_string" in body else body.get("string", "").encode()
                if raw[:2] == b"\x1f\x8b":
                    try:
                        raw = gzip.decompress(raw)
                    except (OSError, EOFError):
                        continue
                status = answer["status"]["code"] if isinstance(answer.get("status"), dict) else answer.get("status_code", 200)
                self.add(exchange["request"]["method"], url[len(API):], status, answer["headers"], raw)

    def load_octokit(self, folder):
        for path in sorted(glob.glob(folder + "/*/normalized-fixture.json")):
            with open(path, encoding="utf8") as file:
                exchanges = json.load(file)
            for exchange in exchanges:
                if "api.github.com" in exchange.get("scope", ""):
                    body = exchange.get("response", "")
                    body = body if isinstance(body, str) else json.dumps(body)
                    headers = exchange.get("headers") or exchange.get("responseHeaders") or {}
                    self.add(exchange["method"].upper(), exchange["path"], exchange["status"], headers, body.encode())

    def sort(self):
        def age(entry):
            date = entry[1].get("date")
            return -time.mktime(time.strptime(date, "%a, %d %b %Y %H:%M:%S GMT")) if date else 0

        for answers in self.routes.values():
            answers.sort(key=lambda entry: (entry[0] != 200, age(entry)))

    def find(self, method, path, query):
        found = self.routes.get((method, path, query))
        further = any(name == "page" and value != "1" for name, value in query)
        if found is None and method == "GET" and not further:
            # The same path with other filters: the recording that shares most of them.
            near = [
                (key, answers) for key, answers in self.routes.items()
                if key[0] == "GET" and key[1] == path and not any(n == "page" and v != "1" for n, v in key[2])
            ]
            found = max(near, key=lambda item: len(item[0][2] & query))[1] if near else None
        return found


def load(folder):
    recordings = Recordings()
    recordings.load_octokit(os.path.join(folder, "octokit"))
    recordings.load_pygithub(os.path.join(folder, "pygithub"))
    recordings.load_github3(os.path.join(folder, "github3"))
    recordings.sort()
    return recordings


class State:
    def __init__(self, rate, log):
        self.lock = threading.Lock()
        self.limit = self.rate = rate
        self.faults, self.turns, self.touched, self.entries, self.log = [], {}, {}, [], log

    def control(self, wish):
        with self.lock:
            self.rate = wish.get("rate", self.rate)
            if "touch" in wish:
                self.touched[wish["touch"]] = self.touched.get(wish["touch"], 0) + 1
            once = 1 if "status" in wish or wish.get("drop") or "delay_ms" in wish else 0
            self.faults += [wish] * int(wish.get("times", once))

    def note(self, entry):
        with self.lock:
            self.entries.append(entry)
            if self.log:
                with open(self.log, "a", encoding="utf8") as file:
                    file.write(json.dumps(entry) + "\n")


def handler(recordings, state):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def answer(self, status, headers, body=b""):
            empty = status in (204, 304)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if not empty:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            if not empty and self.command != "HEAD":
                self.wfile.write(body)

        def go(self):
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                sent = self.chunks()
            url = urlsplit(self.path)
            if url.path == "/__ctl":
                state.control(json.loads(sent or b"{}"))
                return self.answer(204, {})
            if url.path == "/__log":
                return self.answer(200, JSON, json.dumps(state.entries).encode())
            if url.path == "/__keys":
                part = dict(parse_qsl(url.query)).get("q", "")
                keys = {f"{m} {p}?{'&'.join('='.join(x) for x in sorted(q))}".rstrip("?") for m, p, q in recordings.routes if part in p}
                return self.answer(200, JSON, json.dumps(sorted(keys)).encode())
            with state.lock:
                fault = state.faults.pop(0) if state.faults else None
            state.note({
                "method": self.command, "path": self.path, "if_none_match": self.headers.get("if-none-match"),
                "with_credential": bool(self.headers.get("authorization")), "user_agent": self.headers.get("user-agent"),
                "accept": self.headers.get("accept"), "body": sent.decode("utf8", "replace")[: 1 << 20], "fault": bool(fault),
            })
            if fault and self.fail(fault):
                return None
            return self.replay(re.sub(r"^/api/v3", "", url.path), frozenset(parse_qsl(url.query, True)))

        def chunks(self):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def fail(self, fault):
            time.sleep(fault.get("delay_ms", 0) / 1000)
            if fault.get("drop"):
                self.close_connection = True
                self.connection.close()
                return True
            if fault.get("status"):
                body = json.dumps(fault.get("body", {"message": "Server Error"})).encode()
                self.answer(fault["status"], {**JSON, **fault.get("headers", {})}, body)
                return True
            return False

        def replay(self, path, query):
            base = f"http://127.0.0.1:{self.server.server_port}"
            limits = {
                "x-ratelimit-limit": str(state.limit), "x-ratelimit-resource": "core",
                "x-ratelimit-reset": str(int(time.time()) + 3600),
            }
            found = recordings.find(self.command, path, query)
            status, headers, body = self.choose(found, path) if found else (404, {}, b"")
            touches = state.touched.get(path, 0)
            if touches and "etag" in headers:
                headers = {**headers, "etag": headers["etag"].rstrip('"') + f'-{touches}"'}
                body = re.sub(rb'"title":\s*"', b'"title":"touched: ', body)
            known = [tag.strip().replace("W/", "") for tag in (self.headers.get("if-none-match") or "").split(",")]
            if self.command == "GET" and status == 200 and headers.get("etag", "").replace("W/", "") in filter(None, known):
                return self.answer(304, {"etag": headers["etag"], **limits, "x-ratelimit-remaining": str(state.rate)})
            with state.lock:
                spent = state.rate <= 0
                state.rate -= 0 if spent else 1
                limits["x-ratelimit-remaining"] = str(state.rate)
            if spent:
                text = b'{"message":"API rate limit exceeded for user ID 1.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}'
                return self.answer(403, {**JSON, **limits}, text)
            if not found:
                text = b'{"message":"Not Found","documentation_url":"https://docs.github.com/rest","status":"404"}'
                return self.answer(404, {**JSON, **limits}, text)
            kept = {name: str(value).replace(API, base) for name, value in headers.items() if name not in OWN_HEADERS}
            return self.answer(status, {**kept, **limits}, body.replace(API.encode(), base.encode()))

        def choose(self, found, path):
            """Reads answer the newest recording, writes take turns."""
            if self.command == "GET" or len(found) == 1:
                return found[0]
            with state.lock:
                turn = state.turns.get((self.command, path), 0)
                state.turns[(self.command, path)] = turn + 1
            return found[turn % len(found)]

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = go

    return Handler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--log")
    options = parser.parse_args()
    recordings = load(options.folder)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler(recordings, State(options.rate, options.log)))
    server.daemon_threads = True
    print("ready", server.server_port, flush=True)
    server.serve_forever()


main()
