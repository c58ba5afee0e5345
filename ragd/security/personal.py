"""Personal data: what names one person in a text by number or address."""

# ruff: noqa: E501  (patterns are read whole)

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ragd.security.findings import Finding
from ragd.security.prefilter import Words, needs_of

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
    r"archive|drop|inbox|data|collect\w*|reports?|backup|logs?|results?|upload|submit|audit|exfil\w*|orders?|booking|shop|store|customer\w*|feedback|"
    r"postmaster|webmaster|hostmaster|billing|press|media|jobs|careers?|hr|legal|privacy|dpo|service|mail|news(?:letter)?|root|git|user(?:name)?|"
    r"you|your[._-]?\w+|me|someone|somebody|name|first\.last|firstname\.lastname|john\.?doe|jane\.?doe|foo|bar|test\w*|alice|bob|example|"
    r"notifications?|alerts?|bounces?|list|dev|devs|developers?|ops|bot|build|ci|postgres|ubuntu|ec2-user|pi|vagrant|deploy|www-data)$",
    re.IGNORECASE,
)

PHONE = re.compile(
    r"(?<![\w.+/=#-])(?:\+|00)[1-9]\d{0,2}[\s./-]?(?:\(0?\d{1,4}\)[\s./-]?)?\d{1,4}(?:[\s./-]?\d{2,4}){2,4}(?![\w-]|\.\d)"
)
PHONE_US = re.compile(r"(?<![\w.+/=#-])(?:\(\d{3}\)\s?|\d{3}[-.])\d{3}[-.]\d{4}(?![\w-]|\.\d)")
PHONE_SAID = re.compile(
    r"\b(?:phone|tel(?:ephone|efon|éfono|efono)?|téléphone|mobile|cell|call(?:\s+(?:me|him|her|us))?|ring|dial|fax|handy(?:nummer)?|rufnummer|móvil|portable|"
    r"reach(?:able|\s+(?:me|him|her))?|whatsapp|sms|text(?:\s+(?:me|him|her))?)\b[^\n\d+(]{0,24}(?P<value>[(+]?\d[\d\s().-]{6,18}\d)(?!\w)",
    re.IGNORECASE,
)
NO_PHONE = re.compile(r"555[-\s.]?01\d\d|^\+?1?[-\s.(]*555|123[-\s.]?456|0{6}|^(?:19|20)\d\d[-./]\d\d[-./]\d\d")

