"""The suite's own embedder: the same vectors, bit for bit, and the same cosines on every platform.

SimHash over words and character trigrams. Every feature adds the 256 bits of its SHA-256 as +1 or -1 to 256 whole
numbers, and an entry of the vector is the sign of its sum over 16. Nothing but whole numbers is computed, so no
compiler, processor or thread changes a vector. Each has exactly length 1 (256 entries of 1/16 squared), each entry is
a float32 without rounding, and the products of two vectors are multiples of 1/256 whose sums are exact in float32 in
whatever order a database adds them. So a cosine is exact too, and ties are real ties everywhere.
Source: Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ragd.types import Vector

DIMS = 256
ENTRY = 1 / 16
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+")
# only ASCII is folded: what else has a lower case depends on the Unicode version of the interpreter
_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class SimHashEmbedder:
    """256 dimensions, no window. Texts with common words and letters come out near each other; [] for []."""

    model = "ragd-conformance-simhash"
    dims = DIMS
    window: int | None = None
    system = "ragd.conformance"
    server_address: str | None = None
    server_port: int | None = None

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> Vector:
        """Entries of 1/16 and -1/16; a sum of 0 counts as positive, so a text without features has a vector too."""
        return list(_vector(text))

    def count_tokens(self, text: str) -> int:
        """White-space separated words."""
        return len(text.split())


@lru_cache(maxsize=2048)
def _vector(text: str) -> tuple[float, ...]:
    """Entry 8 * b + n belongs to bit n (the lowest is 0) of byte b of the digests."""
    features = list(_features(text))
    ones = sum(_spread(hashlib.sha256(feature.encode("utf-8", "replace")).digest()) for feature in features)
    counted = struct.unpack(f"<{DIMS}I", ones.to_bytes(4 * DIMS, "little"))
    return tuple(ENTRY if 2 * count >= len(features) else -ENTRY for count in counted)


def _spread(digest: bytes) -> int:
    """The bits of a digest as the lowest bits of 256 counters of 32 bits, so that one addition counts all of them."""
    return int.from_bytes(b"".join(map(_COUNTERS.__getitem__, digest)), "little")


_COUNTERS = [b"".join((byte >> place & 1).to_bytes(4, "little") for place in range(8)) for byte in range(256)]


def _features(text: str) -> Iterator[str]:
    """Each word, and the trigrams of the word between two spaces; a repeated one counts again."""
    for word in _WORD.findall(text.translate(_FOLD)):
        yield word
        framed = f" {word} "
        yield from (framed[index : index + 3] for index in range(len(framed) - 2))
