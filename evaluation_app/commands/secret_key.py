"""`manage.py ragd rotate-secret-key`: another key for the server, in two steps with a new start between them."""

from __future__ import annotations

from argparse import ArgumentParser

from django.conf import settings

from collections_app.services.models.server_key import begin_rotation, finish_rotation
from evaluation_app.commands.subcommand import Answer, Options

BEGUN = [
    "start every process of ragd again: all of them then know the new key and read with the earlier one",
    "run `manage.py ragd rotate-secret-key --finish`: it encrypts the stored keys of models again and forgets the"
    " earlier key. Who opened no page since the new start logs in again then",
    "back the new key up: a restored database needs it",
]
BY_HAND = [
    "the key comes from RAGD_SECRET_KEY, so nothing was changed: set it to at least 50 new random characters, and"
    " RAGD_SECRET_KEY_FALLBACKS to the present one",
    "start every process of ragd again",
    "run `manage.py ragd rotate-secret-key --finish`, then unset RAGD_SECRET_KEY_FALLBACKS and start again",
]
FINISHED = ["start every process of ragd again, so that none reads with the earlier key"]
FINISHED_BY_HAND = ["unset RAGD_SECRET_KEY_FALLBACKS and start every process of ragd again"]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--finish",
        action="store_true",
        help="after the new start: encrypt what is stored again and forget the earlier key",
    )


def run(options: Options) -> Answer:
    is_kept_here = settings.RAGD_KEEPS_SECRET_KEY
    if options["finish"]:
        renewed = finish_rotation(settings.RAGD_VAR)
        return {"state": "finished", "renewed": renewed, "steps": FINISHED if is_kept_here else FINISHED_BY_HAND}
    if not is_kept_here:
        return {"state": "unchanged", "renewed": 0, "steps": BY_HAND}
    begin_rotation(settings.RAGD_VAR)
    return {"state": "begun", "renewed": 0, "steps": BEGUN}


def show(answer: Answer) -> str:
    head = {
        "begun": "There is a new secret key.",
        "unchanged": "The secret key is not kept here.",
        "finished": f"{answer['renewed']} stored keys are encrypted under the present secret key.",
    }[str(answer["state"])]
    return "\n".join([head, *(f"{number}. {step}" for number, step in enumerate(answer["steps"], start=1))])
