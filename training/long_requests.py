"""Data augmentation: requests among background sentences, as in long messages."""

import random
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from training.jsonl import read_rows

_SLOTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "en": {
        "time": (
            "yesterday", "this morning", "Monday", "Friday", "next week", "tomorrow", "noon",
            "March", "the end of the month", "5 pm", "last night", "Thursday afternoon",
        ),
        "person": (
            "boss", "sister", "manager", "client", "neighbour", "professor", "team lead",
            "brother", "mother", "accountant", "friend Sam", "flatmate", "landlord", "CEO",
        ),
        "place": (
            "bakery", "school", "startup", "hospital", "bookshop", "agency", "non-profit", "bank",
            "university", "warehouse", "studio", "law firm", "gym", "restaurant", "office",
        ),
        "size": ("small", "two-person", "remote", "new", "five-person", "distributed"),
        "number": ("3", "a dozen", "40", "200", "1,500", "seven", "twenty", "300", "12", "a few"),
        "part": ("head", "back", "brain", "neck"),
        "device": ("Mac", "Windows laptop", "Chromebook", "phone", "tablet", "Linux box", "iPad"),
        "word": ("final", "stuff", "project2", "new_new", "misc", "todo", "archive", "q3"),
    },
    "zh": {
        "time": (
            "昨天", "今天早上", "周一", "周五", "下周", "明天", "中午", "三月份", "月底",
            "下午五点", "昨晚", "周四下午",
        ),
        "person": (
            "老板", "姐姐", "经理", "客户", "邻居", "导师", "组长", "弟弟", "妈妈", "会计",
            "朋友小王", "室友", "房东", "领导",
        ),
        "place": (
            "面包店", "学校", "创业公司", "医院", "书店", "中介", "公益机构", "银行", "大学",
            "仓库", "工作室", "律所", "健身房", "餐馆", "办公室",
        ),
        "size": ("五个人", "两个人", "远程", "新组建", "十来人"),
        "number": ("三", "十来", "40", "200", "1500", "七", "二十", "300", "12", "好几"),
        "part": ("头",),
        "device": ("苹果电脑", "旧笔记本", "手机", "平板", "公司的台式机", "Linux 机器"),
        "word": ("最终版", "资料", "新建文件夹", "备份", "临时", "Q3"),
    },
}  # fmt: skip
_SENTENCES = (1, 2, 2, 3, 4, 5)
_FIRST_SHARE = 0.35
"""Share of requests that come before their background; most come at the end of it."""
_LONGEST = {"en": 380, "zh": 120}
"""Characters of background before a request: more would push it out of the 128 tokens."""
_END = tuple(string.punctuation + "。！？，；")


class Background:
    """Sentences around a request that say nothing about what it is for."""

    def __init__(self, templates: Mapping[str, Sequence[str]]) -> None:
        self._templates = templates

    @classmethod
    def read(cls, path: Path) -> "Background":
        """Read lines of `en`, `zh`."""
        rows = list(read_rows(path))
        return cls({language: [row[language] for row in rows] for language in ("en", "zh")})

    def around(
        self, request: str, language: str, chance: random.Random, others: Iterable[str] = ()
    ) -> str:
        """Surround a request by background sentences; `others` are further ones, used first."""
        count = chance.choice(_SENTENCES)
        said = [*others][:count]
        said += [self.sentence(language, chance) for _ in range(count - len(said))]
        chance.shuffle(said)
        where = 0 if chance.random() < _FIRST_SHARE else chance.randint(1, len(said))
        while where > 0 and sum(map(len, said[:where])) > _LONGEST[language]:
            where -= 1
        ended = request if request.endswith(_END) else request + ("." if language == "en" else "。")
        parts = [*said[:where], ended, *said[where:]]
        return (" " if language == "en" else "").join(parts)

    def sentence(self, language: str, chance: random.Random) -> str:
        """Fill a template."""
        slots = {slot: chance.choice(words) for slot, words in _SLOTS[language].items()}
        said = chance.choice(self._templates[language]).format_map(slots)
        return said if chance.random() < 0.6 else said[0].lower() + said[1:].rstrip(".。")
