"""The filter language, `page >= 3 and language = de`: one grammar, its errors and its completion, for every filter.

A surface gives its meaning as a `Compiler`: conditions on chunks and documents are the JSON of `ragd.conditions`
(`collections_app.documents.filters`), those on spans a query (`evaluation_app.telemetry.search.language`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, Generic, TypeVar

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from ragd.errors import InvalidInput

DEPTH_MAX = 40
OFFERED_MAX = 40
KEYWORDS = ("and", "or", "not", "in", "is", "contains", "starts", "with", "true", "false", "none", "null")
OFFERED_WORDS = ("and", "or", "not", "in", "none")
GRAMMAR = rf"""
    start: expression
    ?expression: conjunction | expression OR conjunction -> joined
    ?conjunction: negation | conjunction AND negation -> joined
    ?negation: NOT negation -> negated | LPAR expression RPAR -> grouped | comparison
    ?comparison: name operator value -> compared
        | name [NOT] IN (LPAR [values] RPAR | LSQB [values] RSQB) -> one_of
        | name STARTS [WITH] LPAR values RPAR -> begins_with_all
        | name IS [NOT] (NONE | NULL) -> missing
        | TEXT [NOT] IN name -> containing
    name: NAME | NAME LSQB TEXT RSQB
    operator: SIGN | CONTAINS | STARTS [WITH]
    values: value (COMMA value)*
    value: TEXT | DATE | NUMBER | TRUE | FALSE | NAME

    %declare {" ".join(KEYWORDS).upper()}
    TEXT: /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/s
    DATE.3: /[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:T[0-9:.]+(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?)?(?![\w.])/
    NUMBER.2: /-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])/
    NAME: /\w[\w.\-\/@:]*/
    SIGN: /==|!=|<>|>=|<=|[=<>]/
    LPAR: "("
    RPAR: ")"
    LSQB: "["
    RSQB: "]"
    COMMA: ","
    %ignore /\s+/
