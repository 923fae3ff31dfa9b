"""What tests may turn, beside what moto keeps: one account, one lock."""

import threading
from collections import deque

ID = "123456789012"
ADMIN_KEY = "KERFADMIN"
"""Who signs with this key is not judged: fixtures prepare the account with it."""


class Account:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.endpoint = ""
        self.on_demand: dict[tuple[str, str], float] = {}
        self.spot: dict[tuple[str, str], float] = {}
        self.reset()

    def reset(self) -> None:
        with self.lock:
            # (capacity type, instance type, zone) -> how many are left. What is not here is endless.
            self.stock: dict[tuple[str, str, str], int] = {}
            self.full_subnets: set[str] = set()
            # Failures to come: action -> [{code, message, status}], used up one by one; under "always" they stay.
            self.failures: dict[str, deque] = {}
            self.always: dict[str, dict] = {}
            self.policy: dict | None = None
            self.principal = f"arn:aws:sts::{ID}:assumed-role/KarpenterControllerRole/1700000000"
            self.reservations: list[dict] = []
            self.placement_groups: list[dict] = []
            self.shifts: list[dict] = []
            # Instance id -> {instance_since, system_since, events}
            self.impaired: dict[str, dict] = {}
            self.image_generation = 1
            self.deprecated: dict[str, str] = {}
            self.priced = True
            # Client token -> the request and what it got: EC2 answers a repeated request without launching again.
            self.fleets: dict[str, tuple[list, dict]] = {}
            # Actions that are heard and not answered, until the event of this life is over.
            self.hanging: set[str] = set()
            getattr(self, "over", threading.Event()).set()
            self.over = threading.Event()
            self.requests: deque = deque(maxlen=200_000)

    def read_prices(self, path: str) -> None:
        """Lines of the catalogue: `region <name> …`, then `<type> <zone letters> <on-demand> <spot>` in microdollars."""
        region = ""
        with open(path, encoding="utf-8") as file:
            for line in file:
                words = line.split()
                if line.startswith("region "):
                    region = words[1]
                elif region and len(words) == 4:
                    name, _, on_demand, spot = words
                    if on_demand != "-":
                        self.on_demand[region, name] = int(on_demand.rstrip("~")) / 1e6
                    if spot != "-":
                        self.spot[region, name] = int(spot) / 1e6

    def spot_price(self, region: str, name: str, zone: str) -> float | None:
        """Zones differ a little, always in the same way."""
        price = self.spot.get((region, name))
        return None if price is None else price * (1 + (sum(map(ord, zone)) % 5) / 100)

    def left(self, kind: str, name: str, zone: str) -> int | None:
        """How many instances are left; None: as many as one likes."""
        for key in ((kind, name, zone), (kind, name, "*"), (kind, "*", zone), (kind, "*", "*")):
            if key in self.stock:
                return self.stock[key]
        return None

    def take(self, kind: str, name: str, zone: str, count: int) -> None:
        for key in ((kind, name, zone), (kind, name, "*"), (kind, "*", zone), (kind, "*", "*")):
            if key in self.stock:
                self.stock[key] -= count
                return

    def failure(self, action: str) -> dict | None:
        with self.lock:
            waiting = self.failures.get(action)
            if waiting:
                return waiting.popleft()
            return self.always.get(action)


ACCOUNT = Account()
