"""Keys of model endpoints at rest: Fernet (AES-128-CBC with HMAC-SHA256) under a key derived from the server's own.

The key is HKDF-SHA256 of SECRET_KEY (RFC 5869). Those of SECRET_KEY_FALLBACKS still decrypt, so that the server's key
can be changed without typing every model's key again.
"""

from __future__ import annotations

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

PURPOSE = b"ragd model settings"
UNREADABLE = (
    "its key cannot be decrypted: the server's key (RAGD_SECRET_KEY, or the file secret_key) is not the one that it was"
    " saved with; enter the model's key again, or name the earlier server key in RAGD_SECRET_KEY_FALLBACKS"
)


class UnreadableSecretError(Exception):
    """A secret was encrypted under a key that this server does not have."""


def encrypt(secret: str) -> str:
    """Text that only a server with the same SECRET_KEY reads; "" for ""."""
    return _fernet().encrypt(secret.encode()).decode() if secret else ""


def decrypt(stored: str) -> str:
    """What `encrypt` was given; "" for "". Raises UnreadableSecretError."""
    try:
        return _fernet().decrypt(stored.encode()).decode() if stored else ""
    except InvalidToken:
        raise UnreadableSecretError(UNREADABLE) from None


def renew(stored: str) -> str:
    """The same secret under the present SECRET_KEY. Raises UnreadableSecretError."""
    try:
        return _fernet().rotate(stored.encode()).decode() if stored else ""
    except InvalidToken:
        raise UnreadableSecretError(UNREADABLE) from None


def _fernet() -> MultiFernet:
    return _of_keys((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=4)
def _of_keys(keys: tuple[str, ...]) -> MultiFernet:
    """The first encrypts, every one decrypts."""
    return MultiFernet([Fernet(base64.urlsafe_b64encode(_derive(key))) for key in keys])


def _derive(key: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=PURPOSE).derive(key.encode())
