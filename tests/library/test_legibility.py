"""Which texts a tokenizer's model can read: by script and by language, for the local model and for a folder's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from ragd.models.late_interaction import LateInteraction
from ragd.models.reranking import SelectiveReranker, rerank
from ragd.text.languages import find_readable
from ragd.types import Candidate

pytestmark = pytest.mark.fault("A3")
ENGLISH = (
    "Replace the worn seal of the pump: this ends the oil leak. Order a new one from the store, and close the valve "
    "before you take the pump apart."
)
CHINESE = [
    "安静的图书馆下午开放。",
    "水在一百度时沸腾。",
    "河流流经三个城镇。",
    "烧水壶放在厨房里。",
    "花园里有很多玫瑰。",
]
OTHERS = {
    "de": "Ersetzen Sie die verschlissene Dichtung der Pumpe, dann hört das Öl auf auszulaufen. Bestellen Sie eine neue"
    " Dichtung im Lager und schließen Sie das Ventil, bevor Sie die Pumpe zerlegen.",
    "es": "Sustituya la junta desgastada de la bomba para que deje de perder aceite. Pida una junta nueva en el almacén"
    " y cierre la válvula antes de desmontar la bomba.",
    "ru": "Замените изношенное уплотнение насоса, и масло перестанет вытекать.",
    "el": "Αντικαταστήστε τη φθαρμένη τσιμούχα της αντλίας και η διαρροή λαδιού σταματά.",
    "ar": "استبدل مانع التسرب البالي في المضخة ليتوقف تسرب الزيت.",
    "hi": "पंप की घिसी हुई सील बदलें, तेल का रिसाव बंद हो जाएगा।",
    "th": "เปลี่ยนซีลที่สึกหรอของปั๊มเพื่อหยุดน้ำมันรั่ว",
    "ko": "펌프의 마모된 씰을 교체하면 기름 누출이 멈춥니다.",
    "ja": "ポンプの摩耗したシールを交換すると油漏れが止まります。",
    "zh": "更换水泵磨损的密封件即可停止漏油。",
}


@pytest.fixture(scope="module")
def reranker() -> LateInteraction:
    return LateInteraction(threads=1)


def candidates_of(texts: Sequence[str]) -> list[Candidate]:
    return [Candidate(f"d{place}", 0, text, 1.0 / (60 + place)) for place, text in enumerate(texts)]


def test_english_is_read_whatever_it_names(reranker: LateInteraction) -> None:
    assert isinstance(reranker, SelectiveReranker)
    texts = [ENGLISH, "Okonjo is the name of the engineer on call.", "PPR-9087 | 4.50 | 12", "12 400 °C", "", "{}"]
    assert reranker.find_readable("Who is Okonjo?", candidates_of(texts)) == [True] * len(texts)
    assert reranker.find_readable("Okonjo", candidates_of(texts)) != [], "a name alone is a question too"


@pytest.mark.parametrize("language", OTHERS)
def test_other_languages_are_not(reranker: LateInteraction, language: str) -> None:
    text = OTHERS[language]
    assert reranker.find_readable(text[:40], candidates_of([text, text[:60]])) == [False, False]
    assert reranker.find_readable("How do I stop the oil leak?", candidates_of([ENGLISH, text])) == [True, False]


def test_five_short_chinese_documents_keep_their_order(reranker: LateInteraction) -> None:
    candidates = candidates_of(CHINESE)
    assert rerank("什么时候烧开水", candidates, reranker) == candidates


def test_a_text_in_another_script_keeps_its_place_among_english_ones(reranker: LateInteraction) -> None:
    texts = ["The canteen opens at noon and serves soup.", OTHERS["zh"], ENGLISH]
    found = rerank("How do I stop the pump from leaking oil?", candidates_of(texts), reranker)
    assert [item.doc_id for item in found] == ["d2", "d1", "d0"]
    assert "reranked" in found[0].ranks and "reranked" not in found[1].ranks


def test_a_tokenizer_of_a_folder_says_what_it_knows(tmp_path: Path) -> None:
    vocabulary = ["[UNK]", "sea", "red", "海", "##d", "r", "e"]
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    assert find_readable(tokenizer, "sea", ["red sea", "海", "河", "wave", "red wave sea", ""]) == [
        True, True, False, False, True, True,
    ]  # fmt: skip
    assert find_readable(tokenizer, "河", ["red sea"]) == [False]
    assert find_readable(tokenizer, "sea", []) == []
