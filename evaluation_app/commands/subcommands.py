"""The subcommands of `manage.py ragd`, each from its module in `commands` or a folder of it."""

from __future__ import annotations

from evaluation_app.commands import (
    cluster,
    collections,
    connectors,
    ingest,
    jobs,
    models,
    query,
    receipts,
    server,
    spans,
)
from evaluation_app.commands.evaluation import bake_off, bisect, calibrate, evaluate, golden_sets
from evaluation_app.commands.governance import access, audit, erase
from evaluation_app.commands.subcommand import Subcommand, no_arguments

SUBCOMMANDS: dict[str, Subcommand] = {
    "cluster": Subcommand(
        "show the nodes of a Citus cluster, place and spread collections, even out the nodes",
        cluster.add_arguments,
        cluster.run,
        cluster.show,
        cluster.has_passed,
    ),
    "load-sample": Subcommand(
        "bring the sample collection and its golden questions up to date",
        server.add_sample_arguments,
        server.run_load_sample,
        server.show_sample,
    ),
    "create-key": Subcommand(
        "make an API key and print its secret once", server.add_key_arguments, server.run_create_key, server.show_key
    ),
    "grant": Subcommand(
        "give a user or a group a role in a collection, or in all",
        access.add_grant_arguments,
        access.run_grant,
        access.show_change,
    ),
    "revoke": Subcommand(
        "take a role from a user or a group",
        access.add_revoke_arguments,
        access.run_revoke,
        access.show_change,
    ),
    "who-may": Subcommand(
        "list who has which role in a collection, and where each comes from",
        access.add_who_arguments,
        access.run_who,
        access.show_who,
    ),
    "leak-probe": Subcommand(
        "ask as people on every channel and list what came back that should not; exit status 1 where something did",
        access.add_probe_arguments,
        access.run_probe,
        access.show_probe,
        access.has_passed,
    ),
    "ingest": Subcommand(
        "bring files, folders, archives, addresses and buckets into a collection",
        ingest.add_ingest_arguments,
        ingest.run_ingest,
        ingest.show,
        ingest.has_passed,
    ),
    "sync": Subcommand(
        "keep a collection in step with a folder",
        ingest.add_sync_arguments,
        ingest.run_sync,
        ingest.show,
        ingest.has_passed,
    ),
    "connectors": Subcommand(
        "list the sources that collections are kept in step with, sync them, or tell what a sync would change",
        connectors.add_arguments,
        connectors.run,
        connectors.show,
        connectors.has_passed,
    ),
    "jobs": Subcommand("list, watch, cancel and retry jobs", jobs.add_arguments, jobs.run, jobs.show, jobs.has_passed),
    "models": Subcommand(
        "list the models that are set up and test their connections",
        models.add_arguments,
        models.run,
        models.show,
        models.has_passed,
    ),
    "rotate-secret-key": Subcommand(
        "change the server's secret key for another",
        server.add_rotation_arguments,
        server.run_rotation,
        server.show_rotation,
    ),
    "search": Subcommand(
        "find the best chunks of a collection",
        query.add_search_arguments,
        query.run_search,
        query.show_results,
    ),
    "ask": Subcommand("answer a question from a collection", query.add_ask_arguments, query.run_ask, query.show_answer),
    "bake-off": Subcommand(
        "compare embedding models on questions over a sample of a collection",
        bake_off.add_arguments,
        bake_off.run,
        bake_off.show,
    ),
    "bisect": Subcommand(
        "find the change that broke golden questions; exit status 1 where it is not proven",
        bisect.add_arguments,
        bisect.run,
        bisect.show,
        bisect.has_passed,
    ),
    "receipt": Subcommand(
        "a signed record of a stored run",
        receipts.add_receipt_arguments,
        receipts.run_receipt,
        receipts.show_receipt,
    ),
    "receipt-key": Subcommand(
        "the public key that this server's receipts are verified with",
        no_arguments,
        receipts.run_key,
        receipts.show_key,
    ),
    "verify": Subcommand(
        "check a receipt's signature, and repeat its retrieval over an export; exit status 1 when something differs",
        receipts.add_verify_arguments,
        receipts.run_verify,
        receipts.show_verification,
        receipts.has_verified,
    ),
    "judgements": Subcommand(
        "count or forget what chat models said as judges and is kept",
        server.add_judgements_arguments,
        server.run_judgements,
        server.show_judgements,
    ),
    "evaluate": Subcommand(
        "evaluate a golden set and check its pass criteria",
        evaluate.add_arguments,
        evaluate.run,
        evaluate.show,
        evaluate.has_passed,
    ),
    "import-golden": Subcommand(
        "bring golden questions of a CSV or JSON Lines file into a golden set",
        golden_sets.add_arguments,
        golden_sets.run,
        golden_sets.show,
        golden_sets.has_passed,
    ),
    "export": Subcommand(
        "write a collection into one file",
        collections.add_export_arguments,
        collections.run_export,
        collections.show_export,
    ),
    "import": Subcommand(
        "make a collection of an export",
        collections.add_import_arguments,
        collections.run_import,
        collections.show_import,
    ),
    "export-spans": Subcommand(
        "write spans as OTLP JSON, OpenInference JSON Lines or OCSF events",
        spans.add_export_arguments,
        spans.run_export,
        spans.show_export,
    ),
    "evidence": Subcommand(
        "report the field coverage of framework controls",
        spans.add_evidence_arguments,
        spans.run_evidence,
        spans.show_evidence,
    ),
    "conformance": Subcommand(
        "try every rule of the specification on this database, and keep the result",
        no_arguments,
        server.run_conformance,
        server.show_conformance,
        has_passed=lambda answer: bool(answer["passed"]),
    ),
    "rebuild": Subcommand(
        "rebuild a collection's index as a new index version",
        collections.add_rebuild_arguments,
        collections.run_rebuild,
        collections.show_rebuild,
        collections.has_rebuilt,
    ),
    "measure-weights": Subcommand(
        "measure how much the vector and the keyword list of a hybrid search should count in a collection",
        collections.add_measure_arguments,
        collections.run_measure,
        collections.show_measure,
        lambda answer: not answer["error"],
    ),
    "calibrate": Subcommand(
        "fit on golden questions when a retrieval is correct or incorrect; exit status 1 without thresholds",
        calibrate.add_arguments,
        calibrate.run,
        calibrate.show,
        calibrate.has_passed,
    ),
    "check": Subcommand(
        "check the consistency of stored data; exit status 1 on problems",
        collections.add_check_arguments,
        collections.run_check,
        collections.show_check,
        collections.has_consistent_data,
    ),
    "scan": Subcommand(
        "scan stored chunks for prompt injection, secrets and personal data",
        collections.add_scan_arguments,
        collections.run_scan,
        collections.show_scan,
    ),
    "validate-spans": Subcommand(
        "check stored spans, or those of a file, against the span conventions; exit status 1 when one is wrong",
        spans.add_validate_arguments,
        spans.run_validate,
        spans.show_validate,
        spans.has_valid_spans,
    ),
    "audit": Subcommand(
        "check that the audit log is whole, sign its end, or write it into a file; exit status 1 where it is not whole",
        audit.add_arguments,
        audit.run,
        audit.show,
        audit.has_passed,
    ),
    "erase": Subcommand(
        "erase a document, a collection or a person out of every table, or all earlier ones again after a restore",
        erase.add_arguments,
        erase.run,
        erase.show,
    ),
    "status": Subcommand(
        "workers, jobs, runs and spans at a glance", no_arguments, server.run_status, server.show_status
    ),
}
