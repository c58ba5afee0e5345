"""Archives: what is in one, what it would do, and the job that makes a file job of each member."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from collections_app.access.document_access import access_of_sender, lists_of
from collections_app.documents.files import can_read, parse_limits, read_content
from collections_app.documents.stored_documents import PARENT, lock_documents
from collections_app.jobs.attempts import IngestOutcome, JobProgress
from collections_app.models import Collection, IngestJob, Upload
from collections_app.uploads.options import MEMBER, NOTHING_STATED, IngestOptions, Origin
from collections_app.uploads.plan import Entry, PlanLine, Planner, UploadPlan, folder_of, is_refused
from collections_app.uploads.services import HeldFile, Submission, UploadedFile, UploadOutcome, enqueue, name_files
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.identity import doc_id_from_name
from ragd.readers import Member, ParseError, archive_type, iter_members, list_members

GROUP_MEMBERS = 50
GROUP_BYTES = 8_000_000
NAMED_MAX = 100


@dataclass(frozen=True, slots=True)
class Contents:
    """What of an archive is taken: members in its order, and the paths of hidden files, which are left out."""

    members: list[Member]
    hidden: list[str]


def list_archive(content: bytes) -> Contents:
    """The members without their bytes, after all of it was unpacked once. ParseError for one that cannot be read on."""
    listed = list_members(content, limits=parse_limits())
    return Contents(
        [member for member in listed if not is_hidden(member.name)],
        [member.name for member in listed if is_hidden(member.name)],
    )


def plan_archive(planner: Planner, archive: PlanLine, contents: Contents, *, on_clash: str = "") -> list[PlanLine]:
    """The line of the archive, with what is left out as its reason, and one line per member."""
    folder = folder_of(archive.doc_id)
    entries = [replace(_entry(folder, member), on_clash=on_clash) for member in contents.members]
    planner.load(entries)
    lines = [replace(planner.decide(entry, is_archive=False), of=archive.doc_id) for entry in entries]
    count = len(contents.members)
    reason = f"{count} file{'' if count == 1 else 's'} inside"
    if contents.hidden:
        reason += f"; {say_hidden(contents.hidden)}"
    return [replace(archive, reason=reason), *lines]


def preview_uploads(
    collection: Collection,
    files: Sequence[UploadedFile],
    options: IngestOptions = NOTHING_STATED,
    *,
    doc_ids: Sequence[str] = (),
    choices: Sequence[str] = (),
) -> UploadPlan:
    """What `submit_uploads` would do with these files; nothing is written.

    An archive is unpacked under the parser's limits, and its line is followed by one per member. One that cannot be
    read is rejected with the reason.
    """
    entries = name_files(files, doc_ids, choices)
    planner = Planner(collection, options.cleaned())
    planner.load(entries)
    lines: list[PlanLine] = []
    for file, entry in zip(files, entries, strict=True):
        lines += _preview(planner, file, entry)
    return UploadPlan(lines)


def _preview(planner: Planner, file: UploadedFile, entry: Entry) -> list[PlanLine]:
    if is_refused(entry):
        return [planner.decide(entry)]
    content = file.read()
    is_archive = bool(archive_type(content, file.name or ""))
    line = planner.decide(replace(entry, sha256=hashlib.sha256(content).hexdigest()), is_archive=is_archive)
    if line.status != "archive":
        return [line]
    try:
        contents = list_archive(content)
    except ParseError as error:
        return [line.rejected(error.kind, error.message)]
    return plan_archive(planner, line, contents, on_clash=entry.on_clash)


def unpack_archive(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """Make file jobs of the members, in the batch of the archive, and drop its bytes.

    The whole archive is read once before anything is made, so that one beyond the limits leaves nothing behind. Members
    are taken in groups, each in a transaction that also notes how far it has come: a run that is killed goes on there
    and makes no member twice. Members that are refused are named in the job's warnings and counted in the batch.
    """
    content = read_content(job.upload_id)
    progress.enter(IngestJob.Stage.PARSE)
    with telemetry.stage(telemetry.UNPACK, size_bytes=len(content)) as span:
        contents = list_archive(content)
        telemetry.record_counts(span, members_count=len(contents.members), hidden_count=len(contents.hidden))
        _unpack(collection, job, progress, content, contents)
        refused = sum(1 for member in contents.members if refusal_of(member)[1])
        telemetry.record_counts(span, refused_count=refused)
    job.warnings = _closing_words(job.warnings, contents)
    with transaction.atomic():
        progress.finish(IngestOutcome(0, 0, False, 0))
        Upload.objects.filter(pk=job.upload_id or 0).delete()


def _unpack(collection: Collection, job: IngestJob, progress: JobProgress, content: bytes, contents: Contents) -> None:
    total, done = len(contents.members), job.origin.done
    progress.advance(done, total)
    refused: list[str] = list(job.warnings)
    visible = (member for member in iter_members(content, limits=parse_limits()) if not is_hidden(member.name))
    for group in _groups(_without(visible, done)):
        done += len(group)
        with transaction.atomic():
            progress.hold(forgive=True)
            offered = [_offer(job, member) for member in group]
            outcomes = enqueue(collection, offered, _submission(collection, job))
            refused += [_say_refused(each) for each in outcomes if each.status == "rejected"]
            job.origin, job.warnings = replace(job.origin, done=done), refused[:NAMED_MAX]
            IngestJob.objects.filter(pk=job.pk).update(origin=job.origin, warnings=job.warnings)
        progress.advance(done, total)


def member_id(folder: str, path: str) -> str:
    """The doc_id of a member: its path under the folder. An unacceptable one comes as it is, and is refused later."""
    try:
        return doc_id_from_name(folder + path)
    except InvalidInput:
        return folder + path


def is_hidden(path: str) -> bool:
    """Whether the file or a folder above it begins with a dot."""
    return any(part.startswith(".") for part in path.split("/"))


def refusal_of(member: Member) -> tuple[str, str]:
    """(type, reason) why a member is not taken, or two empty texts."""
    if member.error is not None:
        return member.error.kind, member.error.message
    if member.size_bytes and not can_read(member.media_type):
        return "unsupported", f"{member.media_type} is not a format that is read; it was left out"
    return "", ""


def say_hidden(paths: Sequence[str]) -> str:
    noun = "hidden file is" if len(paths) == 1 else "hidden files are"
    return f"{len(paths)} {noun} left out, such as {paths[0][:200]}"


def _entry(folder: str, member: Member) -> Entry:
    error_type, error = refusal_of(member)
    doc_id = member_id(folder, member.name)
    return Entry(doc_id, member.sha256, member.size_bytes, member.name, error_type=error_type, error=error)


def _offer(job: IngestJob, member: Member) -> tuple[Entry, HeldFile]:
    origin = Origin(MEMBER, of=job.doc_id, path=member.name, level=job.origin.level)
    return replace(_entry(job.origin.prefix or "", member), origin=origin), HeldFile(member.name, member.data)


def _say_refused(outcome: UploadOutcome) -> str:
    return outcome.error if outcome.name in outcome.error else f"{outcome.name}: {outcome.error}"


def _submission(collection: Collection, job: IngestJob) -> Submission:
    """Members of an archive that was attached have the list of the mail, which is locked until they are queued."""
    mail, origin = job.metadata.get(PARENT), job.origin
    follows = isinstance(mail, str) and job.doc_id.startswith(f"{mail}/")
    access = origin.access
    if follows:
        lock_documents(collection, [mail])
        listed = lists_of(collection, [mail]).get(mail)
        access = listed.codes if listed else None
    options = IngestOptions(
        tags=None if "tags" in origin.unstated else list(job.tags),
        metadata=None if "metadata" in origin.unstated else dict(job.metadata),
        policy=job.policy or None,
        language=origin.language,
        access=access,
        on_clash=origin.on_clash,
    )
    return Submission(options, job.batch, job.created_by, access_of_sender(origin), follows)


def _without(members: Iterable[Member], count: int) -> Iterator[Member]:
    """The members after the first `count`, which an earlier run has taken."""
    for number, member in enumerate(members):
        if number >= count:
            yield member


def _groups(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Some members at a time, few enough to be held in memory."""
    group: list[Member] = []
    for member in members:
        group.append(member)
        if len(group) >= GROUP_MEMBERS or sum(each.size_bytes for each in group) >= GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group


def _closing_words(warnings: list[str], contents: Contents) -> list[str]:
    refused = sum(1 for member in contents.members if refusal_of(member)[1])
    words = list(warnings)
    if refused > len(warnings):
        words.append(f"{refused - len(warnings)} more files were refused")
    if contents.hidden:
        words.append(say_hidden(contents.hidden))
    return words
