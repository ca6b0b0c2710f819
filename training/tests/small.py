"""A course small enough for a test: made-up skills, a base of two layers, a handful of words."""

import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from training.corpus import Sources
from training.encoder import Encoder, Shape
from training.jsonl import write_rows

TASKS = {
    "merge-pdf": ("Merge several PDF files into one document", "把多个 PDF 文件合并成一个文档"),
    "weather": ("Tell the weather of a city for the next days", "查询城市未来几天的天气预报"),
    "translate": ("Translate a document into another language", "把文档翻译成另一种语言"),
    "chart": ("Draw a chart from the rows of a table", "根据表格的数据画一张图表"),
    "invoice": ("Write an invoice for a customer", "给客户开一张发票"),
    "deploy": ("Deploy the service to a cluster", "把服务部署到集群"),
}
HELD_OUT = {
    "secret-recipe": (
        "Cook a secret soup of seven herbs that nobody else in the whole valley knows",
        "用七种草药煮一锅山谷里没有别人知道的秘密汤",
    )
}


def sources(folder: Path) -> Sources:
    """Files of the kinds that training reads; a held-out skill is hidden in every one of them."""
    every = TASKS | HELD_OUT
    numbered = [
        {"id": place, "name": name, "description": texts[place % 2], "lang": "en", "repo": "a/b"}
        for place, (name, texts) in enumerate(every.items())
    ]
    made = {
        "skills": numbered,
        "phrases": [
            {"s": kind, "q": text, "d": f"{name}: {texts[0]}", "l": "en"}
            for name, texts in every.items()
            for kind, text in (("A", texts[0].lower()), ("B", f"User wants to {texts[0].lower()}"))
        ],
        "segments": [
            {"k": f"author--{name}", "t": "p", "en": texts[0], "zh": texts[1]}
            for name, texts in every.items()
            for _ in range(15)
        ],
        "descriptions": [
            {
                "key": f"author--{name}",
                "name_en": name,
                "name_zh": texts[1][:4],
                "en": texts[0],
                "zh": texts[1],
            }
            for name, texts in every.items()
        ],
        "held_out": [
            {"id": 99, "name": name, "description": texts[0]} for name, texts in HELD_OUT.items()
        ],
    }
    paths = {name: folder / f"{name}.jsonl.xz" for name in made}
    for name, rows in made.items():
        write_rows(paths[name], rows)
    requests = folder / "requests"
    write_rows(
        requests / "written-00.jsonl", [{"id": 0, "en": "one file of these", "zh": "合成一个"}]
    )
    write_rows(requests / "validation-00.jsonl", [{"id": 4, "en": "bill her", "zh": "要开票"}])
    small_talk = [{"kind": "greeting", "en": f"hello {n}", "zh": f"你好{n}"} for n in range(6)]
    write_rows(requests / "none.jsonl", small_talk)
    product = {"zh": ["飞书"], "en": ["Feishu"], "what_en": "team chat", "what_zh": "团队聊天"}
    write_rows(requests / "products.jsonl", [product])
    thing = {
        "names": ["PDF", ".pdf"],
        "what_en": "document format that looks the same everywhere",
        "what_zh": "到处看起来都一样的文档格式",
        "en": ["the format nobody can edit, put mine together"],
        "zh": ["那种改不了的文档，合到一起"],
    }
    write_rows(requests / "things-a.jsonl", [thing])
    background = {"en": "My {person} asked {time}.", "zh": "{person}{time}问的。"}
    write_rows(requests / "background.jsonl", [background])
    kept_back = [{"en": f"It rained {n} days.", "zh": f"下了{n}天雨。"} for n in range(5)]
    write_rows(requests / "background-validation.jsonl", kept_back)
    write_rows(requests / "logs-validation.jsonl", [{"log": f"exit code {n}"} for n in range(2)])
    error = {"log": "PdfReadError in {name}", "en": "read pdf files", "zh": "读取 PDF"}
    write_rows(requests / "errors.jsonl", [error])
    (requests / "homophones.txt").write_text("文 闻\n表格 表哥\n", encoding="utf-8")
    return Sources(**paths, requests=requests)


def base(folder: Path) -> Path:
    """A folder with `tokenizer.json` and `weights.npz`, never trained."""
    words = sorted({word for texts in TASKS.values() for word in texts[0].lower().split()})
    letters = [f"##{chr(code)}" for code in range(ord("a"), ord("z") + 1)]
    alone = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {
        piece: place
        for place, piece in enumerate(dict.fromkeys([*special, *alone, *letters, *words]))
    }
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    shape = Shape(vocabulary=len(vocabulary), layers=2, width=64, heads=2, inner=96)
    state = Encoder(shape).state_dict()
    np.savez(folder / "weights.npz", **{name: part.numpy() for name, part in state.items()})
    return folder


def words_of(tokenizer: Path) -> list[str]:
    """The Chinese words that were added."""
    return json.loads((tokenizer / "cjk.json").read_text(encoding="utf-8"))