PHONE_NEEDS = needs_of((
    "phone", "tel", "mobile", "cell", "call", "ring", "dial", "fax", "handy", "rufnummer", "móvil", "portable", "reach", "whatsapp", "sms",
    "text",
))  # fmt: skip
DIGIT = re.compile(r"\d")
ROW = re.compile(r"\d[\d .()/-]{6,}\d")
LETTERED = re.compile(r"[A-Z]{2}\s?\d\d|\d{7}-?[A-Z]")
NUMBER_DIGITS = 4
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
# A number that is said to be one person's. What follows has at least four digits and is no row of an example.
NUMBERED = re.compile(
    r"\b(?:passport|reisepass(?:nummer)?|driv(?:er|ing)(?:[’']?s)?\s+licen[cs]e|führerschein|national\s+id(?:entity)?(?:\s+card)?|personalausweis|id\s+card|"
    r"social\s+(?:security|insurance)|sécurité\s+sociale|sozialversicherung\w*|versichertennummer|tax\s+(?:id|file)|steuer-?id(?:nr)?|steuernummer|tin|"
    r"codice\s+fiscale|aadhaar|pan\s+card|bsn|personnummer|cpr|cpf|dni|nie|nif|pesel|curp|ni\s+number|national\s+insurance|nhs|medicare|medicaid|"
    r"(?:medical|patient|health)\s+(?:record|file|id|insurance)|mrn|health\s+card|policy|insurance|(?:bank\s+)?account|sort\s+code|routing|"
    r"licen[cs]e\s+plate|number\s+plate|registration\s+plate|kennzeichen|employee\s+id|personnel|voter\s+id|visa|green\s+card|vehicle\s+identification)\s*"
    r"(?:card\s+|record\s+|member\s+)?(?:(?:no\b\.?|numbers?|nr\.?|nummer|num\.?|#|id|code)\s*)*(?:\([^)\n]{0,20}\)\s*)?(?:is|ist|est|:|=|#)?\s*"
    r"(?P<value>[A-Z0-9]{1,20}(?:[ ./-]?[A-Z0-9]*\d[A-Z0-9]*){1,8})\b",
    re.IGNORECASE,
)
NUMBERED_NEEDS = needs_of((
    "passport", "pass", "licen", "ausweis", "card", "social", "sociale", "steuer", "tax", "codice", "aadhaar", "bsn", "personnummer",
    "cpr", "cpf", "dni", "nie", "nif", "pesel", "curp", "ni number", "national", "nhs", "medic", "patient", "health", "mrn", "insurance",
    "policy", "account", "sort code", "routing", "plate", "kennzeichen", "employee id", "personnel", "voter", "versicher", "id card", "führerschein", "sozialversicherung", "registration", "vehicle", "green card", "visa", "tin ",
    "bank", "driv", "reisepass", "personalausweis", "personal", "sécurité",
))  # fmt: skip
BORN_NEEDS = needs_of(("born", "birth", "date of birth", "dob", "d.o.b", "geb", "né", "née"))
NO_NUMBER = re.compile(r"0{4,}|1234|x{3,}|^(?:19|20)\d\d(?:[-/.]\d\d?){0,2}$", re.IGNORECASE)
CPF = re.compile(r"(?<![\d.])\d{3}\.\d{3}\.\d{3}-\d{2}(?!\d)")
SPANISH = re.compile(r"(?<![\w-])[XYZ]?\d{7,8}-?[A-HJ-NP-TV-Z](?![\w-])")
SPANISH_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
ITALIAN = re.compile(r"(?<!\w)[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z](?!\w)")
FRENCH = re.compile(r"(?<!\d)[12]\s?\d{2}\s?(?:0[1-9]|1[0-2])\s?\d{2}\s?\d{3}\s?\d{3}\s?\d{2}(?!\d)")
HOME = re.compile(
    r"\b(?P<cue>liv(?:es|ing|ed)\s+(?:at|in)|resid(?:es|ing|ed)\s+(?:at|in)|home\s+address|(?:his|her|my|their|your|private|residential|postal|mailing|billing|"
    r"shipping|delivery|customer'?s?|patient'?s?|employee'?s?)\s+(?:home\s+|private\s+)?address|address\s+of\s+(?:mr|mrs|ms|dr)\b|wohnhaft|wohnt|adresse|"
    r"(?:deliver|ship|send)\s+(?:it\s+)?to\s+(?:mr|mrs|ms|dr)\b|(?:mr|mrs|ms|dr|herr|frau)\.?\s+[A-Z]\w+)\b[^\n]{0,60}?"
    r"(?P<value>\d{1,5}[a-z]?,?\s+(?:[A-Z][\w'’.-]+\s+){1,4}(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|Court|Ct|Way|Place|Pl|Terrace|Close|"
    r"Crescent|Square|Parkway|Gardens|Row|Hill|Mews)\b\.?(?:,?\s+(?:Apt|Apartment|Flat|Unit|Suite)\.?\s*\w+)?(?:,\s*[A-Z][\w' -]{2,30}){0,3}(?:\s+[A-Z0-9]{2,4}\s?[A-Z0-9]{3,5})?|"
    r"[A-ZÄÖÜ][\wäöüß.-]+(?:straße|strasse|str\.|weg|platz|allee|gasse|ring|ufer)\s+\d{1,4}\s?[a-z]?(?:,?\s*\d{5}\s+[A-ZÄÖÜ][\wäöüß-]+)?|"
    r"\d{1,4},?\s+(?:rue|avenue|boulevard|place|calle|via|viale|piazza)\s+[\w'’. -]{3,40}(?:,?\s*\d{5}\s+[A-Z]\w+)?)",
)
ILL = re.compile(
    r"\b(?:[Pp]atient(?:in)?|[Mm]r\.?|[Mm]rs\.?|[Mm]s\.?|[Hh]err|[Ff]rau)\s+(?P<value>[A-Z][a-zà-ÿ]+(?:\s+[A-Z][a-zà-ÿ'’-]+){0,2})\b(?=[^\n]{0,120}\b(?:diagnosed|diagnosis|suffers?\s+from|"
    r"was\s+(?:treated|admitted|prescribed|hospitali[sz]ed)|tested\s+positive|is\s+(?:HIV|pregnant)|HIV-positive|undergo\w*|Diagnose|leidet\s+an))"
)


