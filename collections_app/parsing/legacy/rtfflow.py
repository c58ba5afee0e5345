"""The paragraphs and tables of an RTF document or of a note in it, as they are built."""

from __future__ import annotations

from dataclasses import dataclass, field

from collections_app.parsing.text.markup import cell, heading, list_item, table


@dataclass(slots=True)
class Flow:
    """The body or a note: finished blocks, the paragraph in work, the table in work."""

    blocks: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    marker: str = ""

    def end_paragraph(self, level: int, list_level: int) -> None:
        """Finish the paragraph as a heading (level 1 and up), a list item where it has a marker, or text."""
        text = "".join(self.pieces).strip("\n").rstrip()
        marker, self.marker = self.marker, ""
        self.pieces.clear()
        if not text.strip():
            return
        self.end_table()
        if level:
            self.blocks.append(heading(f"{marker} {text}" if marker not in ("", "-") else text, level))
        elif marker:
            self.blocks.append(list_item(text.strip(), list_level, marker))
        else:
            self.blocks.append(text)

    def end_table(self) -> None:
        if self.cells:
            self.rows.append(self.cells.copy())
            self.cells.clear()
        if self.rows:
            self.blocks.append(table([[cell(value).replace("\\|", "|") for value in row] for row in self.rows]))
            self.rows.clear()
