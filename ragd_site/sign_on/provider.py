"""The provider of single sign-on, found by allauth under this module's name.

ID tokens, checked whole: signature, issuer, audience, times, nonce (OpenID Connect Core 3.1.3.7).
"""

from __future__ import annotations

import secrets
from typing import Any

import jwt
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.providers.oauth2.client import OAuth2Client, OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest
from django.urls import reverse
from django.utils.crypto import salted_hmac
from django.utils.http import urlencode

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
    return salted_hmac("ragd_site.sign_on.provider", state, algorithm="sha256").hexdigest()


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


class NonceClient(OAuth2Client):  # type: ignore[misc]
    """Sends a nonce beside the state."""

    def get_redirect_url(self, authorization_url: str, scope: Any, extra_params: dict[str, str]) -> str:
        return str(super().get_redirect_url(authorization_url, scope, extra_params | {"nonce": nonce_of(self.state)}))


class CheckingAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """allauth's flow of codes, with the checks that it leaves out: signature, nonce, issuer, one subject."""

    client_class = NonceClient

    @property
    def openid_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().openid_config
        expected = self.get_provider().app.settings["server_url"]
        if str(config.get("issuer", "")).rstrip("/") != expected.rstrip("/"):
            raise OAuth2Error("the provider's configuration names another issuer than RAGD_OIDC_ISSUER")
        return config

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        """Raises OAuth2Error: allauth then shows that the log-in failed."""
        try:
            claims = read_id_token(
                kwargs["response"].get("id_token") or "",
                self.read_keys(),
                issuer=self.openid_config["issuer"],
                client_id=app.client_id,
                nonce=nonce_of(request.GET["state"]),
            )
        except TokenError as error:
            raise OAuth2Error(str(error)) from error
        data = {"id_token": claims, "userinfo": claims}
        if "userinfo_endpoint" in self.openid_config:
            userinfo = self._fetch_user_info(token.token)
            if userinfo.get("sub") != claims["sub"]:
                raise OAuth2Error("the user information is of another subject than the ID token")
            data["userinfo"] = claims | userinfo
        return self.get_provider().sociallogin_from_response(request, data)

    def read_keys(self) -> dict[str, Any]:
        with get_adapter().get_requests_session() as session:
            response = session.get(self.openid_config["jwks_uri"])
            response.raise_for_status()
        keys: dict[str, Any] = response.json()
        return keys

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        return request.build_absolute_uri(reverse("oidc_callback"))


class SignOnProvider(OpenIDConnectProvider):  # type: ignore[misc]
    """The provider that the settings name. Its accounts are kept under the issuer's address."""

    id = "oidc"
    oauth2_adapter_class = CheckingAdapter

    def get_login_url(self, request: HttpRequest, **kwargs: Any) -> str:
        return reverse("oidc_login") + (f"?{urlencode(kwargs)}" if kwargs else "")

    def get_callback_url(self) -> str:
        return reverse("oidc_callback")

    def extract_email_addresses(self, data: Any) -> list[Any]:
        """None: allauth would keep addresses of its own. The account has the verified one."""
        return []

    def extract_common_fields(self, data: Any) -> dict[str, Any]:
        fields: dict[str, Any] = super().extract_common_fields(data)
        return fields | {"email": verified_email(data["userinfo"])}


def verified_email(claims: dict[str, Any]) -> str:
    """The e-mail address that the provider has verified; "" where it has not."""
    return str(claims.get("email", "")) if claims.get("email_verified") is True else ""


provider_classes = [SignOnProvider]
