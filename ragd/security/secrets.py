"""Keys, tokens and passwords that stand in a text."""

# ruff: noqa: E501  (patterns are read whole)

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from ragd.security.findings import Finding

# (rule, confidence, what each match holds, pattern): the published shapes of tokens.
TOKENS: tuple[tuple[str, float, tuple[str, ...], str], ...] = (
    ("aws_access_key", 0.95, ("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("github_token", 0.98, ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
     r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255})\b"),
    ("gitlab_token", 0.95, ("gl",), r"\bgl(?:pat|rt|dt|ptt|cbt|agent|soat|ft|imt)-[A-Za-z0-9_-]{20,}"),
    ("slack_token", 0.95, ("xox", "xapp-"), r"\b(?:xox[abceoprs]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{20,})"),
    ("slack_webhook", 0.95, ("hooks.slack.com",), r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20,}"),
    ("discord_webhook", 0.95, ("/api/webhooks/",), r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d{10,}/[\w-]{20,}"),
    ("stripe_key", 0.95, ("k_live_", "whsec_"), r"\b(?:[rs]k_live_|whsec_)[A-Za-z0-9]{16,}\b"),
    ("google_key", 0.95, ("AIza",), r"\bAIza[0-9A-Za-z_-]{34,36}(?![0-9A-Za-z_-])"),
    ("google_oauth", 0.95, ("GOCSPX-", "ya29."), r"\b(?:GOCSPX-[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{30,})"),
    ("openai_key", 0.95, ("sk-",), r"\bsk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{32,}"),
    ("anthropic_key", 0.98, ("sk-ant-",), r"\bsk-ant-[A-Za-z0-9_-]{24,}"),
    ("huggingface_token", 0.95, ("hf_",), r"\bhf_[A-Za-z0-9]{30,}\b"),
    ("model_key", 0.95, ("gsk_", "xai-", "pplx-", "r8_", "nvapi-"),
     r"\b(?:gsk_|xai-|pplx-|r8_|nvapi-)[A-Za-z0-9_-]{32,}"),
    ("npm_token", 0.95, ("npm_",), r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("pypi_token", 0.98, ("pypi-AgEI",), r"\bpypi-AgEI[A-Za-z0-9_-]{40,}"),
    ("sendgrid_key", 0.98, ("SG.",), r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}"),
    ("mail_key", 0.9, ("key-", "xkeysib-", "-us"),
     r"\b(?:key-[0-9a-f]{32}|xkeysib-[0-9a-f]{40,}-\w+|[0-9a-f]{32}-us\d{1,2})\b"),
    ("twilio_key", 0.9, ("SK",), r"\bSK[0-9a-f]{32}\b"),
    ("telegram_token", 0.95, (":AA",), r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),
    ("digitalocean_token", 0.98, ("do",), r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    ("shopify_token", 0.98, ("shp",), r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b"),
    ("databricks_token", 0.9, ("dapi",), r"\bdapi[a-f0-9]{32}(?:-\d)?\b"),
    ("vault_token", 0.95, ("hvs.", "hvb.", "hvr."), r"\bhv[sbr]\.[A-Za-z0-9_-]{24,}"),
    ("atlassian_token", 0.95, ("ATATT", "ATCTT"), r"\bAT[AC]TT3[A-Za-z0-9_=-]{60,}"),
    ("service_token", 0.95,
     ("lin_api_", "secret_", "ntn_", "PMAK-", "dp.", "glsa_", "glc_", "NRAK-", "sntry", "figd_", "dckr_pat_", "rubygems_", "EAA",
      "pat", "sq0", "AGE-SECRET", "fo1_", "FlyV1", "cfut_", "vercel_", "sbp_", "rnd_", "tskey-", "ops_", "pscale_"),
     r"\b(?:lin_api_[A-Za-z0-9]{32,}|(?:secret|ntn)_[A-Za-z0-9]{43,}|PMAK-[a-f0-9]{24}-[a-f0-9]{34}|"
     r"dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9]{40,}|gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}|NRAK-[A-Z0-9]{27}|sntry[su]_[A-Za-z0-9+/=_]{40,}|"
     r"figd_[A-Za-z0-9_-]{38,}|dckr_pat_[A-Za-z0-9_-]{24,}|rubygems_[a-f0-9]{48}|EAA[A-Za-z0-9]{80,}|"
     r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}|AGE-SECRET-KEY-1[A-Z0-9]{58}|"
     r"sbp_[a-f0-9]{40}|tskey-[a-z]+-[A-Za-z0-9-]{20,}|pscale_(?:tkn|pw)_[A-Za-z0-9_.-]{32,})"),
    ("storage_key", 0.95, ("AccountKey=", "SharedAccessKey="), r"\b(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{40,90}={0,2}"),
    ("signed_address", 0.85, ("sig=",), r"[?&]sig=[A-Za-z0-9%+/_-]{32,}(?:=|%3D)?"),
    ("ragd_key", 0.98, ("ragd_",), r"\bragd_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    ("json_web_token", 0.85, ("eyJ",), r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}"),
    ("private_key", 0.98, ("PRIVATE KEY",),
     r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n)+(?:[A-Za-z-]+:[^\n]*\n)*\s*[A-Za-z0-9+/=\s\\]{48,}"),
    ("private_key", 0.9, ("PuTTY-User-Key-File", "Private-Lines"), r"Private-Lines: \d+\s+[A-Za-z0-9+/=\s]{48,}"),
    ("password_hash", 0.85, ("$1$", "$2", "$5$", "$6$", "$apr1$", "$argon2", "$y$", "pbkdf2_"),
     r"(?<![\w$])(?:\$(?:1|5|6|apr1|y)\$[^\s$:]{1,32}\$(?:[^\s$:]{1,16}\$)?[A-Za-z0-9./]{20,}|\$2[aby]\$\d\d\$[A-Za-z0-9./]{53}|"
     r"\$argon2(?:id?|d)\$v=\d+\$[\w=,]+\$[A-Za-z0-9+/]{8,}\$[A-Za-z0-9+/]{20,}|pbkdf2_sha\d+\$\d+\$\w+\$[A-Za-z0-9+/=]{20,})"),
)  # fmt: skip
COMPILED = tuple((rule, confidence, needs, re.compile(pattern)) for rule, confidence, needs, pattern in TOKENS)

# What a value is called that opens something.
NAMES = (
    r"password|passwd|passphrase|passwort|kennwort|passcode|pwd|pass|secret(?:[_-]?(?:access[_-]?)?key)?(?:[_-]?base)?|api[_-]?key|apikey|"
    r"app[_-]?key|access[_-]?(?:token|key)|auth[_-]?token|refresh[_-]?token|bearer[_-]?token|session[_-]?token|api[_-]?token|bot[_-]?token|"
    r"client[_-]?secret|private[_-]?key|encryption[_-]?key|signing[_-]?key|master[_-]?key|credentials?|token"
)
NAMED = (
    "pass", "pwd", "secret", "key", "token", "kennwort", "credential", "pin", "contraseña", "mot de passe", "phrase", "identified", "mysql", "curl", "sshpass",
)  # fmt: skip
ASSIGNED = re.compile(
    rf"(?<![A-Za-z0-9$])(?P<name>{NAMES})(?:_\w{{1,12}})?[\"']?\s{{0,3}}(?::=|=>|[:=])\s{{0,3}}"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"'`,;)}\]]{6,200})(?P=quote)",
    re.IGNORECASE,
)
SPOKEN = re.compile(
    r"\b(?:password|passphrase|passwort|kennwort|passcode|mot\s+de\s+passe|contraseña|senha|wachtwoord|api\s+key|access\s+(?:token|key)|"
    r"secret(?:\s+key)?|token|credentials?|login)\b(?:"
    r"(?:\s+(?:for|of|in|to|on|at|für|von|der|des|the|our|my|his|her|this|that)\b[^\n.:;\"'`]{0,40}?)?\s*"
    r"(?:\b(?:is|ist|lautet|est|es|was|(?:set|changed|reset)\s+to)\b|[:=])\s*(?:(?:now|still|currently)\s+)?:?\s*|\s+)"
    r"(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;)]{6,100})(?P=quote)",
    re.IGNORECASE,
)
SHELL = re.compile(
    r"(?:\bmysql(?:dump|admin)?\b[^\n|]{0,80}?\s-p(?P<mysql>(?P<q1>['\"]?)[^\s'\"$<]{6,80}(?P=q1))|"
    r"\bcurl\b[^\n|]{0,120}?\s(?:-u|--user)[\s=](?P<q2>['\"]?)[^\s:'\"$<]{1,60}:(?P<curl>[^\s'\"$<]{6,80})(?P=q2)|"
    r"\bsshpass\s+-p\s*(?P<q3>['\"]?)(?P<sshpass>[^\s'\"$<]{4,80})(?P=q3)|"
    r"\bidentified\s+(?:with\s+\w+\s+)?by\s+'(?P<sql>[^'\s<$]{6,80})'|\b(?:with\s+)?password\s+'(?P<role>[^'\s<$]{6,80})'|"
    r"\brequirepass\s+(?P<redis>[^\s<$]{6,80})|\bredis-cli\b[^\n|]{0,60}?\s-a\s+(?P<cli>[^\s\"'$<]{6,80})|"
    r"(?:--?password|--?pass|--?token|--?secret|--?api-key)[\s=](?P<q4>['\"]?)(?P<flag>[^\s'\"$<-][^\s'\"$<]{5,80})(?P=q4))",
    re.IGNORECASE,
)
SHELL_WORDS = (
    "mysql", "curl", "sshpass", "identified", "password '", "requirepass", "redis-cli", "-pass", "-token", "-secret", "-api-key",
)  # fmt: skip
PIN = re.compile(
    r"\b(?:PIN(?:\s+code)?|door\s+code|access\s+code|alarm\s+code|unlock\s+code|safe\s+code)\b(?:\s+(?:of|for|to|at|on)\b[^\n.:;]{0,40}?)?\s*(?:\bis\b|:|=)\s*"
    r"(?P<value>\d{4,8})(?!\d)"
)
PINS_OF_ALL = frozenset({"0000", "1234", "1111", "123456", "000000", "12345678", "9999"})
SEED = re.compile(
    r"\b(?:seed|recovery|mnemonic|backup|secret)\s+(?:phrase|words)\b[^\n:=]{0,30}[:=]\s*[\"']?(?P<value>(?:[a-z]{3,8}\s+){11,23}[a-z]{3,8})\b",
    re.IGNORECASE,
)
ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]{2,20}://(?P<user>[^\s:/@]{0,80}):(?P<value>[^\s:/@]{4,120})@[\w.-]+", re.IGNORECASE
)
BEARER = re.compile(
    r"\b(?:Authorization[\"']?\s*:\s*[\"']?(?:Bearer|Basic|token|ApiKey)\s+|X-(?:Api|Auth)-(?:Key|Token)[\"']?\s*:\s*[\"']?|"
    r"(?:session(?:id)?|sid|auth)\s*=\s*(?=[A-Za-z0-9]{24}))(?P<value>[A-Za-z0-9._~+/=-]{16,400})",
    re.IGNORECASE,
)

# A value that stands for one: templates, references, words of an example.
PLACEHOLDER = re.compile(
    r"^[<\[{(%$*_]|\$\{|\{\{|%\(|^\*+$|\*{3,}|^x{3,}|x{6,}|^\.{3}|\.{3}$|…|^(?:none|null|nil|true|false|undefined|required|optional|string|str|int|bytes|"
    r"hidden|redacted|removed|masked|password\d*|passwd|secret|token|postgres|admin|root|test\w*|guest|user\w*|pass|hunter2|swordfish|foobar|qwerty|letmein)$|"
    r"example|placeholder|changeme|change[_-]?me|your[_-]?|my[_-]?(?:secret|password|token|key|api)|dummy|sample|fake|replace|insert|todo|"
    r"not[_-]?a[_-]?real|redacted|os\.(?:environ|getenv)|process\.env|getenv|environ|env\[|settings\.|config\.|self\.|secrets\.|vault|"
    r"get_|_get|random|generate|uuid|token_urlsafe|input\(|prompt\(|^/|^\./|^https?:|0123456789|123456789|abcdef",
    re.IGNORECASE,
)
STANDS_FOR = re.compile(r"example|placeholder|your[_-]|[_-]here\b|changeme|replace[_-]|insert[_-]", re.IGNORECASE)
LONGEST_HASH = re.compile(r"^(?:sha\d+[:-])?[0-9a-f]{32,128}$", re.IGNORECASE)
CODE = re.compile(r"[()\[\]{}<>|]|::|->|==|\.\*|\\\\")
# Versions, sizes, dates, file names, names of algorithms and of things with a number.
NO_PASSWORD = re.compile(
    r"v?\d+(?:[.:,x-]\w+)*|\d+\w{0,3}|[A-Z]+-?\d{1,4}|[a-z]+-?\d{1,3}|\w+\.\w{2,4}|[\w-]+\((?:[^)]*)\)?|\w+[’']\w+|[\w-]+[*?%&+]",
    re.IGNORECASE,
)
LOOSE_BITS = 2.4
DIVERSE_BITS = 2.75  # Shannon entropy per character that a made-up key has and a word rarely


def find_secrets(text: str) -> Iterator[Finding]:
    """Tokens by their published shape; values that are assigned, said or part of an address and look like real ones."""
    lowered = text.lower()
    for rule, confidence, needs, pattern in COMPILED:
        if any(need in text for need in needs):
            for match in pattern.finditer(text):
                if not STANDS_FOR.search(match[0]) and not _is_filler(match[0]):
                    yield Finding("secret", rule, match.start(), match.end(), confidence)
    if any(name in lowered for name in NAMED):
        yield from _find_named(text)
    if "://" in text:
        for match in ADDRESS.finditer(text):
            if is_real(match["value"], loose=True) and match["value"].lower() != match["user"].lower():
                yield _value(match, "address", 0.85)
    if "uthorization" in lowered or "x-a" in lowered or "session" in lowered or "sid=" in lowered:
        for match in BEARER.finditer(text):
            if is_real(match["value"], hexadecimal=True):
                yield _value(match, "authorization", 0.85)


def _find_named(text: str) -> Iterator[Finding]:
    """Values under a name that says what they are."""
    for match in ASSIGNED.finditer(text):
        name = match["name"].lower()
        is_key = "key" in name or "token" in name or ("secret" in name and name != "secret")
        if is_real(match["value"], hexadecimal=is_key, loose=name.startswith(("pass", "pwd", "kenn"))):
            yield _value(match, "assigned", 0.8)
    for match in SPOKEN.finditer(text):
        value = match["value"].rstrip(".!?:")
        if is_real(value, loose=True) and is_password(value):
            yield Finding("secret", "spoken", match.start("value"), match.start("value") + len(value), 0.75)
    lowered = text.lower()
    for match in SHELL.finditer(text) if any(word in lowered for word in SHELL_WORDS) else ():
        group = next(
            name for name in ("mysql", "curl", "sshpass", "sql", "role", "redis", "cli", "flag") if match[name]
        )
        value = match[group].strip("'\"")
        if is_real(value, loose=True):
            start = match.start(group) + match[group].index(value)
            yield Finding("secret", "shell", start, start + len(value), 0.8)
    for match in PIN.finditer(text):
        if match["value"] not in PINS_OF_ALL:
            yield _value(match, "pin", 0.7)
    for match in SEED.finditer(text):
        yield _value(match, "seed_phrase", 0.85)


def _value(match: re.Match[str], rule: str, confidence: float) -> Finding:
    return Finding("secret", rule, match.start("value"), match.end("value"), confidence)


def is_real(value: str, *, hexadecimal: bool = False, loose: bool = False) -> bool:
    """Whether a value looks made up by a machine or a careful person, not by the writer of an example.

    hexadecimal: long rows of hexadecimal digits count too, which are mostly checksums. loose: a password that a person
    would choose is enough.
    """
    if PLACEHOLDER.search(value) or CODE.search(value) or _is_filler(value):
        return False
    if LONGEST_HASH.match(value):
        return hexadecimal and entropy(value) >= DIVERSE_BITS
    return _is_mixed(value) and entropy(value) >= (LOOSE_BITS if loose else DIVERSE_BITS)


def is_password(word: str) -> bool:
    """Letters with digits or signs inside, as no word of a language has them."""
    inner = word.strip("-_.:/@")
    if not _is_mixed(inner) or "://" in inner or inner.startswith(("-", "/")):
        return False
    return not NO_PASSWORD.fullmatch(inner)


def entropy(text: str) -> float:
    """Bits per character of its own letter distribution; 0.0 for ""."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values()) if text else 0.0


def _is_mixed(value: str) -> bool:
    """Letters and digits, or letters and signs other than those that join words."""
    letters = any(map(str.isalpha, value))
    digits = any(map(str.isdigit, value))
    signs = any(not sign.isalnum() and sign not in "-_./:@" for sign in value)
    return letters and (digits or signs)


def _is_filler(value: str) -> bool:
    """One character again and again, as in sk-xxxxxxxx, or a row of the alphabet."""
    body = value.rpartition("_")[2] if "_" in value[:12] else value
    tail = body[-24:]
    return len(set(tail.lower())) <= max(3, len(tail) // 8)
