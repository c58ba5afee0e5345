"""Answers that quote: each quotation a slice of a source, followed by its marker."""

from __future__ import annotations

from ragd.types import Candidate
from retrieval_app.citations.citations import AnswerSentence, CheckedAnswer, Citation, place_in_document
from retrieval_app.citations.places import place_of


class QuotedAnswer:
    """An answer that is being written, with its citations and sentences."""

    def __init__(self, headline: str = "") -> None:
        """headline: a sentence of its own at the beginning, that cites nothing."""
        self.answer = headline
        self.citations: list[Citation] = []
        self.sentences = [AnswerSentence(headline, 0, len(headline), ())] if headline else []

    def add(
        self,
        before: str,
        shown: str,
        source: Candidate,
        marker: int,
        start: int,
        end: int,
        column_names: tuple[str, ...] | None = None,
    ) -> None:
        """`before`, then what is shown of source.content[start:end], then the marker. supported only where it is shown
        as it stands there. column_names: see `Citation`."""
        begin = len(self.answer) + len(before)
        self.answer += f"{before}{shown} [{marker}]"
        quote, place = source.content[start:end], place_of(source, start, end)
        start_char, end_char = place_in_document(source, start, end)
        self.citations.append(
            Citation(
                marker=marker,
                doc_id=source.doc_id,
                chunk_index=source.chunk_index,
                start=start_char,
                end=end_char,
                quote=quote,
                match="quote",
                sentence=len(self.sentences),
                answer_start=len(self.answer) - len(f"[{marker}]"),
                answer_end=len(self.answer),
                page=place.page,
                place=place.label,
                cells=place.cells,
                column_names=column_names,
            )
        )
        exact, text = shown == quote, self.answer[begin:]
        self.sentences.append(
            AnswerSentence(text, begin, len(self.answer), (marker,), exact or None, 1.0 if exact else None)
        )

    def checked(self) -> CheckedAnswer:
        return CheckedAnswer(self.answer, tuple(self.citations), 0, tuple(self.sentences))
