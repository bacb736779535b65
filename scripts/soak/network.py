"""Network between the servers of the soak and what they use, so that one server alone can be cut off from one service.

With namespaces (as root, with iproute2), each server has a network of its own behind a bridge, and a cut drops every packet to
the service's address, as a broken network does. Without them a relay stands in between.
"""

import os
import shutil
import subprocess

from relay import Relay

SERVICES = ("database", "events", "bucket", "model")
# Where packets of a cut go: nobody has this hardware address.
NOBODY = "02:00:00:00:00:fe"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True)


def namespaces_work() -> bool:
    """Says whether this process may make namespaces and bridges."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"soak{os.getpid() % 100000}"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
        ip("link", "add", name, "type", "bridge")
        ip("link", "del", name)
    except subprocess.CalledProcessError:
        return False
    return True


class Relays:
    """Everything on loopback, with a relay for each way from a server to a service."""

    def __init__(self, _count: int):
        self.relays: dict[tuple[int, str], Relay] = {}

    def address(self, _service: str) -> str:
        """Returns the address that a service listens on."""
        return "127.0.0.1"

    def deck_address(self, _deck: int) -> str:
        return "127.0.0.1"

    def inside(self, _deck: int) -> list[str]:
        """Returns what a command of a server begins with."""
        return []

    def way(self, deck: int, service: str, port: int) -> str:
        """Returns the host and port at which a server reaches a service."""
        if (deck, service) not in self.relays:
            self.relays[deck, service] = Relay(port)
        return f"127.0.0.1:{self.relays[deck, service].port}"

    def cut(self, deck: int, service: str) -> None:
        self.relays[deck, service].cut()

    def mend(self, deck: int, service: str) -> None:
        self.relays[deck, service].mend()

    def close(self) -> None:
        pass


class Namespaces:
    """A bridge, and a namespace for each server. The services have an address each on the bridge."""

    def __init__(self, count: int):
        # Addresses for tests of networks (RFC 2544): they are nobody's.
        number = os.getpid()
        self.net, self.name = f"198.{18 + number // 250 % 2}.{number % 250}", f"soak{number % 100000}"
        self.spaces = [f"{self.name}-{deck}" for deck in range(count)]
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        ip("link", "add", self.name, "type", "bridge")
        # The first address is that of the balancer and the callers.
        ip("addr", "add", f"{self.net}.10/24", "dev", self.name)
        for service in SERVICES:
            ip("addr", "add", f"{self.address(service)}/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        for deck, space in enumerate(self.spaces):
            near = f"{self.name}v{deck}"
            ip("netns", "add", space)
            ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", near, "master", self.name, "up")
            for command in (["link", "set", "lo", "up"], ["link", "set", "eth0", "up"],
                            ["addr", "add", f"{self.deck_address(deck)}/24", "dev", "eth0"]):
                ip("-n", space, *command)

    def address(self, service: str) -> str:
        return f"{self.net}.{1 + SERVICES.index(service)}"

    def deck_address(self, deck: int) -> str:
        return f"{self.net}.{11 + deck}"

    def inside(self, deck: int) -> list[str]:
        return ["ip", "netns", "exec", self.spaces[deck]]

    def way(self, _deck: int, service: str, port: int) -> str:
        return f"{self.address(service)}:{port}"

    def cut(self, deck: int, service: str) -> None:
        ip("-n", self.spaces[deck], "neigh", "replace", self.address(service), "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def mend(self, deck: int, service: str) -> None:
        ip("-n", self.spaces[deck], "neigh", "del", self.address(service), "dev", "eth0")

    def close(self) -> None:
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        subprocess.run(["ip", "link", "del", self.name], capture_output=True)
