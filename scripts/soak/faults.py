"""What happens to the servers of the soak, one thing at a time, in an order that a seed gives."""

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

from load import send, token
from services import wait_for
from stand import Deck, Stand

# Time after an outage in which calls may still fail: connections are made again.
SETTLE = 5.0
# A lease of the system database is over after 20 s.
PAST_LEASE = 26.0
# Calls that need the bucket.
FILES = {"solve", "download", "pry"}
# How often each happens in a round.
ROUND = {
    "kill": 3, "freeze": 1, "fence": 1, "drain": 1, "cut": 2, "silence": 1, "database": 1, "shutdown": 1, "failover": 1,
    "database_clock": 1, "pooler": 1,
    "nats": 1, "bucket": 1, "clock": 1, "upgrade": 1, "rotate": 1,
}


class Faults:
    """The faults, and what the checks have to know of them."""

    def __init__(self, stand: Stand, seed: int, old: Path | None):
        self.stand, self.random, self.programs = stand, random.Random(seed), [stand.program, old or stand.program]
        # When calls may fail, and which.
        self.outages: list[tuple[float, float, set[str] | None]] = []
        # Which server went on when, after it was frozen or cut off.
        self.continued: list[tuple[str, float]] = []
        # What became of jobs of servers that were frozen past their lease.
        self.fenced: list[dict] = []
        # When a key was removed.
        self.removed: list[float] = []
        self.windows: list[tuple[str, float, float]] = []
        self.done: Counter = Counter()
        self.round: list[str] = []

    def next(self, which: str | None = None) -> None:
        which = which or self._choice()
        began = time.time()
        getattr(self, which)()
        self.done[which] += 1
        wait_for("the servers", lambda: all(deck.is_ready() for deck in self.stand.decks), 180)
        self.windows.append((which, began, time.time()))
        print(f"{time.strftime('%H:%M:%S', time.localtime(began))} {which}, {time.time() - began:.0f} s", flush=True)

    def _choice(self) -> str:
        if not self.round:
            missing = ({"nats", "silence"} if not self.stand.nats else set()) | ({"bucket"} if not self.stand.bucket else set())
            self.round = [which for which, count in ROUND.items() if which not in missing for _ in range(count)]
            self.random.shuffle(self.round)
        return self.round.pop()

    def _deck(self) -> Deck:
        return self.random.choice(self.stand.decks)

    def kill(self) -> None:
        """A server dies at once, and is started again."""
        deck = self._deck()
        deck.signal(signal.SIGKILL)
        deck.wait(30)
        time.sleep(self.random.uniform(0, 3))
        deck.start()

    def freeze(self) -> None:
        """A server is stopped for a while, and then continues as if nothing had been."""
        deck = self._deck()
        deck.signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(5, 15))
        deck.signal(signal.SIGCONT)
        self.continued.append((deck.name, time.time()))

    def fence(self) -> None:
        """A server is stopped with a job for longer than its lease, and continues: what it then writes of the job is refused."""
        deck, bearer = self._deck(), token("user-fence")

        def state(of: Deck) -> str:
            status, _, body = send(of.address, of.port, bearer, "GET", f"/api/v1/jobs/{job}")
            return json.loads(body)["state"] if status == 200 else f"status {status}"

        status, _, body = send(deck.address, deck.port, bearer, "POST", "/api/v1/packs/soak.job/jobs", {"key": f"fence-{time.time()}"})
        deck.signal(signal.SIGSTOP)
        job = json.loads(body)["id"] if status == 202 else None
        time.sleep(PAST_LEASE)
        other = next(one for one in self.stand.decks if one is not deck)
        before = state(other) if job else None
        deck.signal(signal.SIGCONT)
        self.continued.append((deck.name, time.time()))
        time.sleep(4)
        if job:
            self.fenced.append({"deck": deck.name, "job": job, "before": before, "after": [state(one) for one in self.stand.decks]})

    def _stop(self, deck: Deck) -> None:
        """Stops a server in good order: it must end with 0."""
        deck.signal(signal.SIGTERM)
        code = deck.wait(120)
        if code != 0:
            raise SystemExit(f"{deck.name} ended with {code} after SIGTERM")

    def _restart(self, deck: Deck) -> None:
        self._stop(deck)
        deck.start()
        wait_for(deck.name, deck.is_ready, 180)
        # The balancer sees it before the next one goes.
        time.sleep(3)

    def drain(self) -> None:
        """A server restarts in good order."""
        self._restart(self._deck())

    def cut(self) -> None:
        """A server alone does not reach PostgreSQL for a while. The others go on."""
        self._cut("database")
        time.sleep(SETTLE)

    def silence(self) -> None:
        """A server alone does not reach NATS for a while. No call may notice."""
        self._cut("events")

    def _cut(self, service: str) -> None:
        deck = self._deck()
        self.stand.network.cut(deck.number, service)
        time.sleep(self.random.uniform(5, 25))
        self.stand.network.mend(deck.number, service)
        self.continued.append((deck.name, time.time()))

    def clock(self) -> None:
        """A server restarts with a clock that is an hour ahead, runs for a while, and restarts with the right one."""
        deck = self._deck()
        for ahead in ("+1h", None):
            deck.ahead = ahead
            self._restart(deck)
            time.sleep(self.random.uniform(3, 10))

    def database(self) -> None:
        """PostgreSQL dies and is started again."""
        self._outage(self.stand.postgres, None)

    def shutdown(self) -> None:
        """PostgreSQL is stopped in good order and started again."""
        self._outage(self.stand.postgres, None, "fast")

    def failover(self) -> None:
        """PostgreSQL dies, and a standby takes its place. The pooler is told."""
        began = time.time()
        self.stand.postgres.fail_over()
        self.stand.pooler.stop()
        self.stand.pooler.start()
        self.outages.append((began, time.time() + SETTLE, None))
        time.sleep(SETTLE)

    def database_clock(self) -> None:
        """PostgreSQL restarts with a clock that is an hour ahead, runs for a while, and restarts with the right one."""
        for ahead in ("+1h", None):
            self.stand.postgres.ahead = ahead
            self._outage(self.stand.postgres, None, "fast")

    def pooler(self) -> None:
        """PgBouncer dies and is started again."""
        self._outage(self.stand.pooler, None)

    def nats(self) -> None:
        """NATS dies and is started again. No call may notice, and no event may be lost."""
        assert self.stand.nats
        self.stand.nats.stop()
        time.sleep(self.random.uniform(1, 10))
        self.stand.nats.start()

    def bucket(self) -> None:
        """The store of artifacts dies and is started again."""
        self._outage(self.stand.bucket, FILES)

    def _outage(self, service, calls: set[str] | None, *how: str) -> None:
        began = time.time()
        service.stop(*how)
        time.sleep(self.random.uniform(0, 5))
        service.start()
        self.outages.append((began, time.time() + SETTLE, calls))
        time.sleep(SETTLE)

    def upgrade(self) -> None:
        """The servers get the other version, one after the other."""
        self.programs.reverse()
        for deck in self.stand.decks:
            deck.program = self.programs[0]
            self._restart(deck)

    def rotate(self) -> None:
        """The memory key is replaced, in the steps of docs/operating.md."""
        old = self.stand.keys[0]["HELMDECK_MEMORY_KEY"]
        new = self.random.randbytes(32).hex()
        self._keys({"HELMDECK_MEMORY_KEY": old, "HELMDECK_MEMORY_KEY_PREVIOUS": new})
        self._keys({"HELMDECK_MEMORY_KEY": new, "HELMDECK_MEMORY_KEY_PREVIOUS": old})
        said = json.loads(self.stand.decks[0].run("memory", "rotate", "--json"))
        print(f"rotated: {said}", flush=True)
        self.removed.append(time.time())
        self._keys({"HELMDECK_MEMORY_KEY": new})

    def _keys(self, keys: dict[str, str]) -> None:
        for deck in self.stand.decks:
            self.stand.keys[deck.number] = keys
            self._restart(deck)
