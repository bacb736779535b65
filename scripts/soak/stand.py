"""What the soak runs: PostgreSQL, PgBouncer, three helmdeck servers with separate data folders, and HAProxy before them."""

import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from relay import Relay

ROOT = Path(__file__).resolve().parents[2]
KEY = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
SECRET = "a shared secret of the soak, 32 bytes"

PACKS = {
    # Answers with its input: whoever gets another's answer sees it.
    "soak.echo": ("read_only = true", "#!/bin/sh\ninput=$(cat)\nprintf '{\"input\":%s}' \"$input\"\n", "tags = [\"key:{key}\"]"),
    # Answers with the time of its run, in nanoseconds: a purge makes later answers newer.
    "soak.clock": ("read_only = true", "#!/bin/sh\ncat >/dev/null\nprintf '{\"ran\":%s}' \"$(date +%s%N)\"\n", "tags = [\"key:{key}\"]"),
    # Writes down each run.
    "soak.write": ("destructive = false", "#!/bin/sh\ninput=$(cat)\nprintf '%s\\n' \"$input\" >>writes\nprintf '{\"input\":%s}' \"$input\"\n", None),
    # The same as a job of a second.
    "soak.job": ("async = true", "#!/bin/sh\ninput=$(cat)\nprintf '%s\\n' \"$input\" >>jobs\nsleep 1\nprintf '{\"input\":%s}' \"$input\"\n", None),
}


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody uses now."""
    held = [socket.socket() for _ in range(count)]
    for sock in held:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in held]
    for sock in held:
        sock.close()
    return ports


class Postgres:
    """A server of its own, in a folder that goes with it."""

    def __init__(self, folder: Path, port: int):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not found:
            raise SystemExit("PostgreSQL is not installed (Debian: postgresql)")
        self.programs, self.folder, self.port = Path(found[-1]), folder, port
        folder.mkdir()
        self.user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.user:
            shutil.chown(folder, "postgres")
            # The folders above it are the caller's alone.
            for above in list(folder.parents)[:2]:
                above.chmod(0o755)
        self.run("initdb", "--no-sync", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", "data")
        self.start()

    def run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self.user, str(self.programs / program), *arguments],
            cwd=self.folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )

    def start(self) -> None:
        # The machine does not fail here, only processes do, so nothing is synced to the disk.
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200 -c dynamic_shared_memory_type=mmap"
        self.run("pg_ctl", "start", "-w", "-s", "-D", "data", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        """Stops it as a crash does."""
        self.run("pg_ctl", "stop", "-s", "-m", "immediate", "-D", "data")



class Pooler:
    """PgBouncer in transaction mode, in front of PostgreSQL."""

    def __init__(self, postgres: Postgres, port: int):
        self.port = port
        file = postgres.folder / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n* = host=127.0.0.1 port={postgres.port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 10\n"
            "max_client_conn = 500\nignore_startup_parameters = extra_float_digits\nserver_login_retry = 1\n"
        )
        file.chmod(0o644)
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") or "pgbouncer"
        self.process = subprocess.Popen(
            [*postgres.user, program, "-q", str(file)], cwd=postgres.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Deck:
    """One helmdeck server."""

    def __init__(self, stand: "Stand", number: int, port: int):
        self.stand, self.name, self.port = stand, f"deck-{number}", port
        self.home = stand.folder / self.name
        self.home.mkdir()
        self.log = (stand.folder / f"{self.name}.log").open("ab")
        self.process: subprocess.Popen | None = None
        # Its way to PostgreSQL.
        self.relay = Relay(stand.pooler.port)
        # How far its clock is ahead, as faketime writes it.
        self.ahead: str | None = None

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home), "PATH": "/usr/bin:/bin", "HELMDECK_MEMORY_KEY": KEY, "HELMDECK_JWT_SECRET": SECRET,
            "HELMDECK_MEMORY_URL": f"postgres://postgres@127.0.0.1:{self.relay.port}/postgres?sslmode=disable", "HELMDECK_PACKS_DIR": str(self.stand.packs),
            "HELMDECK_SERVER__REPLICA": self.name,  "HELMDECK_SERVER__DRAIN_FOR": "4s",
            "HELMDECK_SERVER__DRAIN_TIMEOUT": "5s", "HELMDECK_SERVER__PROXIES": "127.0.0.1", "HELMDECK_LOG": "warn",
            "HELMDECK_AUTH__AUDIENCE": "soak", **self.stand.more,
        }

    def start(self) -> None:
        clock = ["faketime", "-m", "-f", self.ahead] if self.ahead else []
        self.process = subprocess.Popen(
            [*clock, str(self.stand.program), "serve", "--listen", f"127.0.0.1:{self.port}"],
            env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    def wait(self, seconds: float) -> int:
        assert self.process
        return self.process.wait(seconds)

    def is_ready(self) -> bool:
        return is_ready(self.port)


class Stand:
    """All of it. Use it as a context: at the end everything is stopped."""

    def __init__(self, folder: Path, program: Path, more: dict[str, str], count: int = 3):
        self.folder, self.program, self.more, self.count = folder, program, more, count
        self.packs = folder / "packs"
        self.packs.mkdir()
        for name, (kind, script, memory) in PACKS.items():
            self._install(name, kind, script, memory)
        ports = free_ports(6)
        self.port = ports[4]
        self.postgres = Postgres(folder / "postgres", ports[3])
        self.pooler = Pooler(self.postgres, ports[5])
        self.decks = [Deck(self, number + 1, port) for number, port in enumerate(ports[:count])]
        # Addresses of all three that the balancer knows; nobody listens at the rest.
        self.ports = ports[:3]
        self.balancer: subprocess.Popen | None = None

    def _install(self, name: str, kind: str, script: str, memory: str | None) -> None:
        program = self.packs / f"{name}.sh"
        program.write_text(script)
        program.chmod(0o755)
        cache = f'[memory]\ncache = true\nttl = "1h"\n{memory}\n' if memory else ""
        (self.packs / f"{name}.toml").write_text(
            f'name = "{name}"\nversion = "v1"\ndescription = "For the soak"\n{kind}\n[handler]\ncommand = ["./{name}.sh"]\n'
            f'[input]\ntype = "object"\nadditionalProperties = false\n[input.properties]\nkey = {{ type = "string" }}\n{cache}'
        )

    def __enter__(self) -> "Stand":
        try:
            return self._started()
        except BaseException:
            self.__exit__()
            raise

    def _started(self) -> "Stand":
        for deck in self.decks:
            deck.start()
        wait_for("the servers", lambda: all(deck.is_ready() for deck in self.decks), 120)
        environment = {"PATH": os.environ["PATH"], "LISTEN": f"127.0.0.1:{self.port}"}
        environment |= {f"DECK_{number + 1}": f"127.0.0.1:{port}" for number, port in enumerate(self.ports)}
        self.balancer = subprocess.Popen(
            [shutil.which("haproxy", path="/usr/sbin:/usr/bin") or "haproxy", "-db", "-f", str(ROOT / "contrib/compose/haproxy.cfg")],
            env=environment, stdin=subprocess.DEVNULL, stdout=(self.folder / "haproxy.log").open("wb"), stderr=subprocess.STDOUT,
        )
        wait_for("HAProxy", lambda: is_ready(self.port))
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self.balancer, *(deck.process for deck in self.decks)]:
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self.pooler.stop()
        self.postgres.stop()


def is_ready(port: int) -> bool:
    """Says whether a server answers, and is ready."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.settimeout(1)
            sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return sock.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def wait_for(what: str, done, seconds: float = 60) -> None:
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds} s for {what}")
        time.sleep(0.1)


def dump(path: Path, history: list[dict]) -> None:
    """Keeps the history, one JSON object a line."""
    with path.open("w") as file:
        for entry in history:
            file.write(json.dumps(entry) + "\n")
