"""What a site's robots.txt lets this program read."""

from __future__ import annotations

from dataclasses import dataclass

from protego import Protego

from collections_app.fetching.addresses import Address

AGENT = "ragd"
ROBOTS_MAX_BYTES = 512_000  # what lies beyond is not read, as RFC 9309 has it
KEPT_FOR_S = 24 * 3600
CRAWL_DELAY_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of one origin; "" allows everything."""

    rules: str = ""

    def allows(self, address: Address) -> bool:
        return not self.rules or bool(Protego.parse(self.rules).can_fetch(str(address), AGENT))

    def pause_s(self) -> float:
        """Seconds that the site wants between two requests, at most 30; 0 when it does not say."""
        delay = Protego.parse(self.rules).crawl_delay(AGENT) if self.rules else None
        return min(float(delay or 0), CRAWL_DELAY_MAX_S)


def robots_address(address: Address) -> Address:
    return Address(address.scheme, address.host, address.port, "/robots.txt")


def read_rules(body: bytes) -> str:
    """The text of a robots.txt: UTF-8, without what a database cannot keep. Up to 512 KB."""
    return body[:ROBOTS_MAX_BYTES].decode("utf-8", "replace").replace("\x00", "").removeprefix("\ufeff")