def find_personal(text: str) -> Iterator[Finding]:
    """Numbers and addresses that look like a person's: not an example's, a test's, a machine's or an office's."""
    lowered = text.lower()
    if "@" in text:
        for match in EMAIL.finditer(text):
            if not NO_DOMAIN.search(match["domain"]) and not NO_PERSON.match(match["local"]):
                yield _found("email", match.start(), match.end(), 0.8)
    if DIGIT.search(text):
        yield from _find_numbers(text, Words(text))
    if any(
        word in lowered
        for word in ("address", "adresse", "liv", "resid", "wohn", "mr", "ms", "herr", "frau", "deliver", "ship")
    ):
        yield from _values(text, "postal_address", HOME, 0.7)
    if any(
        word in lowered
        for word in ("diagnos", "suffer", "treated", "admitted", "prescribed", "positive", "hiv", "leidet", "hospitali")
    ):
        yield from _values(text, "health", ILL, 0.7)


def _find_numbers(text: str, words: Words) -> Iterator[Finding]:
    if ROW.search(text):
        yield from _find_rows(text, words)
    if LETTERED.search(text):
        yield from _numbers(text, "iban", IBAN, is_iban, 0.95)
        yield from _numbers(
            text, "uk_national_insurance", UK_INSURANCE, lambda number: "123456" not in number.replace(" ", ""), 0.8
        )
        yield from _numbers(text, "spanish_identity", SPANISH, is_spanish, 0.8)
        yield from _numbers(text, "italian_tax_code", ITALIAN, lambda _: True, 0.85)
    if words.meet(BORN_NEEDS):
        yield from _values(text, "birth_date", BORN, 0.75)
    if words.meet(NUMBERED_NEEDS):
        for match in NUMBERED.finditer(text):
            if sum(map(str.isdigit, match["value"])) >= NUMBER_DIGITS and not NO_NUMBER.search(match["value"]):
                yield _found("identity_number", match.start("value"), match.end("value"), 0.75)


def _find_rows(text: str, words: Words) -> Iterator[Finding]:
    """Numbers of many digits."""
    yield from _numbers(text, "phone", PHONE, is_phone, 0.7)
    yield from _numbers(text, "phone", PHONE_US, is_phone, 0.65)
    if words.meet(PHONE_NEEDS):
        for match in PHONE_SAID.finditer(text):
            if is_phone(match["value"]):
                yield _found("phone", match.start("value"), match.end("value"), 0.75)
    yield from _numbers(text, "us_social_security", SSN, lambda number: number not in NO_SSN, 0.85)
    yield from _numbers(text, "payment_card", CARD, is_card, 0.95)
    yield from _numbers(text, "brazilian_cpf", CPF, is_cpf, 0.9)
    yield from _numbers(text, "french_insurance", FRENCH, is_french, 0.85)


def _values(text: str, rule: str, pattern: re.Pattern[str], confidence: float) -> Iterator[Finding]:
    for match in pattern.finditer(text):
        yield _found(rule, match.start("value"), match.end("value"), confidence)


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
    return 8 <= len(digits) <= 15 and not NO_PHONE.search(number.strip()) and len(set(digits)) > 2


def is_card(number: str) -> bool:
    """A number of a card network that passes the Luhn check and is not one of those published for tests."""
    digits = re.sub(r"\D", "", number)
    return bool(CARD_FIRST.match(digits)) and digits not in TEST_CARDS and passes_luhn(digits)


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
