"""Texts on their way into an embedder and vectors on their way out: input checks, windows of long texts, averages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ragd.errors import DimensionMismatch, EmptyContent, InvalidInput

FloatArray = npt.NDArray[np.float32]

SQUARES = (1e-30, 1e30)  # of a vector's components: beyond them a sum in single precision is 0 or infinite
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def accept_texts(texts: Sequence[str]) -> list[str]:
    """The texts, with each lone surrogate (which no encoding can carry) replaced by U+FFFD.

    Raises InvalidInput for anything that is not a sequence of str (a bare str included), EmptyContent for a blank text.
    """
    if isinstance(texts, str | bytes):
        raise InvalidInput("texts must be a sequence of str, not one str; wrap it in a list", field="texts")
    accepted = []
    for index, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InvalidInput(
                f"every text to embed must be a str; text {index} of {len(texts)} is {type(text).__name__}",
                field="texts",
            )
        if not text.strip():
            raise EmptyContent(
                f"there is nothing to embed in text {index} of {len(texts)}: it is empty or blank; leave it out",
                field="texts",
            )
        accepted.append(LONE_SURROGATE.sub("\ufffd", text))
    return accepted


def check_vector(vector: npt.ArrayLike, dims: int, name: str) -> None:
    """Refuse a vector that has no cosine in single precision. name: of the vector, for the message.

    Raises DimensionMismatch for another length, InvalidInput for NaN, infinity, zeros only, and a length outside of
    1e-15 to 1e15.
    """
    try:
        with np.errstate(over="ignore"):
            wide = np.asarray(vector, dtype=np.float32).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        wide = np.full(dims, np.nan)
    if wide.shape != (dims,):
        raise DimensionMismatch(
            f"{name} must have the collection's {dims} dimensions, not {wide.shape[0] if wide.ndim else 0}",
            field="embedding",
        )
    if not SQUARES[0] <= np.square(wide).sum() <= SQUARES[1]:
        raise InvalidInput(
            f"{name} must be finite numbers that are not all zero, of a length from 1e-15 to 1e15; make the vector"
            " again, at length 1",
            field="embedding",
        )


def unit_vector(vector: npt.ArrayLike) -> FloatArray:
    """The vector at length 1, summed in float64. The zero vector stays what it is."""
    wide = np.asarray(vector, dtype=np.float64)
    length = float(np.sqrt(np.square(wide).sum()))
    scaled: FloatArray = (wide / length if length else wide).astype(np.float32)
    return scaled


def average_windows(vectors: Sequence[npt.ArrayLike], weights: Sequence[int]) -> FloatArray:
    """The unit vector of the mean of a text's window vectors, weighted by their token counts."""
    if len(vectors) == 1:
        return unit_vector(vectors[0])
    stacked = np.asarray(vectors, dtype=np.float64)
    return unit_vector((stacked * np.asarray(weights, dtype=np.float64)[:, None]).sum(axis=0))


def halve_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces of the text, in order, each of which fits: cut in halves, at white space where some is near the middle.

    Nothing but blank pieces is left out. A single character that does not fit is returned as it is.
    """
    if len(text) <= 1 or fits(text):
        return [text] if text.strip() else []
    middle = _blank_near_middle(text)
    return halve_text(text[:middle], fits) + halve_text(text[middle:], fits)


def _blank_near_middle(text: str) -> int:
    """Where to cut: never at 0 or at the end; the exact middle when no white space lies in the middle half."""
    middle, reach = len(text) // 2, len(text) // 4
    for step in range(reach + 1):
        for position in (middle - step, middle + step):
            if 0 < position < len(text) and text[position].isspace():
                return position
    return middle
