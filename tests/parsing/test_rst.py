"""reStructuredText as Markdown: headings, directives, roles, literals, lists and the four kinds of tables."""

from __future__ import annotations

import pytest

from ragd.readers import ParseLimits, parse
from ragd.readers.assembly import read_document
from ragd.readers.types import Source


def render(text: str) -> str:
    return read_document(Source(text.encode(), "a.rst", "", ParseLimits())).text


def test_headings_take_their_level_from_the_order_of_their_adornments() -> None:
    text = (
        "=====\nTitle\n=====\n\nOne\n---\n\nDeep\n~~~~\n\nTwo\n---\ntext\n\nTitle with ``code``\n===================\n"
    )
    document = parse(text.encode(), "a.rst")
    assert document.text == "# Title\n\n## One\n\n### Deep\n\n## Two\n\ntext\n\n#### Title with `code`"
    assert document.title == "Title"
    assert document.media_type == "text/x-rst"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("See :ref:`the part <label>` and :doc:`other`.", "See the part and other."),
        ("Call :py:meth:`~pkg.Cls.go` or :func:`!run`.", "Call `go` or `run`."),
        ("`Python <https://python.org>`_ and `plain`_ and `title`", "Python and plain and title"),
        ("``a *b* |c|`` and ``*kept*``", "`a *b* |c|` and `*kept*`"),
        ("A note [1]_ and [#first]_, back\\ slash \\*", "A note [1] and [first], backslash *"),
        ("10\\ :sup:`3` l, 2025\\ :sup:`12`, H\\ :sub:`2`\\ O", "10³ l, 2025 12, H2O"),
        (".. |x| replace:: Some *words*\n\nUse |x| and |unknown|.", "Use Some *words* and |unknown|."),
        ("*emphasis* and **strong** stay", "*emphasis* and **strong** stay"),
    ],
)
def test_inline_markup_shows_its_words(written: str, shown: str) -> None:
    assert render(written) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (".. note:: Mind the gap.\n\n   More.", "Note: Mind the gap.\n\nMore."),
        (".. code-block:: python\n   :linenos:\n\n   x = ``1``", "```python\nx = ``1``\n```"),
        ("Such::\n\n    raw *text*\n\n    more\n\nend", "Such:\n\n```\nraw *text*\n\nmore\n```\n\nend"),
        (".. py:function:: go(x)\n\n   Does :meth:`it`.", "`go(x)`\n\nDoes `it`."),
        (".. versionadded:: 2.0\n   The thing.", "New in version 2.0\n\nThe thing."),
        (".. image:: x.png\n   :alt: A cat\n\ntext", "A cat\n\ntext"),
        (".. figure:: x.png\n   :alt: A cat\n\n   The caption.", "A cat\n\nThe caption."),
        (".. toctree::\n   :maxdepth: 2\n\n   a\n   b\n\ntext", "text"),
        (".. a comment\n   goes on\n\n.. _target:\n\ntext", "text"),
        (".. [1] A footnote\n   of two lines.", "[1] A footnote of two lines."),
        (".. unknown-thing:: with words\n\n   and a body", "with words\n\nand a body"),
        (":Author: Jane\n:Date: now", "Author: Jane\nDate: now"),
    ],
)
def test_directives_show_what_a_reader_sees(written: str, shown: str) -> None:
    assert render(written) == shown


def test_lists_keep_their_nesting() -> None:
    assert render("* one\n* two\n  goes on\n\n  1. inner\n  2. last\n\n#. numbered") == (
        "- one\n- two\n  goes on\n\n  1. inner\n  2. last\n\n1. numbered"
    )


TABLE = "| A | B |\n| --- | --- |\n| 1 | two words |\n| 2 | x more |"


@pytest.mark.parametrize(
    "written",
    [
        "==== =====\nA    B\n==== =====\n1    two words\n2    x\n     more\n==== =====",
        "+---+-----------+\n| A | B         |\n+===+===========+\n| 1 | two words |\n+---+-----------+\n"
        "| 2 | x         |\n|   | more      |\n+---+-----------+",
        ".. list-table::\n\n   * - A\n     - B\n   * - 1\n     - two words\n   * - 2\n     - x\n       more",
        '.. csv-table::\n   :header: "A", B\n\n   1, two words\n   2, "x more"',
    ],
)
def test_tables_of_all_four_kinds_are_tables(written: str) -> None:
    assert render(written) == TABLE
    assert render(f"{written}\n\nafter") == f"{TABLE}\n\nafter"


def test_a_table_with_spans_keeps_its_columns() -> None:
    drawn = "+---+---+\n| a     |\n+---+---+\n| b | c |\n|   +---+\n|   | d |\n+---+---+"
    assert render(f"+---+---+\n| x | y |\n{drawn}") == "| x | y |\n| --- | --- |\n| a | a |\n| b | c |\n| b | d |"


def test_a_table_that_does_not_close_is_kept_as_drawn() -> None:
    drawn = "+---+---+\n| a | b |\n+---+---+\n| c | d |"
    assert "| c | d |" in render(f"{drawn}\n\nafter") and render(f"{drawn}\n\nafter").endswith("after")


@pytest.mark.parametrize(
    "directive",
    [
        "include:: /etc/hostname",
        "literalinclude:: /etc/hostname",
        "csv-table::\n   :file: /etc/hostname",
        "raw:: html\n\n   <b>raw</b>",
        "raw:: html\n   :file: /etc/hostname",
    ],
)
def test_no_file_is_read_and_no_raw_output_passed_on(directive: str) -> None:
    with open("/etc/hostname") as file:
        name = file.read().strip()
    text = render(f"before\n\n.. {directive}\n\nafter")
    assert text.startswith("before") and text.endswith("after")
    assert name not in text and "<b>raw</b>" not in text


@pytest.mark.parametrize(
    "text",
    ["``a " * 100_000, "`a" * 100_000, "\n".join(" " * at + "* x" for at in range(500)), "=== ===\na b\n" * 10_000],
)
def test_hostile_markup_is_read_within_its_time(text: str) -> None:
    assert parse(text.encode(), "a.rst", limits=ParseLimits(timeout_s=20)).text
