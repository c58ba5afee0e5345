"""People and groups: who there is, which roles they have and where each comes from, and every change of that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count, Q, QuerySet, Value
from django.db.models.functions import Concat, Trim

from collections_app import advisory_locks
from collections_app.access.context import elevated, system_access
from collections_app.access.permissions import Permission, Role, english
from collections_app.advisory_locks import LockSpace
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError
from collections_app.models import Collection, RoleGrant
from ragd.errors import InvalidInput

LABEL = re.compile(r".* \(([^()]+)\)")  # of `label_user`
FULL_NAME = Trim(Concat("first_name", Value(" "), "last_name"))
EVERYWHERE = 0
NAMED = 5
Holder = User | Group


@dataclass(frozen=True, slots=True)
class HeldRole:
    """A role that somebody has. collection: its name, "" for all. source: own, group, open or superuser.

    grant_id: the stored grant behind it; None where there is none.
    """

    collection: str
    collection_id: int
    role: str
    source: str
    group: Group | None = None
    grant_id: int | None = None

    @property
    def role_label(self) -> str:
        return str(Role(self.role).label)


@dataclass(frozen=True, slots=True)
class Holding:
    """Who has a role in a collection. user, group: one of them; neither: everybody who is logged in, or superusers."""

    role: str
    source: str
    user: User | None = None
    group: Group | None = None
    members: int = 0
    is_everywhere: bool = False
    grant_id: int | None = None

    @property
    def role_label(self) -> str:
        return str(Role(self.role).label)

    @property
    def name(self) -> str:
        if self.user is not None:
            return self.user.get_username()
        return "" if self.group is None else self.group.name


def roles_of(user: User) -> list[HeldRole]:
    """Every role of a person with where it comes from; those in all collections first, then by collection."""
    groups = {group.pk: group for group in user.groups.all()}
    names = dict(Collection.objects.live().values_list("pk", "name")) | {EVERYWHERE: ""}
    held = [HeldRole("", EVERYWHERE, Role.ADMINISTRATOR, "superuser")] if user.is_superuser else []
    for grant in RoleGrant.objects.filter(Q(user=user) | Q(group__in=groups)):
        if grant.collection_id in names:
            group = groups.get(grant.group_id or 0)
            source = "own" if group is None else "group"
            held.append(HeldRole(names[grant.collection_id], grant.collection_id, grant.role, source, group, grant.pk))
    held += [
        HeldRole(each.name, each.pk, each.open_role, "open") for each in Collection.objects.live().exclude(open_role="")
    ]
    return sorted(held, key=lambda each: (each.collection, each.source))


def grants_of_group(group: Group) -> list[HeldRole]:
    names = dict(Collection.objects.live().values_list("pk", "name")) | {EVERYWHERE: ""}
    held = [
        HeldRole(names[grant.collection_id], grant.collection_id, grant.role, "group", group, grant.pk)
        for grant in RoleGrant.objects.filter(group=group)
        if grant.collection_id in names
    ]
    return sorted(held, key=lambda each: each.collection)


def who_may(collection: Collection) -> list[Holding]:
    """Who has a role in a collection, those of it first, then those of all collections. Raises Forbidden."""
    with elevated(Permission.ADMINISTER, collection.pk):
        rows = RoleGrant.objects.filter(collection_id__in=(EVERYWHERE, collection.pk)).select_related("user", "group")
        counts = dict(Group.objects.order_by().annotate(total=Count("user")).values_list("pk", "total"))
        found = [
            Holding(
                grant.role, "group" if grant.group_id else "own", grant.user, grant.group,
                counts.get(grant.group_id or 0, 0), grant.collection_id == EVERYWHERE, grant.pk,
            )
            for grant in rows
        ]  # fmt: skip
        found += [
            Holding(Role.ADMINISTRATOR, "superuser", user, is_everywhere=True)
            for user in User.objects.filter(is_superuser=True, is_active=True)
        ]
    if collection.open_role:
        found.append(Holding(collection.open_role, "open"))
    return sorted(found, key=lambda each: (each.is_everywhere, each.source == "open", each.group is None, each.name))


def grant(
    holder: Holder, role: str, collection: Collection | None = None, *, actor: services.Actor = None
) -> tuple[RoleGrant, bool]:
    """(the grant, whether it is new): a role in a collection, or in all of them where there is none.

    Raises Forbidden for who does not administer that, InvalidInput for an unknown role.
    """
    collection_id = EVERYWHERE if collection is None else collection.pk
    checked = check_role(role)
    with elevated(Permission.ADMINISTER, collection_id or None), transaction.atomic():
        made, is_new = RoleGrant.objects.get_or_create(
            user=holder if isinstance(holder, User) else None,
            group=holder if isinstance(holder, Group) else None,
            collection_id=collection_id,
            role=checked,
            defaults={"created_by": name_actor(actor)},
        )
        if is_new:
            services.record(
                actor, [made], services.ADDITION, f"gave {name_holder(holder)} the role “{english(checked)}”"
            )
    return made, is_new


def revoke(given: RoleGrant, *, actor: services.Actor = None) -> None:
    """Take a role away. Raises Forbidden; ServiceError 409 where no administrator of all collections would be left."""
    holder = given.user or given.group
    with elevated(Permission.ADMINISTER, given.collection_id or None), keeping_an_administrator():
        services.record(
            actor, [given], services.DELETION, f"took the role “{english(given.role)}” from {name_holder(holder)}"
        )
        RoleGrant.objects.filter(pk=given.pk).delete()  # the caller's object keeps its id where this is taken back


def replace_role(holder: Holder, role: str, collection: Collection, *, actor: services.Actor = None) -> RoleGrant:
    """Let this be the only role that the holder was granted in the collection."""
    made, _ = grant(holder, role, collection, actor=actor)
    for other in grants_in(holder, collection).exclude(pk=made.pk):
        revoke(other, actor=actor)
    return made


def revoke_all(
    holder: Holder, collection: Collection | None, role: str | None = None, *, actor: services.Actor = None
) -> int:
    """Take the role, or all that were granted there, away; returns how many. None as collection: in all of them."""
    rows = grants_in(holder, collection)
    if role is not None:
        rows = rows.filter(role=check_role(role))
    with elevated(Permission.ADMINISTER, None if collection is None else collection.pk), transaction.atomic():
        given = list(rows.select_related("user", "group"))
        for each in given:
            revoke(each, actor=actor)
    return len(given)


def grants_in(holder: Holder, collection: Collection | None) -> QuerySet[RoleGrant]:
    own = Q(user=holder) if isinstance(holder, User) else Q(group=holder)
    return RoleGrant.objects.filter(own, collection_id=EVERYWHERE if collection is None else collection.pk)


def find_holder(text: str) -> Holder:
    """The user of that user name, of that full name where one alone has it, or as `label_user` writes it; the group of
    "@NAME". Raises InvalidInput."""
    name = text.strip()
    if "\x00" in name:
        raise InvalidInput("a name holds no NUL character", field="holder")
    if name.startswith("@"):
        group = Group.objects.filter(name=name[1:]).first()
        if group is None:
            raise InvalidInput(f"there is no group {name[1:]!r}; make it first", field="holder")
        return group
    label = LABEL.fullmatch(name)
    user = User.objects.filter(username__in=[name, label[1]] if label else [name]).first()
    if user is not None:
        return user
    namesakes = list(User.objects.annotate(full=FULL_NAME).filter(is_active=True, full__iexact=name)[:NAMED])
    if len(namesakes) == 1:
        return namesakes[0]
    if namesakes:
        choice = "; ".join(label_user(each) for each in namesakes)
        raise InvalidInput(f"{name!r} is the name of several people; enter one of: {choice}", field="holder")
    near = "; ".join(label_user(each) for each in search_people(name)[:NAMED])
    rest = f"; did you mean {near}?" if near else "; a group is written @NAME"
    raise InvalidInput(f"there is no user {name!r}{rest}", field="holder")


def search_people(words: str) -> QuerySet[User]:
    """Active people whose user name or full name holds the words, by name."""
    rows = User.objects.annotate(full=FULL_NAME).filter(is_active=True)
    return rows.filter(Q(username__icontains=words) | Q(full__icontains=words)).order_by("full", "username")


def label_user(user: User) -> str:
    """The full name with the user name behind it, or that alone."""
    full, name = user.get_full_name(), user.get_username()
    return f"{full} ({name})" if full and full != name else name


def name_holder(holder: Holder | None) -> str:
    """A user's name, or "@NAME" for a group."""
    if holder is None:
        return ""
    return f"@{holder.name}" if isinstance(holder, Group) else holder.get_username()


