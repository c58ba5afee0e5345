"""The API against its own description, by requests that Schemathesis makes from it.

Run: python -m tests.benchmarks.bench_schemathesis [--requests 5000] [--seed 1]

A whole server of its own on the loopback, without a chat model and without the Internet. All operations, deletions
last. Printed are: answers of 5xx, answers against the schema, valid requests that were refused, status codes and
content types that are not described (each with the first request of each operation; the target is 0), requests that
break the schema and were accepted, and refusals for what no schema can foresee, by type and field.
"""

from __future__ import annotations

import argparse

import schemathesis

from tests.benchmarks.server import running_server
from tests.security.schema_cases import examine, show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with running_server() as server:
        server.call("POST", "/v1/collections", {"name": "notes"})
        server.call("PUT", "/v1/collections/notes/documents/a", {"content": "The pump moves water."})
        server.call("POST", "/v1/golden-sets", {"name": "set", "collection": "notes"})
        asked = server.call("POST", "/v1/collections/notes/search", {"query": "pump"})
        schema = schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json", timeout=120)
        known = {"collection": ["notes"], "doc_id": ["a"], "golden_set": ["set"], "run_id": [asked["run_id"]]}
        key = {"Authorization": f"Bearer {server.key}"}
        show(examine(schema, known, headers=key, requests=options.requests, seed=options.seed))


if __name__ == "__main__":
    main()
