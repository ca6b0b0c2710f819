"""A course small enough for a test: made-up skills, a base of two layers, a handful of words."""

import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from training.corpus import Sources
from training.encoder import Encoder, Shape
from training.jsonl import write_rows
from training.mixture import MixtureSources

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
    error = {"log": "PdfReadError in {name}", "en": "read pdf files", "zh": "读取 PDF"}
    write_rows(requests / "errors.jsonl", [error])
    (requests / "homophones.txt").write_text("文 闻\n表格 表哥\n", encoding="utf-8")
    return Sources(**paths, requests=requests)


EVERYDAY = {
    "tea-timer": ("Count the minutes that a tea needs", "给泡茶计时"),
    "song-finder": ("Name the song that is playing", "听歌识曲"),
    "star-map": ("Show the stars over a place tonight", "显示今晚的星空"),  # kept back
    "secret-recipe": ("Cook something good", "做点好吃的"),  # the name of a held-out skill
    "valley-soup": (HELD_OUT["secret-recipe"][0] + ".", "做一锅汤"),  # its description
}
NEAR = {
    "tea-timer": (["my tea went cold again"], ["茶又凉了", "今天的茶真香"]),
    "star-map": (["so many stars last night"], ["昨晚星星真多"]),
}
"""Messages on the subject of a skill that need no skill."""
TEST_SKILL = {"id": 98, "name": "rollout", "description": TASKS["deploy"][1]}
TEST_QUERIES = (
    "Remind me when my tea is ready!",
    "What was the Score on Monday?",
    "今天的茶真香",
    "hello 2",
    "The bus was late.",
)
"""Requests and messages of a test set: our own have them too, written otherwise."""


def mixture_sources(folder: Path, prepared: Sources) -> MixtureSources:
    """Our own requests of the fine-tuning stage, and the texts of test sets."""
    requests = prepared.requests
    everyday = [
        {
            "name": name,
            "en": english,
            "zh": chinese,
            "requests_en": [f"please {english.lower()}", f"i need the {name.replace('-', ' ')}"],
            "requests_zh": [f"请{chinese}"],
        }
        for name, (english, chinese) in EVERYDAY.items()
    ]
    everyday[0]["requests_en"] = ["remind me when my tea is ready", "three minutes for the pot"]
    for row in everyday[:3:2]:
        row["near_en"], row["near_zh"] = NEAR[str(row["name"])]
    write_rows(requests / "everyday-1.jsonl", everyday[:2])
    write_rows(requests / "everyday-2.jsonl", everyday[2:])
    styles = [
        {"id": place, "en": [f"{name} quickly"], "zh": [f"快点{texts[1]}"]}
        for place, (name, texts) in enumerate((TASKS | HELD_OUT).items())
        if name in {"merge-pdf", "weather", "deploy", "secret-recipe"}  # weather is kept back
    ]
    write_rows(requests / "styles-1.jsonl", styles)
    tools = [
        {
            "tools": [
                {"name": f"get{thing}", "desc": f"Read the {thing} of a day", "params": "day"},
                {"name": f"set{thing}", "desc": f"Write down the {thing}", "params": ""},
            ],
            "asks": [
                {"q": f"what was the {thing} on monday", "need": [0]},
                {"q": f"copy the {thing} of monday to friday", "need": [0, 1]},
            ],
        }
        for thing in ("Rain", "Price", "Score")  # the first group is kept back
    ]
    write_rows(requests / "tools-1.jsonl", tools)
    said = {"the bus was late": False, "the train was on time": False, "book me a train": True}
    talk = [{"lang": "en", "query": query, "needs": needs} for query, needs in said.items()]
    write_rows(requests / "task-or-talk-1.jsonl", talk)
    write_rows(folder / "test-queries.jsonl", [{"query": query} for query in TEST_QUERIES])
    write_rows(folder / "test-skills.jsonl", [TEST_SKILL])
    return MixtureSources(
        data=folder / "data",
        skills=prepared.skills,
        requests=requests,
        held_out=[prepared.held_out, folder / "test-queries.jsonl", folder / "test-skills.jsonl"],
    )


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