def check_role(role: str) -> str:
    if role not in Role.values:
        raise InvalidInput(f"role must be one of {', '.join(Role.values)}, not {role!r}", field="role")
    return role


def make_person(
    name: str,
    password: str | None = None,
    *,
    email: str = "",
    groups: Iterable[Group] = (),
    role: str = "",
    collection: Collection | None = None,
    actor: services.Actor = None,
) -> User:
    """A new user. password: None for one who comes by single sign-on or a proxy alone, under this user name.

    role: the first one, in that collection or in all; "" for none.

    Raises Forbidden, InvalidInput for a name or password that is refused, ServiceError 409 for a taken name.
    """
    with elevated(Permission.ADMINISTER), transaction.atomic():
        user = User(username=User.normalize_username(name.strip()), email=email)
        try:
            if password is not None:
                validate_password(password, user)
            user.set_password(password)
            user.clean_fields(exclude=["password"])
        except ValidationError as error:
            field = "password" if not hasattr(error, "error_dict") else next(iter(error.message_dict))
            raise InvalidInput(" ".join(error.messages), field=field) from None
        _save_named(user, "user", name)
        user.groups.set(groups)
        how = "with a password" if password is not None else "without a password, by sign-on alone"
        services.record(actor, [user], services.ADDITION, f"made {how}")
        if role:
            grant(user, role, collection, actor=actor)
    return user


