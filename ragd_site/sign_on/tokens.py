"""ID tokens, checked whole: signature, issuer, audience, times, nonce (OpenID Connect Core 3.1.3.7)."""

from __future__ import annotations

import secrets
from typing import Any

import jwt
from django.utils.crypto import salted_hmac

# only keys that the provider publishes; neither `none` nor the client's secret
ALGORITHMS = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
]  # fmt: skip
REQUIRED = ["iss", "sub", "aud", "exp", "iat"]
LEEWAY_S = 30
LONGEST_SUBJECT = 191  # allauth's column


class TokenError(Exception):
    """An ID token that is not accepted; the message says why and holds nothing of it."""


def nonce_of(state: str) -> str:
    """The nonce of one log-in: it follows from its state, which the session keeps and gives out once."""
    return salted_hmac("ragd_site.sign_on.tokens", state, algorithm="sha256").hexdigest()


def read_id_token(token: str, keys: dict[str, Any], *, issuer: str, client_id: str, nonce: str) -> dict[str, Any]:
    """The claims. Raises TokenError."""
    try:
        key = choose_key(keys, jwt.get_unverified_header(token))
        claims: dict[str, Any] = jwt.decode(
            token,
            key=key,
            algorithms=ALGORITHMS,
            audience=client_id,
            issuer=issuer,
            leeway=LEEWAY_S,
            options={"require": REQUIRED},
        )
    except (jwt.PyJWTError, TypeError, ValueError) as error:
        raise TokenError(f"the ID token is not valid: {type(error).__name__}") from error
    if not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
        raise TokenError("the nonce of the ID token is not that of this log-in")
    others = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if claims.get("azp", client_id) != client_id or (len(others) > 1 and "azp" not in claims):
        raise TokenError("the ID token was issued to another client")
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= LONGEST_SUBJECT:
        raise TokenError(f"the subject of the ID token has not 1 to {LONGEST_SUBJECT} characters")
    return claims


def choose_key(keys: dict[str, Any], header: dict[str, Any]) -> jwt.PyJWK:
    """The published key that the token names; where it names none, the only one."""
    usable = [key for key in jwt.PyJWKSet.from_dict(keys).keys if key.public_key_use in (None, "sig")]
    named = [key for key in usable if key.key_id == header["kid"]] if "kid" in header else usable
    if len(named) != 1:
        raise TokenError("the provider publishes no key that the ID token names")
    return named[0]
