"""What the soak runs: three helmdeck servers with separate data folders, HAProxy before them, and the services behind them."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from network import Namespaces, Relays, namespaces_work
from services import Bucket, Model, Nats, Pooler, Postgres, ask_raw, clock_ahead, free_ports, wait_for

ROOT = Path(__file__).resolve().parents[2]
KEY = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
SECRET = "a shared secret of the soak, 32 bytes"
# Sizes of caches that are full within a minute.
FULL_CACHES = {"HELMDECK_CACHE__HOT_BYTES": "1MiB", "HELMDECK_CONVERSATION__HOT_BYTES": "1MiB"}

CACHED = 'cache = true\nttl = "1h"\ntags = ["key:{key}"]'
# The key of an input, and the file of its register.
REGISTER = "input=$(cat)\nkey=${input#*\\\"key\\\"*:*\\\"}\nfile=register-${key%%\\\"*}\n"

PACKS = {
    # Answers with its input: whoever gets another's answer sees it.
    "soak.echo": ("read_only = true", "#!/bin/sh\ninput=$(cat)\nprintf '{\"input\":%s}' \"$input\"\n", CACHED),
    # Answers with the time of its run, in nanoseconds: a purge makes later answers newer.
    "soak.clock": ("read_only = true", "#!/bin/sh\ncat >/dev/null\nprintf '{\"ran\":%s}' \"$(date +%s%N)\"\n", CACHED),
    # Writes down each run.
    "soak.write": ("destructive = false", "#!/bin/sh\ninput=$(cat)\nprintf '%s\\n' \"$input\" >>writes\nprintf '{\"input\":%s}' \"$input\"\n", None),
    # Gives a register its next version, and says which.
    "soak.set": (
        "destructive = false", f"#!/bin/sh\n{REGISTER}exec 9>>\"$file\"\nflock 9\nprintf '%s\\n' \"$input\" >&9\n"
        "printf '{\"version\":%s}' \"$(wc -l <\"$file\")\"\n", 'invalidates = ["register:{key}"]'),
    "soak.read": (
        "read_only = true", f"#!/bin/sh\n{REGISTER}touch \"$file\"\nprintf '{{\"version\":%s}}' \"$(wc -l <\"$file\")\"\n",
        'cache = true\nttl = "1h"\nscope = "shared"\ntags = ["register:{key}"]'),
    # The same as a job of a second.
    "soak.job": ("async = true", "#!/bin/sh\ninput=$(cat)\nprintf '%s\\n' \"$input\" >>jobs\nsleep 1\nprintf '{\"input\":%s}' \"$input\"\n", None),
}


class Deck:
    """One helmdeck server."""

    def __init__(self, stand: "Stand", number: int):
        self.stand, self.number, self.name = stand, number, f"deck-{number + 1}"
        self.address = stand.network.deck_address(number)
        # In a network of its own every port is free.
        self.port = 7700 if stand.network.inside(number) else free_ports(1)[0]
        self.home = stand.folder / self.name
        self.home.mkdir()
        self.log = (stand.folder / f"{self.name}.log").open("ab")
        self.process: subprocess.Popen | None = None
        self.program = stand.program
        # How far its clock is ahead, as libfaketime reads it.
        self.ahead: str | None = None
        self.project = self.home / f"project-{self.name}"
        self.ways = {"database": stand.network.way(number, "database", stand.pooler.port)}
        if stand.nats:
            self.ways["events"] = stand.network.way(number, "events", stand.nats.port)
            self._make_project()
        if stand.bucket and stand.model:
            self.ways["bucket"] = stand.network.way(number, "bucket", stand.bucket.port)
            self.ways["model"] = stand.network.way(number, "model", stand.model.port)

    def environment(self) -> dict[str, str]:
        more = {}
        if "events" in self.ways:
            more["HELMDECK_FORGE__ROOT"] = str(self.project)
        if "bucket" in self.ways:
            more |= {
                "HELMDECK_ARTIFACTS__URL": f"s3://{Bucket.NAME}/deck?endpoint=http://{self.ways['bucket']}",
                "HELMDECK_S3_ACCESS_KEY_ID": Bucket.KEY, "HELMDECK_S3_SECRET_ACCESS_KEY": Bucket.SECRET,
                "HELMDECK_LLM__ENDPOINT": f"http://{self.ways['model']}", "HELMDECK_LLM__MODEL": "soak",
                "HELMDECK_REPO__PATHS": str(self.stand.folder / "repository"),
            }
        more |= clock_ahead(self.ahead)
        return {
            "HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "HELMDECK_JWT_SECRET": SECRET, **self.stand.keys[self.number],
            "HELMDECK_MEMORY_URL": f"postgres://postgres@{self.ways['database']}/postgres?sslmode=disable",
            "HELMDECK_PACKS_DIR": str(self.stand.packs), "HELMDECK_SERVER__REPLICA": self.name,
            "HELMDECK_SERVER__DRAIN_FOR": "4s", "HELMDECK_SERVER__DRAIN_TIMEOUT": "25s", "HELMDECK_SERVER__ALLOWED_HOSTS": "localhost,127.0.0.1",
            "HELMDECK_SERVER__PROXIES": f"{self.stand.network.address('database')}/24", "HELMDECK_LOG": "warn",
            "HELMDECK_JOBS__KEPT_PER_CALLER": "100000", "HELMDECK_AUTH__AUDIENCE": "soak",
            "HELMDECK_AUTH__API_TOKENS": "true", **more, **self.stand.more,
        }

    def _make_project(self) -> None:
        """Makes a project whose events go to NATS."""
        self.project.mkdir()
        environment = {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        git = ["git", "-c", "user.name=soak", "-c", "user.email=soak@localhost"]
        commands = [["git", "init", "-q"], [*git, "commit", "-q", "--allow-empty", "-m", self.name], [str(self.program), "forge", "init"]]
        for command in commands:
            subprocess.run(command, cwd=self.project, env=environment, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        settings = self.home / ".config/helmdeck/helmdeck.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(f'[forge.events]\nsoak = {{ url = "nats://{self.ways["events"]}" }}\n')
        file = self.project / ".forge/config.toml"
        text, line = file.read_text(), '[events]\nuse = "soak"\n'
        file.write_text(text.replace("[events]\n", line, 1) if "\n[events]\n" in text else text + line)
        trust = [str(self.program), "forge", "trust", "--yes"]
        subprocess.run(trust, cwd=self.project, env=environment, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def run(self, *arguments: str) -> str:
        """Runs a command of the program as at this server, and returns what it prints."""
        command = [*self.stand.network.inside(self.number), str(self.program), *arguments]
        ran = subprocess.run(command, env=self.environment(), cwd=self.project if "forge" in arguments else self.home,
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        if ran.returncode != 0:
            raise SystemExit(f"{' '.join(arguments)} at {self.name} ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def api_token(self, user: str) -> str:
        """Makes an API token of a caller with the usual scopes."""
        scope = "packs:run memory:read memory:write"
        return self.run("token", "create", "--tenant", "soak", "--user", user, "--scope", scope).strip()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self.stand.network.inside(self.number), str(self.program), "serve", "--listen", f"{self.address}:{self.port}"],
            env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    def wait(self, seconds: float) -> int:
        assert self.process
        return self.process.wait(seconds)

    def is_ready(self) -> bool:
        return is_ready(self.address, self.port)


class Stand:
    """All of it. Use it as a context: at the end everything is stopped."""

    def __init__(self, folder: Path, program: Path, more: dict[str, str], count: int = 3, small: bool = True, weed: str | None = None,
                 steady: bool = False, fsync: bool = False):
        """`steady`: nothing of the servers may grow. Their caches are full soon, and nobody adds to their projects."""
        self.folder, self.program, self.count, self.steady, self.fsync = folder, program, count, steady, fsync
        self.more = more | (FULL_CACHES if steady else {})
        self.packs = folder / "packs"
        self.packs.mkdir()
        for name, (kind, script, memory) in PACKS.items():
            self._install(name, kind, script, memory)
        # Keys of each server, which a rotation changes.
        self.keys = [{"HELMDECK_MEMORY_KEY": KEY} for _ in range(count)]
        self.nats: Nats | None = None
        self.bucket: Bucket | None = None
        self.model: Model | None = None
        self.decks: list[Deck] = []
        self.balancer: subprocess.Popen | None = None
        self.stopped: list = []
        self.network = Namespaces(count) if not small and namespaces_work() else Relays(count)
        self.stopped.append(self.network.close)
        try:
            self._services(small, weed)
        except BaseException:
            self.__exit__()
            raise

    def _services(self, small: bool, weed: str | None) -> None:
        self.port, database = free_ports(2)
        self.postgres = Postgres(self.folder / "postgres", database, self.fsync)
        self.stopped.append(self.postgres.stop)
        self.pooler = Pooler(self.postgres, self.network.address("database"))
        self.stopped.append(self.pooler.stop)
        if not small:
            self.nats = Nats(self.folder / "nats", self.network.address("events"))
            self.stopped.append(self.nats.stop)
        if weed:
            self.bucket = Bucket(self.folder / "bucket", self.network.address("bucket"), weed)
            self.stopped.append(self.bucket.stop)
            self.model = Model(self.network.address("model"))
            self.stopped.append(self.model.stop)
            self._make_repository()
        self.decks = [Deck(self, number) for number in range(self.count)]
        # Addresses of all three that the balancer knows; nobody listens at the rest.
        self.backs = [f"{deck.address}:{deck.port}" for deck in self.decks]
        self.backs += [f"127.0.0.1:{port}" for port in free_ports(3 - self.count)]

    def _make_repository(self) -> None:
        """Makes the repository that the model works on."""
        folder = self.folder / "repository"
        folder.mkdir()
        (folder / "notes").write_text("the first line\n")
        git = ["git", "-c", "user.name=soak", "-c", "user.email=soak@localhost"]
        for command in (["git", "init", "-q"], ["git", "add", "notes"], [*git, "commit", "-q", "-m", "first"]):
            subprocess.run(command, cwd=folder, env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}, check=True)

    def _install(self, name: str, kind: str, script: str, memory: str | None) -> None:
        program = self.packs / f"{name}.sh"
        program.write_text(script)
        program.chmod(0o755)
        cache = f"[memory]\n{memory}\n" if memory else ""
        (self.packs / f"{name}.toml").write_text(
            f'name = "{name}"\nversion = "v1"\ndescription = "For the soak"\n{kind}\n[handler]\ncommand = ["./{name}.sh"]\n'
            f'[input]\ntype = "object"\nadditionalProperties = false\n[input.properties]\nkey = {{ type = "string" }}\nonce = {{ type = "string" }}\n{cache}'
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
        wait_for("the servers", lambda: all(deck.is_ready() for deck in self.decks), 180)
        environment = {"PATH": os.environ["PATH"], "LISTEN": f"127.0.0.1:{self.port}"}
        environment |= {f"DECK_{number + 1}": back for number, back in enumerate(self.backs)}
        self.balancer = subprocess.Popen(
            [shutil.which("haproxy", path="/usr/sbin:/usr/bin") or "haproxy", "-db", "-f", str(ROOT / "contrib/compose/haproxy.cfg")],
            env=environment, stdin=subprocess.DEVNULL, stdout=(self.folder / "haproxy.log").open("wb"), stderr=subprocess.STDOUT,
        )
        wait_for("HAProxy", lambda: is_ready("127.0.0.1", self.port))
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self.balancer, *(deck.process for deck in self.decks)]:
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        for stop in reversed(self.stopped):
            stop()


def is_ready(address: str, port: int) -> bool:
    """Says whether a server answers, and is ready."""
    return ask_raw(address, port, "/readyz").startswith(b"HTTP/1.1 200")


def dump(path: Path, history: list[dict]) -> None:
    """Keeps the history, one JSON object a line."""
    with path.open("w") as file:
        for entry in history:
            file.write(json.dumps(entry) + "\n")