def make_group(name: str, *, actor: services.Actor = None) -> Group:
    """Raises Forbidden, InvalidInput, ServiceError 409 for a taken name."""
    group = Group(name=name.strip())
    with elevated(Permission.ADMINISTER), transaction.atomic():
        try:
            group.clean_fields()
        except ValidationError as error:
            raise InvalidInput(" ".join(error.messages), field="name") from None
        _save_named(group, "group", name)
        services.record(actor, [group], services.ADDITION, "made")
    return group


def _save_named(row: User | Group, noun: str, name: str) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        raise ServiceError(
            f"there is a {noun} {name!r} already; choose another name", type="name_taken", field="name"
        ) from None


def delete_group(group: Group, *, actor: services.Actor = None) -> None:
    """With its roles; its members stay. Raises Forbidden, ServiceError 409 for the last administrators."""
    with elevated(Permission.ADMINISTER), keeping_an_administrator():
        services.record(actor, [group], services.DELETION, "deleted")
        Group.objects.filter(pk=group.pk).delete()  # the caller's object keeps its id where this is taken back


def list_people() -> QuerySet[User]:
    """Everybody who has an account."""
    return User.objects.all()


def set_members(group: Group, users: Iterable[User], *, actor: services.Actor = None) -> None:
    """Let these and no others be the members. Raises Forbidden, ServiceError 409 for the last administrators."""
    with elevated(Permission.ADMINISTER), keeping_an_administrator():
        before, after = set(group.user_set.all()), set(users)
        group.user_set.set(after)
        for words, changed in (("added", after - before), ("removed", before - after)):
            if changed:
                names = ", ".join(sorted(each.get_username() for each in changed))
                services.record(actor, [group], services.CHANGE, f"{words} {names}")


def set_groups(user: User, groups: Iterable[Group], *, actor: services.Actor = None) -> None:
    """Let these and no others be the groups of a person. Raises as `set_members`."""
    with elevated(Permission.ADMINISTER), keeping_an_administrator():
        before, after = set(user.groups.all()), set(groups)
        user.groups.set(after)
        if before != after:
            names = ", ".join(sorted(each.name for each in after)) or "none"
            services.record(actor, [user], services.CHANGE, f"groups are now {names}")


def change_details(user: User, full_name: str, email: str, *, actor: services.Actor = None) -> None:
    """The last word of a full name counts as the last name. Raises Forbidden."""
    first, _, last = " ".join(full_name.split()).rpartition(" ")
    with elevated(Permission.ADMINISTER), transaction.atomic():
        row = User.objects.select_for_update().get(pk=user.pk)
        if (row.first_name, row.last_name, row.email) != (first, last, email):
            row.first_name, row.last_name, row.email = first, last, email
            row.save(update_fields=["first_name", "last_name", "email"])
            services.record(actor, [row], services.CHANGE, "changed name or address")


def set_active(user: User, is_active: bool, *, actor: services.Actor = None) -> None:
    """Let a person log in, or no longer. Raises Forbidden, ServiceError 409 for the last administrator."""
    with elevated(Permission.ADMINISTER), keeping_an_administrator():
        locked = User.objects.select_for_update().get(pk=user.pk)
        if locked.is_active != is_active:
            locked.is_active = user.is_active = is_active
            locked.save(update_fields=["is_active"])
            services.record(actor, [locked], services.CHANGE, "made active" if is_active else "made inactive")


def administrators(collection: Collection | None = None) -> QuerySet[User]:
    """Active people who administer all collections: superusers, and who has that role, own or by a group. With a
    collection, those who administer it alone too."""
    where = {EVERYWHERE} if collection is None else {EVERYWHERE, collection.pk}
    whole = RoleGrant.objects.filter(collection_id__in=where, role=Role.ADMINISTRATOR)
    held = Q(pk__in=whole.filter(user__isnull=False).values("user"))
    by_group = Q(groups__in=whole.filter(group__isnull=False).values("group"))
    return User.objects.filter(Q(is_superuser=True) | held | by_group, is_active=True).distinct()


def name_administrators(collection: Collection | None = None) -> list[str]:
    """Whom to ask for a role: the first ones by name. Who is logged in may know those of all collections, who sees a
    collection also those of it."""
    with system_access():
        rows = administrators(collection).order_by("username")[:NAMED]
        return [each.get_full_name() or each.get_username() for each in rows]


def _has_administrator() -> bool:
    with system_access():
        return administrators().exists()


@contextmanager
def keeping_an_administrator() -> Iterator[None]:
    """Around a change of people, groups or roles, in a transaction: it is undone where it leaves no administrator.

    Raises ServiceError 409. Where there was none before, nothing is asked.
    """
    with transaction.atomic():
        advisory_locks.lock(advisory_locks.whole(LockSpace.ADMINISTRATORS))
        had_one = _has_administrator()
        yield
        if had_one and not _has_administrator():
            raise ServiceError(
                "this would leave nobody who administers all collections; make another administrator first",
                type="last_administrator",
            )
