"""scan(): all rules over one text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b, sha256
from importlib.resources import files

from ragd.security.findings import Finding
from ragd.security.instructions import find_instructions
from ragd.security.patterns import Words, needs_of, read_rule_file
from ragd.security.secrets import find_secrets

RULES = read_rule_file("personal.toml")
PATTERNS, WORDS = RULES.patterns, RULES.words
PHONE_NEEDS, NUMBERED_NEEDS, BORN_NEEDS = (needs_of(WORDS[name]) for name in ("phone", "numbered", "born"))
NUMBER_DIGITS = 4
SPANISH_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"


def find_personal(text: str) -> Iterator[Finding]:
    """Numbers and addresses that look like a person's: not an example's, a test's, a machine's or an office's."""
    lowered = text.lower()
    if "@" in text:
        for match in PATTERNS["email"].finditer(text):
            if not PATTERNS["no_domain"].search(match["domain"]) and not PATTERNS["no_person"].match(match["local"]):
                yield _finding("email", match.start(), match.end(), 0.8)
    if PATTERNS["digit"].search(text):
        yield from _find_numbers(text, Words(text))
    if any(word in lowered for word in WORDS["address"]):
        yield from _values(text, "postal_address", PATTERNS["home"], 0.7)
    if any(word in lowered for word in WORDS["illness"]):
        yield from _values(text, "health", PATTERNS["ill"], 0.7)


def _find_numbers(text: str, words: Words) -> Iterator[Finding]:
    if PATTERNS["row"].search(text):
        yield from _find_rows(text, words)
    if PATTERNS["lettered"].search(text):
        yield from _numbers(text, "iban", PATTERNS["iban"], is_iban, 0.95)
        yield from _numbers(text, "uk_national_insurance", PATTERNS["uk_insurance"], is_uk, 0.8)
        yield from _numbers(text, "spanish_identity", PATTERNS["spanish"], is_spanish, 0.8)
        yield from _numbers(text, "italian_tax_code", PATTERNS["italian"], lambda _: True, 0.85)
    if words.meet(BORN_NEEDS):
        yield from _values(text, "birth_date", PATTERNS["born"], 0.75)
    if words.meet(NUMBERED_NEEDS):
        for match in PATTERNS["numbered"].finditer(text):
            if sum(map(str.isdigit, match["value"])) >= NUMBER_DIGITS and not PATTERNS["no_number"].search(
                match["value"]
            ):
                yield _finding("identity_number", match.start("value"), match.end("value"), 0.75)


def _find_rows(text: str, words: Words) -> Iterator[Finding]:
    """Numbers of many digits."""
    yield from _numbers(text, "phone", PATTERNS["phone"], is_phone, 0.7)
    yield from _numbers(text, "phone", PATTERNS["phone_us"], is_phone, 0.65)
    if words.meet(PHONE_NEEDS):
        for match in PATTERNS["phone_said"].finditer(text):
            if is_phone(match["value"]):
                yield _finding("phone", match.start("value"), match.end("value"), 0.75)
    yield from _numbers(text, "us_social_security", PATTERNS["ssn"], is_ssn, 0.85)
    yield from _numbers(text, "payment_card", PATTERNS["card"], is_card, 0.95)
    yield from _numbers(text, "brazilian_cpf", PATTERNS["cpf"], is_cpf, 0.9)
    yield from _numbers(text, "french_insurance", PATTERNS["french"], is_french, 0.85)


def _values(text: str, rule: str, pattern: re.Pattern[str], confidence: float) -> Iterator[Finding]:
    for match in pattern.finditer(text):
        yield _finding(rule, match.start("value"), match.end("value"), confidence)


def is_uk(number: str) -> bool:
    """No row of an example."""
    return "123456" not in number.replace(" ", "")


def is_ssn(number: str) -> bool:
    """None of those that are published as examples."""
    return number not in WORDS["test_ssn"]


def is_cpf(number: str) -> bool:
    """Both check digits of a Brazilian CPF; rows of one digit are none."""
    digits = [int(sign) for sign in number if sign.isdigit()]
    if len(set(digits)) == 1:
        return False
    for length in (9, 10):
        rest = sum(digit * (length + 1 - index) for index, digit in enumerate(digits[:length])) * 10 % 11 % 10
        if rest != digits[length]:
            return False
    return True


def is_spanish(number: str) -> bool:
    """The letter of a Spanish DNI or NIE, which its number modulo 23 gives."""
    compact = number.replace("-", "")
    digits = compact[:-1].translate(str.maketrans("XYZ", "012"))
    return len(digits) == 8 and "12345678" not in digits and SPANISH_LETTERS[int(digits) % 23] == compact[-1]


def is_french(number: str) -> bool:
    """The two last digits of a French NIR: 97 less the rest of the others modulo 97."""
    digits = number.replace(" ", "")
    return 97 - int(digits[:13]) % 97 == int(digits[13:])


