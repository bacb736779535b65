#!/usr/bin/env python3
"""A git server on loopback: smart HTTP by git's own `git http-backend` (clone, fetch, push), with Basic auth if it is given a login.

usage: git_http.py ROOT CONTROL [--user USER --password-file FILE]
ROOT holds bare repositories: ROOT/o/r.git is http://127.0.0.1:PORT/o/r.git. Prints `ready <port>` when it answers.

A file in the folder CONTROL changes what it does, for as long as the file is there:
  refuse-push    a push is answered 403
  stall-fetch    a fetch waits until the file is gone, and nothing has been sent yet
  stall-push     a push waits until the file is gone, whole but not yet carried out
  stall-pushed   a push is carried out, but its answer waits until the file is gone
While a request waits, a file `stalled` is there. Every request adds a line to CONTROL/log: {"method", "path", "status", "user"}.
"""
import argparse
import base64
import gzip
import json
import os
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

arguments = argparse.ArgumentParser()
arguments.add_argument("root")
arguments.add_argument("control")
arguments.add_argument("--user")
arguments.add_argument("--password-file")
options = arguments.parse_args()
password = open(options.password_file, encoding="utf8").read().strip() if options.password_file else None
lock = threading.Lock()


def control(name):
    return os.path.join(options.control, name)


def wait_while(name):
    """Waits while the control file is there, and says so."""
    if not os.path.exists(control(name)):
        return
    open(control("stalled"), "w").close()
    while os.path.exists(control(name)):
        time.sleep(0.02)
    if os.path.exists(control("stalled")):
        os.remove(control("stalled"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, status):
        login = self.headers.get("authorization", "")
        user = base64.b64decode(login[6:]).decode().split(":")[0] if login.startswith("Basic ") else None
        line = {"method": self.command, "path": self.path, "status": status, "user": user}
        with lock, open(control("log"), "a", encoding="utf8") as log:
            log.write(json.dumps(line) + "\n")

    def answer(self, status, headers, body=b""):
        self.note(status)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        if "chunked" in self.headers.get("transfer-encoding", ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body

    def serve(self):
        body, url = self.body(), urlsplit(self.path)
        if password is not None:
            login = base64.b64encode(f"{options.user}:{password}".encode()).decode()
            if self.headers.get("authorization") != "Basic " + login:
                return self.answer(401, [("www-authenticate", 'Basic realm="git"')])
        if "receive-pack" in self.path and os.path.exists(control("refuse-push")):
            return self.answer(403, [])
        service = self.command + " " + url.path.rsplit("/", 1)[-1]
        if service == "POST git-upload-pack":
            wait_while("stall-fetch")
        if service == "POST git-receive-pack":
            wait_while("stall-push")
        status, headers, answer = self.backend(url, body)
        if service == "POST git-receive-pack":
            wait_while("stall-pushed")
        return self.answer(status, headers, answer)

    def backend(self, url, body):
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": os.path.abspath(options.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": unquote(url.path),
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": options.user or "anonymous",
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "http.receivepack",
            "GIT_CONFIG_VALUE_1": "true",
        }
        ran = subprocess.run(["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE, check=False)
        head, _, answer = ran.stdout.partition(b"\r\n\r\n")
        status, headers = 200, []
        for line in head.decode().split("\r\n"):
            name, _, value = line.partition(": ")
            if name.lower() == "status":
                status = int(value.split()[0])
            elif name:
                headers.append((name, value))
        return status, headers, answer

    do_GET = do_POST = serve


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("ready", server.server_address[1], flush=True)
server.serve_forever()
