"""`manage.py ragd access` and `rotate-secret-key`: roles, API keys and the server's secret key."""

from __future__ import annotations

from argparse import ArgumentParser

from django.conf import settings

from collections_app.access import people
from collections_app.access.api_keys import NewKey, create_key, expiry_after
from collections_app.access.permissions import Permission, Role
from collections_app.collections.services import get_collection
from collections_app.commands.subcommand import Answer, Options, Subcommand, as_usage
from collections_app.endpoints.model_settings import begin_rotation, finish_rotation
from collections_app.models import Collection

ROTATION_BEGUN = [
    "start every process of ragd again: all of them then know the new key and read with the earlier one",
    "run `manage.py ragd rotate-secret-key --finish`: it encrypts the stored keys of models again and forgets the"
    " earlier key. Who opened no page since the new start logs in again then",
    "back the new key up: a restored database needs it",
]
ROTATION_BY_HAND = [
    "the key comes from RAGD_SECRET_KEY, so nothing was changed: set it to at least 50 new random characters, and"
    " RAGD_SECRET_KEY_FALLBACKS to the present one",
    "start every process of ragd again",
    "run `manage.py ragd rotate-secret-key --finish`, then unset RAGD_SECRET_KEY_FALLBACKS and start again",
]
ROTATION_FINISHED = ["start every process of ragd again, so that none reads with the earlier key"]
ROTATION_FINISHED_BY_HAND = ["unset RAGD_SECRET_KEY_FALLBACKS and start every process of ragd again"]


def _add_holder(parser: ArgumentParser, *roles: str) -> None:
    parser.add_argument("holder", metavar="USER|@GROUP", help="a user name, or @ and the name of a group")
    parser.add_argument("role", choices=[*Role.values, *roles], help="the role; all: every one that was granted there")
    parser.add_argument("collection", nargs="?", metavar="COLLECTION", help="in this one; in all when left out")


def run_grant(options: Options) -> Answer:
    """{"holder", "role", "collection" ("" for all), "changed"}."""
    holder, collection = _find(options)
    _, is_new = people.grant(holder, options["role"], collection)
    return _describe(options, is_new)


def run_revoke(options: Options) -> Answer:
    holder, collection = _find(options)
    role = None if options["role"] == "all" else options["role"]
    return _describe(options, bool(people.revoke_all(holder, collection, role)))


def _find(options: Options) -> tuple[people.Holder, Collection | None]:
    with as_usage():
        holder = people.find_holder(options["holder"])
        return holder, get_collection(options["collection"]) if options["collection"] else None


def _describe(options: Options, changed: bool) -> Answer:
    return {name: options[name] or "" for name in ("holder", "role", "collection")} | {"changed": changed}


def show_change(answer: Answer) -> str:
    where = answer["collection"] or "all collections"
    return f"{answer['holder']}: {answer['role']} in {where}, {'done' if answer['changed'] else 'nothing to change'}"


def add_key_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--label", required=True, help="what the key is for")
    parser.add_argument("--scope", choices=("read", "write"), default="write", help="read and ask, or everything")
    parser.add_argument(
        "--scopes", nargs="+", choices=list(Permission), default=None, help="what the key may, in place of --scope"
    )
    parser.add_argument("--acts-as", default=None, metavar="USER", help="the user whose roles hold for the key")
    parser.add_argument("--group", action="append", default=[], help="a group that it belongs to; repeatable")
    parser.add_argument("--requests-per-minute", type=int, default=None, help="0: any number")
    parser.add_argument("--tokens-per-day", type=int, default=None, help="0: any number")
    parser.add_argument(
        "--collection", action="append", default=[], help="limit the key to this collection; repeatable"
    )
    parser.add_argument(
        "--expires-days", type=int, default=None, help="days until the key ends, at most 3652; never when left out"
    )


def run_create_key(options: Options) -> Answer:
    days = options["expires_days"]
    key, secret = create_key(
        NewKey(
            options["label"],
            scope=options["scope"],
            scopes=options["scopes"],
            collections=options["collection"],
            acts_as=options["acts_as"],
            groups=options["group"],
            requests_per_minute=options["requests_per_minute"],
            tokens_per_day=options["tokens_per_day"],
            expires_at=None if days is None else expiry_after(days),
        )
    )
    return {
        "label": key.label,
        "scope": key.scope,
        "scopes": list(key.scopes),
        "acts_as": options["acts_as"],
        "groups": sorted(options["group"]),
        "collections": list(key.collections),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "secret_once": secret,
    }


def show_key(answer: Answer) -> str:
    return f"{answer['secret_once']}\nThis is the only time that the secret of {answer['label']!r} is shown."


def add_list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", metavar="COLLECTION")


def run_list(options: Options) -> Answer:
    """Roles in a collection and where each comes from; holder "" is everybody who is logged in."""
    with as_usage():
        collection = get_collection(options["collection"])
    holdings = [
        {
            "holder": people.name_holder(each.user or each.group),
            "role": each.role,
            "source": each.source,
            "everywhere": each.is_everywhere,
            "members": each.members,
        }
        for each in people.who_may(collection)
    ]
    return {"collection": collection.name, "holdings": holdings}


def add_rotation_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--finish",
        action="store_true",
        help="after the new start: encrypt what is stored again and forget the earlier key",
    )


def run_rotation(options: Options) -> Answer:
    is_kept_here = settings.RAGD_KEEPS_SECRET_KEY
    if options["finish"]:
        renewed = finish_rotation(settings.RAGD_VAR)
        steps = ROTATION_FINISHED if is_kept_here else ROTATION_FINISHED_BY_HAND
        return {"state": "finished", "renewed": renewed, "steps": steps}
    if not is_kept_here:
        return {"state": "unchanged", "renewed": 0, "steps": ROTATION_BY_HAND}
    begin_rotation(settings.RAGD_VAR)
    return {"state": "begun", "renewed": 0, "steps": ROTATION_BEGUN}


def show_rotation(answer: Answer) -> str:
    head = {
        "begun": "There is a new secret key.",
        "unchanged": "The secret key is not kept here.",
        "finished": f"{answer['renewed']} stored keys are encrypted under the present secret key.",
    }[str(answer["state"])]
    return "\n".join([head, *(f"{number}. {step}" for number, step in enumerate(answer["steps"], start=1))])


COMMANDS = {
    "access create-key": Subcommand(
        "make an API key and print its secret once", add_key_arguments, run_create_key, show_key
    ),
    "access grant": Subcommand(
        "give a user or a group a role in a collection, or in all", _add_holder, run_grant, show_change
    ),
    "access list": Subcommand(
        "list who has which role in a collection, and where each comes from", add_list_arguments, run_list
    ),
    "access revoke": Subcommand(
        "take a role from a user or a group", lambda parser: _add_holder(parser, "all"), run_revoke, show_change
    ),
    "rotate-secret-key": Subcommand(
        "change the server's secret key for another", add_rotation_arguments, run_rotation, show_rotation
    ),
}