def is_phone(number: str) -> bool:
    """8 to 15 digits (E.164), not of the ranges kept for films, not a date."""
    digits = re.sub(r"\D", "", number)
    return 8 <= len(digits) <= 15 and not PATTERNS["no_phone"].search(number.strip()) and len(set(digits)) > 2


def is_card(number: str) -> bool:
    """A number of a card network that passes the Luhn check and is not one of those published for tests."""
    digits = re.sub(r"\D", "", number)
    return bool(PATTERNS["card_first"].match(digits)) and digits not in WORDS["test_cards"] and passes_luhn(digits)


def passes_luhn(digits: str) -> bool:
    """ISO/IEC 7812: every second digit from the right doubled, the sum of all digits divisible by 10."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if index % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_iban(number: str) -> bool:
    """ISO 13616: moved round and read as a number, it leaves 1 when divided by 97."""
    compact = number.replace(" ", "")
    if not 15 <= len(compact) <= 34 or compact in WORDS["test_ibans"]:
        return False
    return int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1


def _numbers(
    text: str, rule: str, pattern: re.Pattern[str], is_real: Callable[[str], bool], confidence: float
) -> Iterator[Finding]:
    for match in pattern.finditer(text):
        if is_real(match[0]):
            yield _finding(rule, match.start(), match.end(), confidence)


def _finding(rule: str, start: int, end: int, confidence: float) -> Finding:
    return Finding("personal_data", rule, start, end, confidence)


CHARS_MAX = 100_000
REMEMBERED_MAX = 20_000
QUERY = "query"  # said to the assistant itself: there "your instructions" are its own
FILES = ("instructions.toml", "secrets.toml", "personal.toml", "instructions.py", "secrets.py")
SOURCES = (*FILES, "scanner.py", "patterns.py")
# Changes with the rules, so that what an older set of them found can be told.
RULES_VERSION = sha256(b"".join(files("ragd.security").joinpath(name).read_bytes() for name in SOURCES)).hexdigest()

# What was found in a text, by the text's hash: passages come again and again, and their texts need not be kept.
_remembered: dict[bytes, tuple[Finding, ...]] = {}


def scan(text: str, location: str | None = None) -> list[Finding]:
    """What the rules find in the first 100,000 characters, by place, the surer one first where two begin together.

    place: "query" for what is said to the assistant itself, which tries more rules.

    Of findings of one family that overlap, the first stays. The same text gives the same findings. [] for "".
    """
    head = text[:CHARS_MAX]
    result = [*find_instructions(head, location), *find_secrets(head), *find_personal(head)]
    told_already = (_is_destination, _is_persona, _is_object, _is_carrier)
    result = [item for item in result if not any(is_part(item, result) for is_part in told_already)]
    result.sort(key=lambda item: (item.start, -item.confidence, -item.end, item.family, item.rule))
    findings: list[Finding] = []
    reached: dict[str, int] = {}
    for finding in result:
        if finding.start >= reached.get(finding.family, 0):
            findings.append(finding)
            reached[finding.family] = finding.end
    return findings


def _is_persona(finding: Finding, findings: list[Finding]) -> bool:
    """Whether it is the role that a jailbreak gives the model: one act, of the graver family."""
    return finding.rule == "role" and any(other.family == "jailbreak" for other in findings)


def _is_object(finding: Finding, findings: list[Finding]) -> bool:
    """Whether "your instructions" are what an order would have dropped, not asked for."""
    return (
        finding.family == "system_prompt_request"
        and finding.rule in ("asked", "other_language")
        and any(
            other.family == "prompt_injection"
            and other.rule in ("override", "revoked", "asked", "other_language")
            and other.start < finding.end
            and finding.start < other.end
            for other in findings
        )
    )


def _is_carrier(finding: Finding, findings: list[Finding]) -> bool:
    """Whether what every answer shall hold is the link that carries data out."""
    return finding.rule == "dictated_answer" and any(
        other.family == "data_exfiltration" and other.start <= finding.end and finding.start <= other.end
        for other in findings
    )


def _is_destination(finding: Finding, findings: list[Finding]) -> bool:
    """Whether it is the address that an order would have data sent to, which is no person's data."""
    return finding.rule == "email" and any(
        other.family == "data_exfiltration" and other.start <= finding.start and finding.end <= other.end
        for other in findings
    )


def scan_once(text: str, location: str | None = None) -> tuple[Finding, ...]:
    """`scan`, remembered by this process for the latest 20,000 texts."""
    message = location == QUERY
    key = blake2b(text.encode("utf-8", "replace"), digest_size=16, person=b"query" if message else b"").digest()
    value = _remembered.get(key)
    if value is None:
        value = tuple(scan(text, location))
        if len(_remembered) >= REMEMBERED_MAX:
            for old in list(_remembered)[: REMEMBERED_MAX // 10]:
                _remembered.pop(old, None)
        _remembered[key] = value
    return value
