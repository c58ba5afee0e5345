"""An OpenID Connect provider on loopback: django-oauth-toolkit in one file, run by an environment of its own.

`python site.py FOLDER`: people.json in FOLDER says who there is, faults.json what its tokens get wrong. The first line
that it prints is its address.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django
from django.conf import settings
from jwcrypto import jwk, jwt

FOLDER = Path(sys.argv[1])
CLIENT_ID, CLIENT_SECRET = "ragd", "a secret of the test"
REDIRECT = "http://testserver/accounts/oidc/callback/"
LOGIN = '<form method="post">{% csrf_token %}{{ form }}<button>Log in</button></form>'


def read(name: str) -> dict:
    path = FOLDER / name
    return json.loads(path.read_text()) if path.exists() else {}


settings.configure(
    SECRET_KEY="provider",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF="__main__",
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(FOLDER / "db.sqlite3")}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "oauth2_provider",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "context_processors": ["django.template.context_processors.request"],
                "loaders": [("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN})],
            },
        }
    ],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    LOGIN_URL="/login/",
    OAUTH2_PROVIDER={
        "OIDC_ENABLED": True,
        "PKCE_REQUIRED": True,
        "OIDC_RSA_PRIVATE_KEY": jwk.JWK.generate(kty="RSA", size=2048).export_to_pem(True, None).decode(),
        "SCOPES": {"openid": "OpenID", "profile": "Profile", "email": "E-mail"},
        "OAUTH2_VALIDATOR_CLASS": "__main__.Validator",
        "ALLOWED_REDIRECT_URI_SCHEMES": ["http"],
    },
)
django.setup()

from django.contrib.auth import views as auth_views  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import include, path  # noqa: E402
from oauth2_provider.models import Application  # noqa: E402
from oauth2_provider.oauth2_validators import OAuth2Validator  # noqa: E402

OTHER_KEY = jwk.JWK.generate(kty="RSA", size=2048)


class Validator(OAuth2Validator):
    """Claims of people.json; faults of faults.json in ID tokens and user information."""

    oidc_claim_scope = None

    def get_additional_claims(self, request):
        claims = dict(read("people.json")[request.user.username].items())
        return {"preferred_username": request.user.username, **claims}

    def get_userinfo_claims(self, request):
        return super().get_userinfo_claims(request) | read("faults.json").get("userinfo", {})

    def finalize_id_token(self, id_token, token, token_handler, request):
        signed = super().finalize_id_token(id_token, token, token_handler, request)
        faults = read("faults.json")
        if not faults:
            return signed
        header, payload = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in signed.split(".")[:2])
        (FOLDER / "last_nonce").write_text(str(payload.get("nonce")))
        changed = {name: value for name, value in (payload | faults.get("claims", {})).items() if value is not None}
        changed["exp"] = changed["exp"] + faults.get("later_s", 0)
        key = OTHER_KEY if faults.get("key") == "other" else request.client.jwk_key
        if faults.get("alg") == "none":
            parts = ({"alg": "none", "typ": "JWT"}, changed)
            return ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts) + "."
        if faults.get("alg") == "HS256":
            key = jwk.JWK(kty="oct", k=base64.urlsafe_b64encode(CLIENT_SECRET.encode()).decode().rstrip("="))
            header = {"alg": "HS256", "typ": "JWT", "kid": header["kid"]}
        token = jwt.JWT(header=json.dumps(header), claims=json.dumps(changed))
        token.make_signed_token(key)
        return token.serialize()


urlpatterns = [
    path("login/", auth_views.LoginView.as_view()),
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
]


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def main() -> None:
    call_command("migrate", verbosity=0)
    for name in read("people.json"):
        User.objects.create_user(name, password="provider")
    Application.objects.create(
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        client_type="confidential",
        authorization_grant_type="authorization-code",
        redirect_uris=REDIRECT,
        algorithm="RS256",
        skip_authorization=True,
    )
    server = Server(("127.0.0.1", 0), Quiet)
    server.set_app(get_wsgi_application())
    print(f"http://127.0.0.1:{server.server_port}/o", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
