"""Chat: threads of questions. The answers are query runs; a thread only says which belong together."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.urls import reverse
from django.utils import timezone

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from retrieval_app.runs.models import QueryRun

TITLE_CHARS_MAX = 120


class ChatAssistantQuerySet(models.QuerySet["ChatAssistant"]):
    def by_name(self) -> ChatAssistantQuerySet:
        return self.order_by("name", "id")

    def offered(self) -> ChatAssistantQuerySet:
        """Those in all of whose collections whoever asks may ask; row-level security hides more."""
        access = current_access()
        if access.may(Permission.ASK):
            return self
        own = [pk for pk, given in access.collections.items() if Permission.ASK in given]
        return self.filter(collection_ids__contained_by=own)


class ChatAssistant(models.Model):
    """Who answers in a thread: a model under instructions over some collections.

    llm_model: a chat model that is set up, "" for the default; without one, quotations answer. prompt: replaces the
    system prompt, "" for ragd's own. starters: questions to begin with. collection_ids: ascending, at least one.
    is_public: the page /a/<slug>/ answers without log-in. origins: sites that may show it in a frame. per_minute,
    per_day: questions of one address there.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=80, unique=True)
    slug = models.SlugField(max_length=80, unique=True)
    llm_model = models.TextField(blank=True, default="")
    prompt = models.TextField(blank=True, default="")
    greeting = models.TextField(blank=True, default="")
    starters = ArrayField(models.TextField(), default=list, blank=True)
    collection_ids = ArrayField(models.BigIntegerField(), default=list)
    is_public = models.BooleanField(default=False)
    origins = ArrayField(models.TextField(), default=list, blank=True)
    per_minute = models.PositiveIntegerField(default=5)
    per_day = models.PositiveIntegerField(default=50)
    created_by = models.TextField(default="", blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = ChatAssistantQuerySet.as_manager()

    class Meta:
        db_table = "chat_assistants"
        verbose_name = "assistant"

    def __str__(self) -> str:
        return self.name


class ChatThreadQuerySet(models.QuerySet["ChatThread"]):
    def of(self, user: User) -> ChatThreadQuerySet:
        return self.filter(user=user)

    def readable_by(self, user: User) -> ChatThreadQuerySet:
        """Their own, and shared ones of others: row-level security hides those with a collection they may not read."""
        return self.filter(models.Q(user=user) | models.Q(shared=True))

    def newest_first(self) -> ChatThreadQuerySet:
        """Pinned ones first, then by the time of the last question; ties by id."""
        return self.order_by("-pinned", "-updated_at", "-id")

    def found(self, words: str, *, archived: bool) -> ChatThreadQuerySet:
        """Whose title or a question of which contains the words; without words those that are archived, or are not."""
        if not words:
            return self.filter(archived=archived)
        asked = ChatMessage.objects.filter(question__icontains=words).values("thread_id")
        return self.filter(models.Q(title__icontains=words) | models.Q(pk__in=asked))


class ChatThread(models.Model):
    """Questions that build on each other. It is its owner's alone, until they share it.

    shared: whoever may read every one of its collections may read it. collection_ids: of the collections that its
    messages asked, ascending. rewrites: whether follow-up questions are rewritten with the history. has_files: whether
    files were added to it (`chat.files`). pinned, archived: where its owner's list has it.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    title = models.CharField(max_length=TITLE_CHARS_MAX)
    collection_ids = ArrayField(models.BigIntegerField(), default=list, blank=True)
    assistant = models.ForeignKey(
        ChatAssistant, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False
    )
    shared = models.BooleanField(default=False)
    rewrites = models.BooleanField(default=True)
    pinned = models.BooleanField(default=False, db_default=False)
    archived = models.BooleanField(default=False, db_default=False)
    has_files = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = ChatThreadQuerySet.as_manager()

    class Meta:
        db_table = "chat_threads"
        verbose_name = "thread"
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["user", "-updated_at", "-id"], name="chat_threads_newest")
        ]

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        return reverse("retrieval:chat-thread", args=[self.pk])


class ChatMessageQuerySet(models.QuerySet["ChatMessage"]):
    def with_runs(self) -> list[ChatMessage]:
        """In order, each with `run`; None where it is not stored, or may not be read by who asks."""
        messages = list(self.order_by("position"))
        ids = [pk for message in messages for pk in (message.run_id, message.other_run_id) if pk]
        runs = QueryRun.objects.select_related("user").in_bulk(ids)
        for message in messages:
            message.run = runs.get(message.run_id)
            message.other_run = runs.get(message.other_run_id) if message.other_run_id else None
        return messages


class ChatMessage(models.Model):
    """One question of a thread, and the run that answered it, which need not be stored (yet, or any more).

    question: as it was typed; the run's query is what was searched for. writing_until: while a process writes the
    answer it puts this off; null once it is done. other_run_id: of a second model's answer, until one of both is kept.
    stop_requested: a person asked to end the answer where it is.
    """

    id = models.BigAutoField(primary_key=True)
    thread = models.ForeignKey(ChatThread, on_delete=models.CASCADE, related_name="messages")
    position = models.IntegerField()
    question = models.TextField()
    run_id = models.UUIDField(db_column="run", db_index=True)
    other_run_id = models.UUIDField(db_column="other_run", null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    writing_until = models.DateTimeField(null=True, blank=True)
    stop_requested = models.BooleanField(default=False, db_default=False)

    run: QueryRun | None = None
    other_run: QueryRun | None = None

    objects = ChatMessageQuerySet.as_manager()

    class Meta:
        db_table = "chat_messages"
        verbose_name = "message"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["thread", "position"], name="chat_message_place")
        ]

    def __str__(self) -> str:
        return self.question

    @property
    def is_rewritten(self) -> bool:
        """Whether something else was searched for than was typed."""
        return self.run is not None and self.run.query != self.question

    @property
    def is_being_written(self) -> bool:
        is_open = self.run is None or (self.other_run_id is not None and self.other_run is None)
        return is_open and self.writing_until is not None and self.writing_until > timezone.now()

    @property
    def was_cut(self) -> bool:
        """Whether the process that wrote the answer ended before the answer did."""
        return self.run is None and self.writing_until is not None and self.writing_until <= timezone.now()

    def get_absolute_url(self) -> str:
        return f"{reverse('retrieval:chat-thread', args=[self.thread_id])}#message-{self.pk}"


def forget_runs(run_ids: Sequence[uuid.UUID]) -> int:
    """Delete the messages of these runs, and threads in which none is left; returns how many messages went."""
    ChatMessage.objects.filter(other_run_id__in=run_ids).update(other_run_id=None)
    rows = ChatMessage.objects.filter(run_id__in=run_ids)
    threads = list(rows.values_list("thread_id", flat=True).distinct())
    deleted = rows.delete()[0]
    ChatThread.objects.filter(pk__in=threads, messages=None).delete()
    return deleted
