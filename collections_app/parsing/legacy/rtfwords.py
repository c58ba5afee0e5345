"""RTF's vocabulary: charsets, special characters, and the destinations that hold no text for people."""

from __future__ import annotations

import re

from collections_app.parsing.text.markup import words

PAGES = {"ansi": "cp1252", "mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
SYMBOL_CHARSET = "symbol"
CHARSETS: dict[int, str] = {
    0: "cp1252",
    1: "",
    2: SYMBOL_CHARSET,
    77: "mac_roman",
    78: "shift_jis",
    80: "gb18030",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gb18030",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    254: "cp437",
    255: "cp437",
}
SPECIAL_CHARACTERS: dict[str, str] = {
    "tab": "\t",
    "line": "\n",
    "lbr": "\n",
    "emdash": "\u2014",
    "endash": "\u2013",
    "lquote": "\u2018",
    "rquote": "\u2019",
    "ldblquote": "\u201c",
    "rdblquote": "\u201d",
    "bullet": "\u2022",
    "emspace": "\u2003",
    "enspace": "\u2002",
    "qmspace": "\u2005",
    "zwj": "\u200d",
    "zwnj": "\u200c",
}
# These hold two versions, or a wrapped one: their own text goes nowhere, that of the inner destination to the body.
WRAPPERS = {"upr": "ud", "object": "result"}
INNER_VERSIONS = frozenset(WRAPPERS.values())
KEPT_STARRED = frozenset({"annotation", "shpinst", "shptxt", "ud", "pntext", "nesttableprops"})
DROPPED = words(
    "colortbl pict objdata objclass objname listtable listoverridetable rsidtbl generator filetbl revtbl"
    " latentstyles themedata datastore colorschememapping xmlnstbl fldinst bkmkstart bkmkend xe tc txe rxe"
    " nonshppict shppict sp atnid atnauthor atntime atndate atnicn atnparent atnref ftnsep ftnsepc aftnsep"
    " aftnsepc ftncn aftncn falt panose fontemb fontfile pntxta pntxtb pnseclvl template private1 nonesttables"
    " shprslt mmathPr wgrffmtfilter operator company creatim revtim printim buptim comment doccomm keywords"
    " subject category manager hlinkbase passwordhash userprops xmlopen xmlclose background docvar htmltag"
    " mhtmltag do picprop"
)
HEADING_STYLE = re.compile(r"(?:heading|Überschrift|titre|título|nadpis|заголовок)\s*(\d)|title\b", re.IGNORECASE)
NOTES = words("footnote annotation header headerl headerr headerf footer footerl footerr footerf")
