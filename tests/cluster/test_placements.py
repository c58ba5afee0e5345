"""Collections on a Citus cluster: on one node, over all nodes, and beside them on the coordinator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cluster.nodes import REPOSITORY, Cluster

pytestmark = pytest.mark.timeout(600)  # the engine may have to be built first


def run(environment: Mapping[str, str], *arguments: str) -> Any:
    """What a module prints as JSON."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=dict(environment), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("placement", ["node", "spread"])
def test_every_rule_of_the_specification_holds(
    cluster: Cluster, environment: Mapping[str, str], placement: str
) -> None:
    arguments = ("ragd.conformance", "--database", cluster.url, "--placement", placement, "--json")
    report = run(environment, *arguments)
    assert report["passed"] and report["cases"] > 3000


def test_a_collection_lives_alike_wherever_its_chunks_are(environment: Mapping[str, str]) -> None:
    seen = run(environment, "tests.cluster.flow", "local", "node", "spread")
    local = seen["local"]
    assert local["check"] == [] and len(local["written"]["hybrid falcon nest ()"]) > 1
    assert local["read by ada"] == local["again by ada"] and "d2" not in local["read by ada"]
    assert set(local["read by ada"]) - set(local["read by bob"]) == {"d0", "d1"}
    for placement in ("node", "spread"):
        assert {moment for moment, result in local.items() if seen[placement][moment] != result} == set(), placement


def test_a_bound_curator_and_what_reads_all_chunks_do_alike_wherever_chunks_are(environment: Mapping[str, str]) -> None:
    seen = run(environment, "tests.cluster.doors", "local", "node", "spread")
    local = seen["local"]
    assert local["tagged"] == [{"changed": 2}, ["d00", "d01"]] and local["labelled"] == [200, ["d02"]]
    assert (local["deleted"], local["bulk deleted"]) == ([200, False], {"deleted": 2})
    assert (local["not deleted"], local["trashed"], local["restored"]) == (404, 2, ["d12"])
    assert "d12" in local["bound"] and not {"d07", "d08", "d09", "d10", "d19"} & set(local["bound"])
    assert local["erased"] == [True, False]
    read = local["indexed, bound"]
    assert read["tags = "] == ["tags = 'even'", "tags = 'odd'", "tags = 'wet'"] and len(read["section = "]) > 10
    assert read["duplicates"] == 1 and read["findings"][2]["prompt_injection"] == 1
    assert read["explained"][0] and read["explained"][1] == [False, False]
    assert local["indexed, unbound"]["explained"][1] == [True, True]
    assert local["built"] == [["waiting for writers before build", 0], True, None, True]
    assert local["administered"][1:] == [200, 302, False] and local["administered"][0] > 10
    for placement in ("node", "spread"):
        assert {moment for moment, result in local.items() if seen[placement][moment] != result} == set(), placement


def test_a_node_that_dies_takes_its_collections_along_and_no_other(
    cluster: Cluster, environment: Mapping[str, str]
) -> None:
    node = cluster.nodes[1]
    seen = run(environment, "tests.cluster.deaths", str(node.home), str(node.port))
    # evening out, and what a transaction left
    assert (seen["uneven"] > 0) and seen["moved"] == seen["uneven"] > seen["left to move"]
    assert min(seen["shards"][1:]) > 2, "of what is spread both have some, and of what is not"
    assert seen["leftovers"] == [1, 1, 0]
    # the death
    away = set(seen["on node"])
    assert away >= {"all", "one"} and not away & {"here", "two"}
    assert (seen["away"], set(seen["versions away"])) == ([node.port], away)
    away &= set(seen["whole"])  # the others are of other tests
    for name, (status, keys, error, wait) in seen["dead"].items():
        if name in away:
            assert (status, keys, error) == (503, [], "node_unavailable") and int(wait) > 0
        else:
            assert (status, keys) == (200, seen["whole"][name][1])
    assert {name for name, status in seen["written"].items() if status == 503} == away
    assert seen["started"] is True
    assert seen["pages"] == {name: [503, "5"] if name in away else [200, None] for name in seen["whole"]}
    # sizes: of the same documents about the same, wherever they are; five statements for all collections together, and
    # three for the index versions of one, or two where these are here
    assert seen["statements"] == [5 + 3, 5 + 2 * 3, 5 + 5 * 3 + 2]
    known, left = seen["sizes"], seen["sizes of the dead"]
    for name in seen["whole"]:
        own, listed = known[name]
        assert own == listed and known["here"][0] / 2 < own < known["here"][0] * 5
        assert left[name] == ([None, None] if name in away else known[name]), name
    # and back: what was refused is nowhere, what was taken is whole
    for moment in ("late", "late chunks"):
        assert {name for name, is_there in seen[moment].items() if not is_there} == away, moment
    assert all(seen["back"][name] == seen["whole"][name] for name in away)


def test_replicas_of_nodes_are_shown_with_their_lag(cluster: Cluster, environment: Mapping[str, str]) -> None:
    node = cluster.nodes[0]
    seen = run(environment, "tests.cluster.copies", str(node.home), str(node.port))
    assert seen["none"] == [[], [], []] and seen["page without"] == ["none"] * 3
    (level,), (behind,), (away,) = (seen[moment]["json"] for moment in ("level", "behind", "away"))
    assert level == {"name": "copy", "address": "127.0.0.1", "state": "streaming", "lag_bytes": 0, "lag_s": 0.0}
    assert seen["others"] == [[], []]
    assert behind["state"] == "streaming" and behind["lag_bytes"] > 1_000_000
    assert (away["name"], away["state"], away["lag_s"]) == ("copy", "away", None) and away["lag_bytes"] > 0
    assert seen["level"]["page"] == [["copy: no lag"], "yes"] and seen["away"]["page"][1] == "no"
    for moment in ("behind", "away"):
        assert " behind" in seen[moment]["page"][0][0]
    assert seen["gone"] == []


def test_a_collection_moves_with_its_next_index_version(environment: Mapping[str, str]) -> None:
    moved = run(environment, "tests.cluster.moves")
    assert moved["placements"] == ["local", "spread", "node", "local"]
    assert all(ranking == moved["rankings"][0] for ranking in moved["rankings"])
