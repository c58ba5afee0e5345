"""An S3 server (moto) on the loopback, a process of its own: buckets, pages of listings, ETags and signatures.

def test_bucket(s3_server):
    s3_server.put("docs", "a.txt", b"text")
    ... Minio(s3_server.host, access_key=s3_server.access_key, ...) ...
"""

from __future__ import annotations

import io
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import urllib3
from minio import Minio

STARTS_WITHIN_S = 60
NO_LIMIT = 1_000_000
ANY_SIGNATURE = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=x"
ALLOW_ALL = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'


class S3Server:
    """url: http://127.0.0.1:port. access_key and secret_key are good ones; without `require_keys` any are."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{self.host}"
        self.access_key, self.secret_key = "none", "none"
        self._http = urllib3.PoolManager(retries=False)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", self.host.split(":")[1]]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()

    def _wait(self) -> None:
        gives_up_at = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                self._http.request("GET", f"{self.url}/moto-api/data.json", timeout=1)
                return
            except urllib3.exceptions.HTTPError:
                if self._process.poll() is not None or time.monotonic() > gives_up_at:
                    raise RuntimeError("moto.server did not start") from None
                time.sleep(0.1)

    def reset(self) -> None:
        """No bucket, no user, and every key is good."""
        self._http.request("POST", f"{self.url}/moto-api/reset")
        self._http.request("POST", f"{self.url}/moto-api/reset-auth", body=str(NO_LIMIT))
        self._ask_iam(Action="CreateUser", UserName="ragd")
        self._ask_iam(Action="PutUserPolicy", UserName="ragd", PolicyName="all", PolicyDocument=ALLOW_ALL)
        answer = self._ask_iam(Action="CreateAccessKey", UserName="ragd")
        self.access_key = re.findall("<AccessKeyId>(.*?)<", answer)[0]
        self.secret_key = re.findall("<SecretAccessKey>(.*?)<", answer)[0]

    def require_keys(self) -> None:
        """From now on a request needs a good signature."""
        self._http.request("POST", f"{self.url}/moto-api/reset-auth", body="0")

    def client(self) -> Minio:
        return Minio(
            self.host, access_key=self.access_key, secret_key=self.secret_key, secure=False, region="us-east-1"
        )

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Store an object; the bucket is made when it is not there."""
        client = self.client()
        if not client.bucket_exists(bucket):
            client.make_bucket(bucket)
        client.put_object(bucket, key, io.BytesIO(content), len(content))

    def remove(self, bucket: str, key: str) -> None:
        self.client().remove_object(bucket, key)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)

    def _ask_iam(self, **fields: str) -> str:
        answer = self._http.request(
            "POST",
            self.url,
            fields={**fields, "Version": "2010-05-08"},
            encode_multipart=False,
            headers={"Authorization": ANY_SIGNATURE},
        )
        return answer.data.decode()


@pytest.fixture(scope="session")
def running_s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3_server(running_s3_server: S3Server) -> S3Server:
    """Empty."""
    running_s3_server.reset()
    return running_s3_server


__all__ = ["S3Server", "running_s3_server", "s3_server"]
