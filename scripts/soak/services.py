"""What the servers of the soak use: PostgreSQL, PgBouncer, NATS, an S3-compatible store, and an endpoint that plays a model."""

import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# A task, with a mark that names its caller and its number. What the model writes contains the mark.
TASK = re.compile(r"Write (user-\d+-task-\d+) to notes")


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Returns ports of an address that nobody uses now."""
    held = [socket.socket() for _ in range(count)]
    for sock in held:
        sock.bind((address, 0))
    ports = [sock.getsockname()[1] for sock in held]
    for sock in held:
        sock.close()
    return ports


def wait_for(what: str, done, seconds: float = 60) -> None:
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds} s for {what}")
        time.sleep(0.1)


class Program:
    """A service that is one process. It is killed and started again, with what it has on disk."""

    process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_up(self) -> bool:
        raise NotImplementedError

    def __init__(self, folder: Path):
        self.folder = folder

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )
        wait_for(type(self).__name__, self.is_up, 180)

    def stop(self) -> None:
        """Kills it."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def clock_ahead(ahead: str | None) -> dict[str, str]:
    """Returns variables for a process whose clock is ahead, by what libfaketime reads."""
    if not ahead:
        return {}
    # The library alone: its program stays between, and takes the signals. Waits are by the monotonic clock, which no
    # administrator can set.
    library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not library:
        raise SystemExit("libfaketime is not installed (Debian: faketime)")
    return {"LD_PRELOAD": library[0], "FAKETIME": ahead, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Postgres:
    """A server of its own, in a folder that goes with it. At a failover its standby takes its place."""

    def __init__(self, folder: Path, port: int, fsync: bool):
        self.fsync = "on" if fsync else "off"
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not found:
            raise SystemExit("PostgreSQL is not installed (Debian: postgresql)")
        self.programs, self.folder, self.port, self.data, self.ahead = Path(found[-1]), folder, port, "data", None
        folder.mkdir()
        self.user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.user:
            shutil.chown(folder, "postgres")
            # The folders above it are the caller's alone.
            for above in list(folder.parents)[:2]:
                above.chmod(0o755)
        self.run("initdb", "--no-sync", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", self.data)
        self.start()

    def run(self, program: str, *arguments: str) -> str:
        """Runs a program of PostgreSQL as its user, and returns what it prints."""
        # A server must not hold the pipe that is read here.
        output = subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE
        clock = [f"{name}={value}" for name, value in clock_ahead(self.ahead).items()]
        command = [*self.user, *(["env", *clock] if clock else []), str(self.programs / program), *arguments]
        return subprocess.run(command, cwd=self.folder, check=True, stdin=subprocess.DEVNULL, stdout=output, text=True).stdout or ""

    def query(self, sql: str) -> str:
        return self.run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-Atqc", sql, "postgres").strip()

    def start(self) -> None:
        self._serve(self.data, self.port)

    def _serve(self, data: str, port: int) -> None:
        # The machine does not fail here, only processes do, so nothing has to be synced to the disk.
        options = f"-p {port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync={self.fsync} -c max_connections=200 -c dynamic_shared_memory_type=mmap"
        self.run("pg_ctl", "start", "-w", "-s", "-D", data, "-l", str(self.folder / "log"), "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """Stops it, as a crash does unless another mode of pg_ctl is given."""
        self.run("pg_ctl", "stop", "-s", "-m", mode, "-D", self.data)

    def fail_over(self) -> None:
        """Dies while a standby has all that was acknowledged. The standby takes its place, at another port."""
        former, port = self.data, free_ports(1)[0]
        data = f"data-{port}"
        self.run("pg_basebackup", "--no-sync", "-U", "postgres", "-h", "127.0.0.1", "-p", str(self.port), "-R", "-X", "stream", "-c", "fast", "-D", data)
        self._serve(data, port)
        self.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.query("SELECT pg_reload_conf()")
        wait_for("the standby", lambda: self.query("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1")
        # Some calls are answered meanwhile, so that the standby alone proves what they wrote.
        time.sleep(2)
        self.stop()
        shutil.rmtree(self.folder / former)
        self.data, self.port = data, port
        self.run("pg_ctl", "promote", "-w", "-s", "-D", self.data)


class Pooler(Program):
    """PgBouncer in transaction mode, in front of PostgreSQL."""

    def __init__(self, postgres: Postgres, address: str):
        super().__init__(postgres.folder)
        self.postgres, self.address, (self.port,) = postgres, address, free_ports(1, address)
        self.start()

    def start(self) -> None:
        """Starts it in front of the server that PostgreSQL has now."""
        file = self.folder / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.postgres.port} user=postgres\n[pgbouncer]\nlisten_addr = {self.address}\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 10\n"
            "max_client_conn = 500\nignore_startup_parameters = extra_float_digits\nserver_login_retry = 1\n"
        )
        file.chmod(0o644)
        super().start()

    def command(self) -> list[str]:
        program = os.environ.get("HELMDECK_TEST_PGBOUNCER") or shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") or "pgbouncer"
        return [*self.postgres.user, program, "-q", str(self.folder / "pgbouncer.ini")]

    def is_up(self) -> bool:
        return listens(self.address, self.port)


class Nats(Program):
    """NATS with JetStream."""

    def __init__(self, folder: Path, address: str):
        folder.mkdir()
        super().__init__(folder)
        self.address, (self.port,) = address, free_ports(1, address)
        self.start()

    def command(self) -> list[str]:
        program = os.environ.get("HELMDECK_TEST_NATS_SERVER") or shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin")
        return [program or "nats-server", "-a", self.address, "-p", str(self.port), "-js", "-sd", str(self.folder / "streams")]

    def is_up(self) -> bool:
        return listens(self.address, self.port)


class Bucket(Program):
    """SeaweedFS with its S3 gateway, and one bucket."""

    KEY, SECRET, NAME = "soak", "a secret of the soak", "soak"

    def __init__(self, folder: Path, address: str, program: str):
        folder.mkdir()
        super().__init__(folder)
        self.program, self.address, self.ports = program, address, free_ports(8, address)
        self.port = self.ports[6]
        identity = {"name": "soak", "credentials": [{"accessKey": self.KEY, "secretKey": self.SECRET}],
                    "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
        self.start()
        # A folder of the filer is a bucket.
        request = urllib.request.Request(f"http://{address}:{self.ports[4]}/buckets/{self.NAME}/", method="POST")
        urllib.request.urlopen(request, timeout=30).close()

    def command(self) -> list[str]:
        names = [f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]
        return [
            self.program, "-logtostderr=true", "server", f"-ip={self.address}", f"-ip.bind={self.address}", "-s3",
            *(f"-{name}={port}" for name, port in zip(names, self.ports)), "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-s3.iam=false", "-s3.autoCreateBucket=false", "-volume.max=0", "-master.volumeSizeLimitMB=64", f"-dir={self.folder}",
            f"-s3.config={self.folder}/identities.json", f"-s3.localSocket={self.folder}/s3.sock",
        ]

    def is_up(self) -> bool:
        # Whoever does not say who it is is refused: that is an answer.
        return b" 403 " in ask_raw(self.address, self.port, "/") and b" 200 " in ask_raw(self.address, self.ports[4], "/")


class Model:
    """An endpoint of chat completions that answers every task with the same command, which writes the task's mark to a file."""

    def __init__(self, address: str):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                # Notes of earlier tasks come before the task.
                word = (TASK.findall(said) or ["unknown"])[-1]
                command = f"echo {word} >>notes; echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {word}"
                call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
                message = {"role": "assistant", "content": "", "tool_calls": [call]}
                body = json.dumps({
                    "id": "1", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((address, 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()


def listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


def ask_raw(address: str, port: int, path: str) -> bytes:
    """Returns the first bytes of an HTTP answer; nothing if there is none."""
    try:
        with socket.create_connection((address, port), 1) as sock:
            sock.settimeout(2)
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return sock.recv(64)
    except OSError:
        return b""
