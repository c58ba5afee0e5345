"""The settings of logging in, and of the mails that go with it."""

from __future__ import annotations

import re
from email.utils import parseaddr
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

from ragd_site.runtime.setting_types import HTTP_SCHEMES, CommaList, check_networks, check_scheme

Hours = Annotated[float, Field(gt=0)]
HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z")
LONGEST_ISSUER = 200  # allauth's column
ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
HOST = re.compile(r"[A-Za-z0-9_.:-]+")


class SignOnSettings(BaseSettings):
    """They stand in the order in which they are checked: a later one may ask for an earlier one."""

    RAGD_OIDC_CLIENT_ID: str = Field("", description="Name of ragd at the provider of single sign-on (OpenID Connect)")
    RAGD_OIDC_CLIENT_SECRET: SecretStr = Field(SecretStr(""), description="Secret of ragd at that provider")
    RAGD_OIDC_ISSUER: str = Field(
        "", description="Address of the provider of single sign-on, as its tokens name it; unset: there is none"
    )
    RAGD_OIDC_NAME: str = Field(
        "single sign-on", min_length=1, description="What the log-in page calls it: *Log in with ...*"
    )
    RAGD_OIDC_SCOPES: str = Field("openid profile email", description="What ragd asks the provider for")
    RAGD_OIDC_GROUPS_CLAIM: str = Field("groups", min_length=1, description="Claim that lists a person's groups")
    RAGD_OIDC_ADMIN_GROUP: str = Field("", description="Group whose members are administrators; unset: none")
    RAGD_OIDC_SIGNUP: bool = Field(True, description="Whether a person who is new gets an account at the first log-in")
    RAGD_OIDC_LINK_EMAIL: bool = Field(
        False, description="Whether a verified e-mail address opens the one account that has it already"
    )
    RAGD_TRUSTED_PROXIES: CommaList = Field(
        [], description="Addresses or networks of proxies whose headers are believed, comma-separated; unset: none"
    )
    RAGD_PROXY_USER_HEADER: str = Field(
        "", description="Header in which such a proxy names who is logged in (`X-Forwarded-User`); unset: none"
    )
    RAGD_PROXY_GROUPS_HEADER: str = Field(
        "", description="Header with their groups, comma-separated; unset: groups are not changed"
    )
    RAGD_PROXY_SIGNUP: bool = Field(True, description="Whether a person whom the proxy names gets an account")
    RAGD_PASSWORD_LOGIN: bool = Field(True, description="Whether people may log in with a password of ragd's own")
    RAGD_REQUIRE_MFA: Literal["", "administrators", "everyone"] = Field(
        "", description="Who must have a second factor: `administrators`, `everyone`; unset: who wants one"
    )
    RAGD_SESSION_HOURS: Hours = Field(336.0, description="Hours without a request after which a session ends")

    @field_validator("RAGD_OIDC_ISSUER")
    @classmethod
    def check_issuer(cls, url: str, info: ValidationInfo) -> str:
        check_scheme(url, HTTP_SCHEMES)
        if len(url) > LONGEST_ISSUER:
            raise ValueError(f"a URL of at most {LONGEST_ISSUER} characters")
        if url and not info.data.get("RAGD_OIDC_CLIENT_ID"):
            raise ValueError("RAGD_OIDC_CLIENT_ID beside it")
        return url

    @field_validator("RAGD_TRUSTED_PROXIES")
    @classmethod
    def check_proxies(cls, networks: list[str]) -> list[str]:
        return check_networks(networks)

    @field_validator("RAGD_PROXY_USER_HEADER", "RAGD_PROXY_GROUPS_HEADER")
    @classmethod
    def check_header(cls, name: str, info: ValidationInfo) -> str:
        if name and not HEADER_NAME.match(name):
            raise ValueError("the name of a header, such as X-Forwarded-User")
        if name and not info.data.get("RAGD_TRUSTED_PROXIES"):
            raise ValueError("RAGD_TRUSTED_PROXIES beside it, so that nobody else can send the header")
        return name

    @field_validator("RAGD_PASSWORD_LOGIN")
    @classmethod
    def check_password_login(cls, is_on: bool, info: ValidationInfo) -> bool:
        if not is_on and not (info.data.get("RAGD_OIDC_ISSUER") or info.data.get("RAGD_PROXY_USER_HEADER")):
            raise ValueError("true, unless RAGD_OIDC_ISSUER or RAGD_PROXY_USER_HEADER gives another way to log in")
        return is_on


class MailSettings(BaseSettings):
    """They stand in the order in which they are checked."""

    RAGD_MAIL_FROM: str = Field("", description="Sender of mails: `ragd@example.org` or `ragd <ragd@example.org>`")
    RAGD_MAIL_HOST: str = Field(
        "", description="SMTP server that mails are sent through: invitations, forgotten passwords; unset: none is sent"
    )
    RAGD_MAIL_PORT: Annotated[int, Field(ge=1, le=65535)] = Field(587, description="Port of the mail server")
    RAGD_MAIL_SECURITY: Literal["starttls", "tls", "off"] = Field(
        "starttls",
        description="Encryption to the mail server: `starttls`, `tls` (from the first byte, usually port 465), `off`",
    )
    RAGD_MAIL_USER: str = Field("", description="User name at the mail server; unset: no log-in")
    RAGD_MAIL_PASSWORD: SecretStr = Field(SecretStr(""), description="Password at the mail server")
    RAGD_PUBLIC_URL: str = Field(
        "", description="What links in mails begin with (`https://rag.example.org`); unset: where the request went"
    )

    @field_validator("RAGD_MAIL_FROM")
    @classmethod
    def check_sender(cls, text: str) -> str:
        if text and not ADDRESS.fullmatch(parseaddr(text)[1]):
            raise ValueError("an e-mail address, with a name before it or not")
        return text

    @field_validator("RAGD_MAIL_HOST")
    @classmethod
    def check_host(cls, host: str, info: ValidationInfo) -> str:
        if host and not HOST.fullmatch(host):
            raise ValueError("the name or address of a host, such as smtp.example.org")
        if host and "RAGD_MAIL_FROM" in info.data and not info.data["RAGD_MAIL_FROM"]:
            raise ValueError("RAGD_MAIL_FROM beside it")
        return host

    @field_validator("RAGD_PUBLIC_URL")
    @classmethod
    def check_public_url(cls, url: str) -> str:
        return check_scheme(url, HTTP_SCHEMES)
