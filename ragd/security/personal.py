"""Personal data: what names one person in a text by number or address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ragd.security.findings import Finding

EMAIL = re.compile(
    r"(?<![\w.+/:@-])(?P<local>[A-Za-z0-9][\w.+-]{0,63})@(?P<domain>(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24})(?![\w@:/-])"
)
# Nobody's own: of examples, of machines, of a function rather than a person.
NO_DOMAIN = re.compile(
    r"(?:^|\.)(?:example|test|invalid|localhost|local|internal|lan|localdomain|svc|acme)(?:\.(?:com|org|net|edu|co))?$|"
    r"(?:^|\.)(?:domain|company|yourcompany|yourdomain|mycompany|email|server|host|foo|bar)\.(?:com|org|net|tld)$|"
    r"(?:^|\.)noreply\.|\.(?:png|jpe?g|gif|svg|webp|css|js|ts|py|md|json|html|service|socket|target|timer|mount)$",
    re.IGNORECASE,
)
NO_PERSON = re.compile(
    r"^(?:no-?reply|do-?not-?reply|info|support|help(?:desk)?|admin(?:istrator)?|sales|contact|office|hello|hi|team|security|abuse|"
    r"postmaster|webmaster|hostmaster|billing|press|media|jobs|careers?|hr|legal|privacy|dpo|service|mail|news(?:letter)?|root|git|user(?:name)?|"
    r"you|your[._-]?\w+|me|someone|somebody|name|first\.last|firstname\.lastname|john\.?doe|jane\.?doe|foo|bar|test\w*|alice|bob|example|"
    r"notifications?|alerts?|bounces?|list|dev|devs|developers?|ops|bot|build|ci|postgres|ubuntu|ec2-user|pi|vagrant|deploy|www-data)$",
    re.IGNORECASE,
)

PHONE = re.compile(
    r"(?<![\w.+/=#-])(?:\+|00)[1-9]\d{0,2}[\s./-]?(?:\(0?\d{1,4}\)[\s./-]?)?\d{1,4}(?:[\s./-]?\d{2,4}){2,4}(?![\w-]|\.\d)"
)
PHONE_SAID = re.compile(
    r"\b(?:phone|tel(?:ephone|efon)?|mobile|cell|call\s+(?:me|him|her|us)|fax|handy|reach\s+(?:me|him|her)|whatsapp|sms)\b[^\n\d+]{0,24}"
    r"(?P<value>\(?\+?\d[\d\s().-]{6,18}\d)(?!\w)",
    re.IGNORECASE,
)
NO_PHONE = re.compile(r"555[-\s.]?01\d\d|^\+?1?[-\s.(]*555|123[-\s.]?456|0{6}|^(?:19|20)\d\d[-./]\d\d[-./]\d\d")

SSN = re.compile(r"(?<![\w-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
NO_SSN = frozenset({"078-05-1120", "219-09-9999", "123-45-6789", "111-11-1111"})
CARD = re.compile(r"(?<![\w.+-])(?:\d[ -]?){12,18}\d(?![\w-]|\.\d)")
CARD_FIRST = re.compile(
    r"^(?:4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}|6(?:011|5\d\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11})$"
)
# Numbers that card networks and payment services publish for tests.
TEST_CARDS = frozenset({
    "4111111111111111", "4242424242424242", "4000056655665556", "5555555555554444", "5105105105105100",
    "378282246310005",
    "371449635398431", "6011111111111117", "6011000990139424", "3056930009020004", "30569309025904", "38520000023237",
    "3530111333300000", "4012888888881881", "4222222222222", "4000000000000002", "2223003122003222", "5200828282828210",
})  # fmt: skip
IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?\b")
TEST_IBANS = frozenset(
    {"DE89370400440532013000", "GB29NWBK60161331926819", "GB82WEST12345698765432", "FR1420041010050500013M02606"}
)
# Unspaced it is also how medicines and parts are numbered: then it must be named.
UK_INSURANCE = re.compile(
    r"\b(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]\s\d{2}\s\d{2}\s\d{2}\s[A-D]\b|"
    r"(?:(?i:national\s+insurance|NI)\s+(?i:number|no\.?)\s*(?i:is|:)?\s*)[A-CEGHJ-PR-TW-Z]{2}\d{6}[A-D]\b"
)
BORN = re.compile(
    r"\b(?:born(?:\s+on)?|date\s+of\s+birth|d\.?o\.?b\.?|birth\s?date|geboren(?:\s+am)?|geburtsdatum|né(?:e)?\s+le)\b\s*[:=]?\s*"
    r"(?P<value>\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d|(?:19|20)\d\d-\d\d-\d\d|(?:\d{1,2}\.?\s+)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w*\.?\s+(?:\d{1,2},?\s+)?(?:19|20)\d\d)",
    re.IGNORECASE,
)
NUMBERED = re.compile(
    r"\b(?:passport|reisepass|driver'?s?\s+licen[cs]e|national\s+id(?:entity)?|personalausweis|social\s+security|tax\s+id|steuer-?id|patient|insurance)\s*"
    r"(?:no\.?|number|nr\.?|nummer|#|id)?\s*(?:is|:|=|#)\s*(?P<value>[A-Z]{0,3}\d[A-Z0-9 -]{5,14}\d[A-Z]?)\b",
    re.IGNORECASE,
)


def find_personal(text: str) -> Iterator[Finding]:
    """Addresses of mail, phone numbers, and numbers of persons that pass their own check digits."""
    for match in EMAIL.finditer(text):
        if not NO_DOMAIN.search(match["domain"]) and not NO_PERSON.match(match["local"]):
            yield _found("email", match.start(), match.end(), 0.8)
    yield from _numbers(text, "phone", PHONE, is_phone, 0.7)
    for match in PHONE_SAID.finditer(text):
        if is_phone(match["value"]):
            yield _found("phone", match.start("value"), match.end("value"), 0.75)
    yield from _numbers(text, "us_social_security", SSN, lambda number: number not in NO_SSN, 0.85)
    yield from _numbers(text, "payment_card", CARD, is_card, 0.95)
    yield from _numbers(text, "iban", IBAN, is_iban, 0.95)
    yield from _numbers(
        text, "uk_national_insurance", UK_INSURANCE, lambda number: "123456" not in number.replace(" ", ""), 0.8
    )
    for rule, pattern, confidence in (("birth_date", BORN, 0.75), ("identity_number", NUMBERED, 0.8)):
        for match in pattern.finditer(text):
            yield _found(rule, match.start("value"), match.end("value"), confidence)


def is_phone(number: str) -> bool:
    """8 to 15 digits (E.164), not of the ranges kept for films, not a date."""
    digits = re.sub(r"\D", "", number)
    return 8 <= len(digits) <= 15 and not NO_PHONE.search(number.strip()) and len(set(digits)) > 2


def is_card(number: str) -> bool:
    """A number of a card network that passes the Luhn check and is not one of those published for tests."""
    digits = re.sub(r"\D", "", number)
    return bool(CARD_FIRST.match(digits)) and digits not in TEST_CARDS and passes_luhn(digits)


def passes_luhn(digits: str) -> bool:
    """ISO/IEC 7812: every second digit from the right doubled, the sum of all digits divisible by 10."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_iban(number: str) -> bool:
    """ISO 13616: moved round and read as a number, it leaves 1 when divided by 97."""
    compact = number.replace(" ", "")
    if not 15 <= len(compact) <= 34 or compact in TEST_IBANS:
        return False
    return int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1


def _numbers(
    text: str, rule: str, pattern: re.Pattern[str], is_real: Callable[[str], bool], confidence: float
) -> Iterator[Finding]:
    for match in pattern.finditer(text):
        if is_real(match[0]):
            yield _found(rule, match.start(), match.end(), confidence)


def _found(rule: str, start: int, end: int, confidence: float) -> Finding:
    return Finding("personal_data", rule, start, end, confidence)