"""
OPS = {
    "=": "eq", "==": "eq", "!=": "ne", "<>": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte",
    "contains": "contains", "starts": "prefix",
}  # fmt: skip
SYMBOLS = {op: written for written, op in reversed(OPS.items())} | {
    "prefix": "starts with", "in": "in", "nin": "not in",
}  # fmt: skip
LABELS = {
    "NAME": "a name", "SIGN": "an operator (=, !=, >, >=, <, <=)", "TEXT": "a text in quotes", "NUMBER": "a number",
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "COMMA": "','",
    **{word.upper(): f"'{word}'" for word in sorted(KEYWORDS) if word != "null"}, "$END": "the end",
}  # fmt: skip
BEHIND_NAME = frozenset({"SIGN", "IN", "NOT", "IS", "STARTS", "CONTAINS", "LSQB"})
WHOLE_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
BEGUN = re.compile(r"['\"].*$|[<>=!]+$|[\w.@:/\-]*$", re.DOTALL)  # the word at the end, which may be incomplete
Result = TypeVar("Result")
Literal = str | int | float | bool
Named = tuple[str, int]  # a name and its position, from 1


class Compiler(Generic[Result]):
    """What the language means on one surface, made while a text is parsed. field: of the errors."""

    field: ClassVar[str]
    length_max: ClassVar[int]

    def __init__(self) -> None:
        self._parser = Lark(
            GRAMMAR, parser="lalr", lexer="basic", transformer=_Tree(self), lexer_callbacks={"NAME": _keyword},
            maybe_placeholders=True,
        )  # fmt: skip

    def compare(self, name: str, position: int, op: str, value: Any) -> Result:
        """One comparison. position: of the name, from 1. op: of SYMBOLS, or exists. value: a literal; a list of
        them for in and nin, and for a prefix of several parts; of exists, whether there is to be a value."""
        raise NotImplementedError

    def join(self, word: str, left: Result, right: Result) -> Result:
        """word: "and" or "or"."""
        raise NotImplementedError

    def negate(self, condition: Result) -> Result:
        raise NotImplementedError

    def read(self, text: str) -> Result:
        """Raises InvalidInput that says what was expected and at which character, counted from 1."""
        if len(text) > self.length_max:
            raise self.wrong(f"a filter has at most {self.length_max} characters, not {len(text)}")
        try:
            self._check_depth(text)
            result: Result = self._parser.parse(text)  # type: ignore[assignment]  # made of the tree
        except UnexpectedCharacters as error:
            at = error.pos_in_stream or 0
            raise self.wrong(
                f"{text[at : at + 12]!r} at position {at + 1} is no name, value or operator (texts need quotes)"
            ) from None
        except UnexpectedToken as error:
            expected = ", ".join(label for terminal, label in LABELS.items() if terminal in error.accepts)
            if error.token.type == "$END":
                missing = "a value" if "NUMBER" in error.accepts else expected
                raise self.wrong(
                    f"the filter ends too early, at position {len(text) + 1}: expected {missing}"
                ) from None
            position = (error.token.start_pos or 0) + 1
            raise self.wrong(f"expected {expected} at position {position}, but there is {str(error.token)!r}") from None
        return result

    def complete(
        self,
        text: str,
        fields: Callable[[str], Sequence[str]],
        operators: Callable[[str], Sequence[str]],
        values: Callable[[str, str], Sequence[str]],
    ) -> list[str]:
        """The expression with each word that may stand next, or that the last word may become; at most OFFERED_MAX.

        fields: for the word that was begun; operators: of the field before; values: of it, for the word that was begun.
        [] where the text is wrong already or too long.
        """
        begun = BEGUN.search(WHOLE_TEXT.sub(lambda whole: " " * len(whole[0]), text))
        before = text[: begun.start()] if begun else text
        word = text[len(before) :]
        if len(text) > self.length_max or "\x00" in text:
            return []
        try:
            tokens = list(self._parser.lex(before))
            parser = self._parser.parse_interactive(before)
            parser.exhaust_lexer()
            accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]  # lark has no type for it
        except (UnexpectedInput, InvalidInput):
            return []
        if "NUMBER" in accepted:
            words = values(_field_before(tokens), word.lstrip("'\""))
        elif "NAME" in accepted:
            words = fields(word)
        else:
            words = operators(_field_before(tokens)) if "SIGN" in accepted else ()
        keywords = [] if "SIGN" in accepted else [each for each in OFFERED_WORDS if each.upper() in accepted]
        fitting = [each for each in (*words, *keywords) if _begins(each, word) and each != word]
        return [f"{before}{each}" for each in dict.fromkeys(fitting)][:OFFERED_MAX]

    def wrong(self, message: str) -> InvalidInput:
        """The error of a filter that cannot be read, to be raised."""
        return InvalidInput(message, field=self.field)

    def _check_depth(self, text: str) -> None:
        """Raises InvalidInput where parentheses or negations nest deeper than the database should be asked."""
        depth = negations = 0
        for token in self._parser.lex(text):
            depth += (token.type == "LPAR") - (token.type == "RPAR")
            negations = negations + 1 if token.type == "NOT" else 0 if token.type != "LPAR" else negations
            if max(depth, negations) > DEPTH_MAX:
                raise self.wrong(f"a filter nests at most {DEPTH_MAX} deep")


@v_args(inline=True)
class _Tree(Transformer[Token, Any]):
    """Calls the compiler for each rule of GRAMMAR."""

    def __init__(self, compiler: Compiler[Any]) -> None:
        super().__init__()
        self.compiler = compiler

    def start(self, result: Any) -> Any:
        return result

    def grouped(self, _open: Token, result: Any, _close: Token) -> Any:
        return result

    def joined(self, left: Any, word: Token, right: Any) -> Any:
        return self.compiler.join(word.lower(), left, right)

    def negated(self, _not: Token, condition: Any) -> Any:
        return self.compiler.negate(condition)

    def compared(self, name: Named, op: str, value: Literal) -> Any:
        return self.compiler.compare(*name, op, value)

    def one_of(
        self, name: Named, negation: Token | None, _in: Token, _open: Token, values: list[Literal] | None, _end: Token
    ) -> Any:
        return self.compiler.compare(*name, "nin" if negation else "in", values or [])

    def begins_with_all(
        self, name: Named, _starts: Token, _with: Token | None, _open: Token, values: list[Literal], _end: Token
    ) -> Any:
        return self.compiler.compare(*name, "prefix", values)

    def missing(self, name: Named, _is: Token, negation: Token | None, _none: Token) -> Any:
        return self.compiler.compare(*name, "exists", negation is not None)

    def containing(self, text: Token, negation: Token | None, _in: Token, name: Named) -> Any:
        condition = self.compiler.compare(*name, "contains", unquote(text))
        return self.compiler.negate(condition) if negation else condition

    def name(self, first: Token, *rest: Token) -> Named:
        """With a text in brackets behind it, `name.text`."""
        return f"{first}.{unquote(rest[1])}" if rest else str(first), (first.start_pos or 0) + 1

    def operator(self, word: Token, _with: Token | None = None) -> str:
        return OPS[word.lower()]

    def values(self, *values: Literal) -> list[Literal]:
        return list(values[::2])  # every other one is a comma

    def value(self, token: Token) -> Literal:
        if token.type == "TEXT":
            return unquote(token)
        if token.type == "NUMBER":
            return float(token) if re.search(r"[.eE]", token) else int(token)
        return token.type == "TRUE" if token.type in ("TRUE", "FALSE") else str(token)


def _keyword(token: Token) -> Token:
    """A name that is a word of the language becomes its terminal."""
    return token.update(type=token.upper()) if token.lower() in KEYWORDS else token


def _field_before(tokens: Sequence[Token]) -> str:
    """The field whose operator or value comes at the end; with a text in brackets behind it, `field.text`."""
    named = ""
    for token, behind in zip_longest(tokens, tokens[1:]):
        if token.type == "NAME" and (behind is None or behind.type in BEHIND_NAME):
            named = str(token)
        elif token.type == "LSQB" and named and behind is not None and behind.type == "TEXT":
            named = f"{named}.{unquote(behind)}"
    return named


def _begins(each: str, word: str) -> bool:
    """A text in quotes fits a word without them; nothing else fits a quotation mark."""
    if word[:1] in ("'", '"') and not each.startswith("'"):
        return False
    return each.lstrip("'").casefold().startswith(word.lstrip("'\"").casefold())


def unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def quote(text: str) -> str:
    """What `unquote` reads as the text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
