"""WSGI applications on the loopback: a Git repository by dulwich, a folder by WsgiDAV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from dulwich.repo import Repo
from dulwich.server import DictBackend
from dulwich.web import make_wsgi_chain
from wsgidav.wsgidav_app import WsgiDAVApp

from tests.fakes.serving import Serving


class _Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serving(application: Callable[..., Any]) -> Iterator[str]:
    """The address of the application, without a slash at its end."""
    with Serving(make_server("127.0.0.1", 0, application, server_class=_Threaded, handler_class=_Quiet)) as server:
        yield server.address


def git_application(repository: Repo) -> Callable[..., Any]:
    """The repository at /team.git, for the user ada with the password token."""
    chain = make_wsgi_chain(DictBackend({"/team.git": repository}))

    def checked(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        if environ.get("HTTP_AUTHORIZATION") != "Basic YWRhOnRva2Vu":
            start("401 Unauthorized", [("WWW-Authenticate", "Basic")])
            return [b""]
        return chain(environ, start)

    return checked


def dav_application(folder: Path) -> Callable[..., Any]:
    """The folder at /, for the user ada with the password token."""
    application: Callable[..., Any] = WsgiDAVApp(
        {
            "provider_mapping": {"/": str(folder)},
            "simple_dc": {"user_mapping": {"*": {"ada": {"password": "token"}}}},
            "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
            "verbose": 0,
            "logging": {"enable": False},
        }
    )
    return application
