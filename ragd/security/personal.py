"""Personal data: what names one person in a text by number or address. Its shapes are in personal.toml."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ragd.security.findings import Finding
from ragd.security.patterns import Words, needs_of, read_rule_file

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
