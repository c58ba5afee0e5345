"""The full set-up: PostgreSQL or a Citus cluster, a broker, a web server and workers, each a program of its own."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from ragd_site import embedded
from ragd_site.runtime.programs import find_binaries, identity_of, server_account
from tests.cluster import nodes
from tests.faults.brokers import RABBITMQ, accepts, rabbitmq_variables, redis_command, stop_epmd
from tests.faults.fault_matrix.services import Host, Service, small_disk
from tests.faults.fault_matrix.setups import DISK_MB, START_S, Setup
from tests.server import ROOT, free_port, wait_for

WORKER = ["-m", "celery", "-A", "ragd_site.worker", "worker", "--pool", "prefork", "--loglevel", "WARNING"]
WEB = ["-m", "gunicorn", "-c", "python:ragd_site.web", "ragd_site.wsgi"]
PLAIN = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/local/bin:/usr/bin:/bin"}


class Full(Setup):
    """options: broker = redis (the default), rabbitmq or pgmq; database = the URL of a migrated one to be used."""

    name = "full"

    def start(self) -> None:
        self.secret = secrets.token_hex(32)
        self.hosts = [Host(1)] if self.needs.other_host else []
        for host in self.hosts:
            self.stack.callback(host.remove)
            host.make()
        self.broker_url = self._start_broker(self.options.get("broker") or "redis")
        self.database_url = self.options.get("database") or self._start_database()
        if "database" not in self.options:
            prepare = [sys.executable, "-m", "ragd_site.prepare", "needed"]
            done = subprocess.run(prepare, cwd=ROOT, env=self.variables(), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        self.web = self._web(self.code)
        self.workers = [self._worker(self.code, host) for host in (None, *self.hosts)]
        for service in (self.web, *self.workers):
            service.start()
        self.addresses = [address_of(self.web)]
        self.wait_for_web(self.addresses[0])

    def variables(self, host: Host | None = None) -> dict[str, str]:
        here = host.address if host else "127.0.0.1"
        return super().variables(here) | {
            "DATABASE_URL": self.database_url.replace("@127.0.0.1:", f"@{here}:"),
            "CELERY_BROKER_URL": self.broker_url.replace("127.0.0.1:", f"{here}:"),
            "RAGD_SECRET_KEY": self.secret,
        }

    # Its parts

    def _listening(self) -> list[str]:
        return ["127.0.0.1", *(host.address for host in self.hosts)]

    def _start_database(self) -> str:
        if self.needs.citus:
            return self._start_cluster()
        home = self.folder / "database"
        home.mkdir(mode=0o755)
        if self.needs.small_disk:
            self.stack.enter_context(small_disk(home, DISK_MB))
            self.disk = home
        made = embedded.make_cluster(home)
        embedded.write_tuning(made.data, fsync=True)
        with (made.data / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.213.0.0/16 scram-sha-256\n")
        account = server_account(made.data.parent)
        listening = ",".join(self._listening())
        command = [str(find_binaries(made.data.parent, account) / "postgres"), "-D", str(made.data)]
        self.database = self._run_beside(
            Service(
                "database",
                [*command, "-p", str(made.port), "-h", listening, "-k", ""],
                PLAIN | self.machine_of("database"),
                Path("/"),
                self.log("database"),
                identity_of(account),
                stop_signal=signal.SIGINT,
            )
        )
        wait_for(lambda: embedded.answers(made), "PostgreSQL", START_S, self.tails)
        embedded.make_database(made)
        return made.url

    def _start_cluster(self) -> str:
        nodes.build_engine()
        home = self.folder / "cluster"
        home.mkdir(mode=0o755)
        self.cluster = nodes.Cluster(home)
        self.stack.callback(self._stop_cluster)
        self.cluster.make()
        return self.cluster.url

    def _stop_cluster(self) -> None:
        for node in (*self.cluster.nodes, self.cluster.coordinator):
            with contextlib.suppress(AssertionError):  # it was not running
                node.stop()

    def _start_broker(self, kind: str) -> str:
        if kind == "pgmq":
            return ""
        port, folder = free_port(), self.folder / "broker"
        folder.mkdir(mode=0o755)
        if kind == "redis":
            command = redis_command(port, folder, self._listening(), keeps=True)
            service, url = Service("broker", command, PLAIN, folder, self.log("broker")), f"redis://127.0.0.1:{port}/0"
        else:
            variables = rabbitmq_variables(port, folder)
            service = Service("broker", [str(RABBITMQ)], variables, folder, self.log("broker"))
            url = f"amqp://guest:guest@127.0.0.1:{port}//"
            self.stack.callback(stop_epmd, variables)
        self.broker = self._run_beside(service)
        wait_for(lambda: accepts(port), kind, START_S, self.tails)
        return url

    def _run_beside(self, service: Service) -> Service:
        self.watcher.add(service).start()
        return service

    def _web(self, code: Path) -> Service:
        port = str(free_port())
        role = {"PORT": port, "RAGD_PROCESS": "web", "PYTHONPATH": str(code)} | self.machine_of("web")
        command = [sys.executable, *WEB]
        return self.watcher.add(Service("web", command, self.variables() | role, code, self.log("web")))

    def _worker(self, code: Path, host: Host | None) -> Service:
        name = host.name if host else "worker"
        role = {"RAGD_PROCESS": "worker", "PYTHONPATH": str(code)} | self.machine_of("worker")
        command, prefix = [sys.executable, *WORKER], host.prefix if host else ()
        environment = self.variables(host) | role
        return self.watcher.add(Service(name, command, environment, code, self.log(name), prefix=prefix))

    # What faults ask of it

    def pids(self, role: str) -> list[int]:
        if role == "worker":
            return [pid for worker in self.workers for pid, line in worker.family().items() if "celery" in line]
        if role == "web":
            return list(self.web.family())
        return list((self.database if role == "database" else self.broker).family())[:1]

    def restart_database(self) -> None:
        assert self.database.process is not None
        self.database.process.send_signal(signal.SIGINT)  # "fast": sessions are ended; it is started again

    def empty_broker(self) -> None:
        if self.broker_url.startswith("redis"):
            port = self.broker_url.rpartition(":")[2].partition("/")[0]
            subprocess.run(["redis-cli", "-p", port, "flushall"], check=True, capture_output=True)
        else:
            self.run("-c", "from ragd_site.celery import app; app.control.purge()")

    def deploy(self, code: Path) -> None:
        """One after the other: the new web server beside the old one, which then ends; the same for the workers."""
        web = self._web(code)
        web.start()
        self.addresses.append(address_of(web))
        self.wait_for_web(self.addresses[-1])
        workers = [self._worker(code, host) for host in (None, *self.hosts)]
        for worker in workers:
            worker.start()
        wait_for(lambda: all(len(worker.family()) > 2 for worker in workers), "new workers", START_S, self.tails)
        time.sleep(self.both_for_s)
        del self.addresses[0]
        for old in (self.web, *self.workers):
            old.stop()
            self.watcher.services.remove(old)
        self.web, self.workers, self.code = web, workers, code


def address_of(web: Service) -> str:
    return f"http://127.0.0.1:{web.environment['PORT']}"
