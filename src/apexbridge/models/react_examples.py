"""What people ask of the built-in tools, in both languages, and the call that it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request and the arguments it asks for."""

    english: str
    chinese: str
    arguments: Mapping[str, Any]


KNOWN: Mapping[str, tuple[Example, ...]] = {
    "Calculate": (
        Example(
            english="What is (3 + 4) * 12?",
            chinese="(3 + 4) * 12 等于多少？",
            arguments={"expression": "(3 + 4) * 12"},
        ),
        Example(
            english="How much is 15% of 80?",
            chinese="80 的 15% 是多少？",
            arguments={"expression": "80 * 15 / 100"},
        ),
    ),
    "Now": (Example(english="What time is it?", chinese="现在几点？", arguments={}),),
    "Platform": (
        Example(english="Which system is this?", chinese="这是什么操作系统？", arguments={}),
    ),
    "Read": (
        Example(
            english="What does notes.txt say?",
            chinese="notes.txt 里写了什么？",
            arguments={"file_path": "notes.txt"},
        ),
        Example(
            english="What does notes.txt say?",
            chinese="notes.txt 里写了什么？",
            arguments={"path": "notes.txt"},
        ),
    ),
    "Write": (
        Example(
            english="Write 'milk' into list.txt.",
            chinese="把“牛奶”写进 list.txt。",
            arguments={"file_path": "list.txt", "content": "milk"},
        ),
        Example(
            english="Write 'milk' into list.txt.",
            chinese="把“牛奶”写进 list.txt。",
            arguments={"path": "list.txt", "content": "milk"},
        ),
    ),
    "Edit": (
        Example(
            english="Change 'cat' to 'dog' in pets.txt.",
            chinese="把 pets.txt 里的 cat 改成 dog。",
            arguments={"file_path": "pets.txt", "old_string": "cat", "new_string": "dog"},
        ),
    ),
    "Glob": (
        Example(
            english="Which Python files are here?",
            chinese="这里有哪些 Python 文件？",
            arguments={"pattern": "**/*.py"},
        ),
    ),
    "Grep": (
        Example(
            english="Which files mention an error?",
            chinese="哪些文件提到了 error？",
            arguments={"pattern": "error"},
        ),
    ),
    "Bash": (
        Example(
            english="Show the files by size.",
            chinese="按大小列出文件。",
            arguments={"command": "ls -lS"},
        ),
    ),
    "Skill": (
        Example(
            english="Use the skill csv-report for sales.csv.",
            chinese="用 csv-report 技能处理 sales.csv。",
            arguments={"skill": "csv-report", "arguments": "sales.csv"},
        ),
    ),
    "SkillScript": (
        Example(
            english="Run the script of csv-report on sales.csv.",
            chinese="用 sales.csv 运行 csv-report 的脚本。",
            arguments={
                "skill": "csv-report",
                "arguments": ["sales.csv"],
                "files": ["sales.csv"],
            },
        ),
        Example(
            english="Run the script of csv-report on sales.csv.",
            chinese="用 sales.csv 运行 csv-report 的脚本。",
            arguments={"skill": "csv-report", "arguments": ["sales.csv"]},
        ),
    ),
    "SkillSearch": (
        Example(
            english="Make a chart of my sales.",
            chinese="给我的销售数据画一张图。",
            arguments={"query": "chart of sales data"},
        ),
        Example(
            english="Translate this document into French.",
            chinese="把这份文档翻译成法语。",
            arguments={"query": "translate a document"},
        ),
    ),
}
ANSWERED = (
    ("Calculate", "84", "It is 84.", "结果是 84。"),
    ("Read", "1\tbuy milk", "It says: buy milk.", "里面写着：buy milk。"),
)
"""A first example that goes on: what the tool returned, and what is said of it."""
