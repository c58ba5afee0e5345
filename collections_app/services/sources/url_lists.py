"""Lists of addresses: read from text, CSV or JSON, checked, and queued as one job each."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collections_app.domain.identity import check_doc_id, clean_line, clean_title
from collections_app.fetching import doc_id_of, read_address
from collections_app.models import Collection, IngestBatch
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import Codes
from collections_app.services.sources.source_jobs import Source, SourceItem, SourcePlan, plan_sources, submit_sources
from ragd.errors import InvalidInput

ADDRESSES_MAX = 10_000
COLUMNS = ("url", "address", "link", "href")
BEGINNINGS = ("http://", "https://")
LABEL_HOSTS = 3


@dataclass(frozen=True, slots=True)
class UrlEntry:
    """One address as it was given; doc_id "": made from host and path; title "": what the page says."""

    url: str
    doc_id: str = ""
    title: str = ""


def read_list(text: str) -> list[UrlEntry]:
    """The addresses of a text: one per line, or a CSV with a header that names a column url, address, link or href.

    A CSV may have columns doc_id and title. Empty lines and those that begin with # are passed over. Raises
    InvalidInput when nothing remains.
    """
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines()]
    selected = [line for line in lines if line and not line.startswith("#")]
    if not selected:
        raise InvalidInput("give at least one address, one per line", field="urls")
    if not selected[0].lower().startswith(BEGINNINGS) and (table := _read_table(selected)):
        return table
    return [UrlEntry(line) for line in selected]


def _read_table(lines: Sequence[str]) -> list[UrlEntry]:
    """The rows of a CSV with a header, [] when it is none."""
    mark = max(",;\t", key=lines[0].count)
    rows = csv.DictReader(io.StringIO("\n".join(lines)), delimiter=mark)
    names = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
    column = next((names[name] for name in COLUMNS if name in names), None)
    if column is None:
        return []

    def cell(row: dict[str, Any], name: str | None) -> str:
        return str(row.get(name) or "").strip() if name else ""

    entries = [
        UrlEntry(cell(row, column), cell(row, names.get("doc_id")), cell(row, names.get("title"))) for row in rows
    ]
    return [entry for entry in entries if entry.url]


def submit_urls(
    collection: Collection,
    entries: Sequence[UrlEntry],
    *,
    on_clash: str = "replace",
    dry_run: bool = False,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    access: Codes | None = None,
    actor: audit.Actor = None,
) -> SourcePlan:
    """Queue one job per acceptable address; one line per address, in order. A wrong one holds up no other.

    dry_run: only the plan. Nothing is asked over the net here. Raises InvalidInput for none or more than 10,000.
    """
    if not 0 < len(entries) <= ADDRESSES_MAX:
        raise InvalidInput(f"urls must be 1 to {ADDRESSES_MAX:,} addresses, not {len(entries):,}", field="urls")
    source_item = SourceItem(on_clash, tags, metadata, policy, access)
    source_item.cleaned()
    sources = [_source(entry) for entry in entries]
    if dry_run:
        return plan_sources(collection, sources, source_item)
    return submit_sources(
        collection, sources, source_item, kind=IngestBatch.Kind.URLS, label=_label(sources), actor=actor
    )


def _source(entry: UrlEntry) -> Source:
    try:
        address = read_address(entry.url)
        doc_id = check_doc_id(entry.doc_id) if entry.doc_id else doc_id_of(address)
        title = clean_title(entry.title)
    except InvalidInput as error:
        shown = clean_line((entry.doc_id or entry.url)[:512])
        return Source(
            shown, {"type": "url", "url": clean_line(entry.url[:2000])}, refused=("invalid_input", error.message)
        )
    return Source(doc_id, {"type": "url", "url": str(address)}, title=title)


def _label(sources: Sequence[Source]) -> str:
    hosts = list(dict.fromkeys(source.address.split("/")[2] for source in sources if not source.refused))
    shown = ", ".join(hosts[:LABEL_HOSTS]) + (" and others" if len(hosts) > LABEL_HOSTS else "")
    return f"{len(sources)} addresses: {shown}" if len(sources) != 1 else sources[0].address
