"""Types of the fields and parameters of requests: each adds to the API's description which values are accepted.

The services check values themselves and say what is wrong in their own words, so a type only describes. A format names
what no pattern can tell: a cursor of a list, a filter, a text search configuration of the database.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from ninja import Field
from ninja.params import functions as param
from pydantic import ConfigDict
from pydantic.json_schema import SkipJsonSchema

from collections_app.chunks.policies import MAX_CHARS_LIMIT, TOKENS_LIMIT
from collections_app.collections.retention_periods import DAYS_MAX
from collections_app.http.paging import LIMIT_MAX
from collections_app.http.validation import StrictInt
from ragd.identity import DOC_ID_MAX_CHARS, LABEL_MAX_CHARS, NAME_MAX_CHARS, TAG_MAX_CHARS, TAGS_MAX

UNSEEN = r"\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
SPACE = r"\u0009-\u000d\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
EDGE = rf"[^{UNSEEN}{SPACE}]"
VISIBLE = rf"[^{UNSEEN}{SPACE}\u00ad\u200b-\u200d\u2060-\u2064]"
IN_NAME = rf"{UNSEEN}/\\?#%"
DOC_ID_PATTERN = rf"^(?!\.\.?(?:/|$))(?!.*/\.\.?(?:/|$))[^{UNSEEN}{SPACE}]([^{UNSEEN}]*[^{UNSEEN}{SPACE}])?$"
MOMENT = (
    r"^$|^[1-9][0-9]{0,3}[mhd]$|^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"
)


def accepts(**schema: Any) -> Any:
    """State keywords of JSON Schema for a type, without checking them."""
    return Field(json_schema_extra=schema)


def between(minimum: float, maximum: float) -> Any:
    """State the bounds of a number, both included."""
    return accepts(minimum=minimum, maximum=maximum)


def either(first: str, second: str) -> ConfigDict:
    """Describe a request that has one of the two fields, and not both."""
    null, stated = {"type": "null"}, {"not": {"type": "null"}}
    choices: list[Any] = [
        {"required": [one], "properties": {one: stated, other: null}}
        for one, other in ((first, second), (second, first))
    ]
    return ConfigDict(json_schema_extra={"oneOf": choices})


def text_as(*media_types: str) -> dict[str, Any]:
    """The content of a request or answer that is text of one of these types."""
    return {"content": {each: {"schema": {"type": "string"}} for each in media_types}}


def also_as(*media_types: str) -> dict[str, Any]:
    """`openapi_extra` of an operation that answers 200 as one of these texts too."""
    return {"responses": {200: text_as(*media_types)}}


Limit = Annotated[int, between(1, LIMIT_MAX)]
Cursor = Annotated[str, accepts(format="cursor")]
NEXT_CURSOR = param.Query(None, description="next_cursor of the page before")
Omitted = SkipJsonSchema[None]  # a form leaves a field out and never sends null

Name = Annotated[
    str,
    accepts(
        minLength=1, maxLength=NAME_MAX_CHARS, pattern=rf"^[^.{SPACE}{IN_NAME}]([^{IN_NAME}]*[^{SPACE}{IN_NAME}])?$"
    ),
]
DocId = Annotated[str, accepts(minLength=1, maxLength=DOC_ID_MAX_CHARS, pattern=DOC_ID_PATTERN)]
ChunkKey = Annotated[
    str,
    accepts(
        maxLength=DOC_ID_MAX_CHARS + len("#999999"),
        pattern=DOC_ID_PATTERN.replace("|$", "|#").removesuffix("$") + "#[0-9]{1,6}$",
    ),
]
Label = Annotated[str, accepts(minLength=1, maxLength=LABEL_MAX_CHARS, pattern=EDGE)]
Text = Annotated[str, accepts(minLength=1, pattern=VISIBLE)]
TextOrEmpty = Annotated[str, accepts(pattern=rf"^$|{VISIBLE}")]
Printable = Annotated[str, accepts(pattern=f"^[^{UNSEEN}]*$")]
Sha256 = Annotated[str, accepts(pattern="^[0-9a-f]{64}$")]
Moment = Annotated[str, accepts(pattern=MOMENT)]
Instant = Annotated[datetime, accepts(pattern=MOMENT)]
Tag = Annotated[str, accepts(maxLength=TAG_MAX_CHARS)]
Tags = Annotated[list[Tag], accepts(maxItems=TAGS_MAX)]
Metadata = Annotated[dict[str, Any], accepts(format="json")]
Filter = Annotated[dict[str, Any], accepts(format="filter")]
FilterText = Annotated[str, accepts(format="filter")]
LanguageCode = Annotated[str, accepts(pattern="^([a-z]{2})?$")]
SearchLanguage = Annotated[str, accepts(format="language")]
NAMES = {"type": "array", "items": {"type": "string"}}
Access = Annotated[
    dict[str, Any],
    accepts(
        properties={"users": NAMES, "groups": NAMES, "restricted": {"type": "boolean"}}, additionalProperties=False
    ),
]
TOKENS, OVERLAP, CHARS = between(1, TOKENS_LIMIT), accepts(minimum=0), between(1, MAX_CHARS_LIMIT)
DIMENSIONS = between(1, 2000)
TargetTokens = Annotated[StrictInt, TOKENS]
OverlapTokens = Annotated[StrictInt, OVERLAP]
MaxChars = Annotated[StrictInt, CHARS]
Days = Annotated[StrictInt, between(0, DAYS_MAX)]
EmbedModel = Annotated[str, accepts(minLength=1, maxLength=200, pattern=rf"^[^{UNSEEN}{SPACE}]+$")]
EmbedDims = Annotated[StrictInt, DIMENSIONS]
