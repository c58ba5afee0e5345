"""What the rules for follow-up questions know of English and German."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Language:
    """What the rules know of a language, all in lower case.

    question_words begin a question; glue is every word that is no topic: articles, prepositions, auxiliaries. verbs:
    frequent ones, which are no topic either. openers begin a follow-up. replaced: pronouns in whose place their
    referent can stand; possessives and others only point back. there: of a place. expletives: patterns in which a
    pronoun stands for nothing. last_name: "he" and the like, for a name first.
    """

    articles: frozenset[str]
    prepositions: frozenset[str]
    question_words: frozenset[str]
    auxiliaries: frozenset[str]
    glue: frozenset[str]
    verbs: frozenset[str]
    openers: re.Pattern[str]
    replaced: frozenset[str]
    possessives: frozenset[str]
    pointing: frozenset[str]
    demonstratives: frozenset[str]
    persons: frozenset[str]
    joining: frozenset[str]
    expletives: re.Pattern[str]
    conditions: frozenset[str]
    capitals_are_nouns: bool = False
    who: frozenset[str] = field(default_factory=frozenset)


ENGLISH = Language(
    articles=words("a an the my your our any some no this that these those its his her their"),
    prepositions=words(
        "of for in on at to from with about by into over under between within without during after before "
        "since until per against across through around near via as like than"
    ),
    question_words=words("who whom whose what which when where why how"),
    auxiliaries=words(
        "is are was were be been being am do does did can could will would shall should may might must have has had"
    ),
    glue=words(
        "and or but not also too then so if there here i we you me us it they them he she one ones many "
        "much long often far old tall big large please just only still ever again more most less other "
        "another same such very all each every both out up off down away well happens happen get gets got "
        "tell show list explain describe give find know want need needs let say says"
    ),
    verbs=words(
        "work works mean means cost costs take takes make makes made use uses used keep keeps kept run "
        "build built begin start starts stop stops delete change changes go goes come comes live lives "
        "eat eats write wrote win won lose lost buy sell pay pays call calls set see help helps create "
        "creates add adds remove support supports include includes apply applies allow allows require "
        "requires discover weigh die dies born grow open close move moves"
    ),
    openers=re.compile(r"(?:and|but|also|or|so|ok(?:ay)?|what about|how about|what if|then)\b[\s,]*", re.IGNORECASE),
    replaced=words("it they them he she him"),
    possessives=words("its their his her"),
    pointing=words("there one ones"),
    demonstratives=words("this that these those"),
    persons=words("he she him his her"),
    joining=words("of"),
    expletives=re.compile(
        r"\bit (?:possible|necessary|allowed|true|safe|better|worth|common|normal|legal|ok|okay|take|rains?|matter)\b"
        r"|\bit(?:'s| is| was) (?:possible|necessary|true|raining)|\bit (?:rains|snows)\b|\b(?:is|are|was|were) there\b"
        r"|\bthere (?:is|are|was|were|be)\b",
        re.IGNORECASE,
    ),
    conditions=words("when if while once unless because although"),
    who=words("who whom whose"),
)
GERMAN = Language(
    articles=words(
        "der die das den dem des ein eine einen einem einer eines kein keine keinen mein meine meinen "
        "dein unser unsere unseren euer jeder jede jedes jeden dieser diese dieses diesen diesem"
    ),
    prepositions=words(
        "von vom für in im ins an am auf aus bei beim mit nach zu zum zur über unter vor durch gegen ohne "
        "um seit bis während wegen zwischen pro laut ab"
    ),
    question_words=words(
        "wer wen wem wessen was welche welcher welches welchen welchem wann wo wohin woher warum wieso "
        "weshalb wie womit wofür wodurch wovon worauf woran"
    ),
    auxiliaries=words(
        "ist sind war waren sein bin bist werden wird wurde wurden worden kann kannst können könnte darf "
        "dürfen soll sollen sollte muss müssen müsste hat haben hatte hatten habe will wollen möchte mag "
        "lässt lassen"
    ),
    glue=words(
        "und oder aber nicht auch denn dann so wenn ob da hier ich wir du man es er sie ihn ihm uns mir "
        "mich sich viel viele lange oft weit alt hoch groß tief schwer bitte nur noch schon immer mehr "
        "alle beide gibt geben zeige nenne erkläre beschreibe sag"
    ),
    verbs=frozenset(),
    openers=re.compile(
        r"(?:und|aber|auch|oder|also|ok(?:ay)?|was ist mit|wie (?:ist|steht|sieht) es (?:mit|bei)|wie ist das bei)\b"
        r"[\s,]*",
        re.IGNORECASE,
    ),
    replaced=words("er sie es ihn ihm"),
    possessives=words("sein seine seinen seiner seinem seines ihr ihre ihren ihrer ihrem ihres dessen deren"),
    pointing=words(
        "dort dorthin davon dafür dagegen damit darin daran darauf daraus dazu darüber dabei danach dadurch darum ihnen"
    ),
    demonstratives=words("das dies dieser diese dieses diesen diesem jener jene jenes"),
    persons=words("er ihn ihm seine seinen seiner seinem ihre ihrer ihren ihrem ihr sie"),
    joining=words("der des von vom"),
    expletives=re.compile(
        r"\bgibt es\b|\bes gibt\b|\bgeht es (?:um|dir|ihnen)\b"
        r"|\b(?:ist|wäre) es (?:möglich|erlaubt|nötig|sinnvoll|wahr)\b"
        r"|\bes (?:regnet|schneit|stimmt|handelt|heißt)\b|\b(?:regnet|schneit|stimmt) es\b",
        re.IGNORECASE,
    ),
    conditions=words("wenn falls sobald weil obwohl als"),
    capitals_are_nouns=True,
    who=words("wer wen wem"),
)
