"""Intent detection in English and Chinese requests."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.models.intent_rules import (
    MAX_INTENT_CHARS,
    detect_intent,
    extract_file_names,
    is_chinese,
    is_destructive_request,
    is_file_name,
    is_small_talk,
)
from apexbridge.sandbox.script_executor import ScriptExecutor
from apexbridge.tools.builtin.toolset import builtin_tools
from tests.tools.tool_calls import context, use

CALCULATE = {
    "What is 17 * 23?": ("17 * 23", "391"),
    "17*23": ("17*23", "391"),
    "Please calculate (17 + 5) * 23.": ("(17 + 5) * 23", "506"),
    "(17 + 5) * 23 =": ("(17 + 5) * 23", "506"),
    "what’s 2^10": ("2^10", "1024"),
    "12 divided by 4": ("12 / 4", "3"),
    "how much is 15% of 80?": ("15 / 100 * 80", "12"),
    "Can you work out 3 plus 4, please?": ("3 + 4", "7"),
    "sqrt(16)": ("sqrt(16)", "4"),
    "What is the square root of 16?": ("sqrt(16)", "4"),
    "what is 12 squared": ("12 ** 2", "144"),
    "1,234 + 5,678": ("1,234 + 5,678", "6912"),
    "5 - 3": ("5 - 3", "2"),
    "what is -5 * -3": ("-5 * -3", "15"),
    "2**0.5": ("2**0.5", "1.414"),
    "7!": ("7!", "5040"),
    "10 mod 3": ("10 % 3", "1"),
    "max(3, 5)": ("max(3, 5)", "5"),
    "what's the result of max(3, min(5, 2))?": ("max(3, min(5, 2))", "3"),
    "What is 9-5?": ("9-5", "4"),
    "计算 3 加 5": ("3 + 5", "8"),
    "3乘以7等于多少": ("3 * 7", "21"),
    "（3+4）×12 等于多少？": ("(3+4)*12", "84"),
    "请问 80 的 15% 是多少？": ("80 * 15 / 100", "12"),
    "帮我算一下 100÷4": ("100/4", "25"),
    "16 的平方根是多少": ("sqrt(16)", "4"),
    "100 减去 58": ("100 - 58", "42"),
}
NOW = {
    "What time is it?": "",
    "what's the time": "",
    "Can you tell me the current time?": "",
    "what day is it today?": "",
    "What is today's date?": "",
    "what is the date and time": "",
    "what time is it in tokyo?": "Asia/Tokyo",
    "What time is it right now in New York?": "America/New_York",
    "time in Paris": "Europe/Paris",
    "what is the current time in UTC+8": "UTC+8",
    "What's the time in Europe/Madrid?": "Europe/Madrid",
    "现在几点": "",
    "请问现在几点了？": "",
    "今天星期几": "",
    "今天几号": "",
    "今天是几月几号？": "",
    "北京现在几点": "Asia/Shanghai",
    "现在东京时间是几点？": "Asia/Tokyo",
    "纽约时间": "America/New_York",
    "告诉我当前时间": "",
}
PLATFORM = (
    "What operating system is this?",
    "what os am I on",
    "which platform are you running on?",
    "What is my operating system?",
    "show me the system info",
    "python version?",
    "how many cores does this machine have?",
    "这是什么操作系统",
    "我的电脑是什么系统？",
    "这台机器有几个核",
    "系统信息",
    "当前python 版本是多少",
)
READ = {
    "read notes.txt": "notes.txt",
    "Read the file docs/a.md please": "docs/a.md",
    "show me README": "README",
    "What does notes.txt say?": "notes.txt",
    "what's in docs/a.md?": "docs/a.md",
    "print 'two words.txt'": "two words.txt",
    "Could you open ./notes.txt for me?": "./notes.txt",
    "打开 notes.txt": "notes.txt",
    "读取文件 数据/报告.txt": "数据/报告.txt",
    "notes.txt 里写了什么？": "notes.txt",
    "查看 docs/a.md 的内容": "docs/a.md",
}
GLOB = {
    "list files": "**/*",
    "List the Python files": "**/*.py",
    "which files are here?": "**/*",
    "What files are in this folder?": "**/*",
    "find files *.csv": "*.csv",
    "find all *.md files": "*.md",
    "ls": "**/*",
    "列出所有文件": "**/*",
    "列出 markdown 文件": "**/*.md",
    "这个文件夹里有哪些 csv 文件？": "**/*.csv",
    "有哪些文件": "**/*",
    "查找 *.txt 文件": "*.txt",
}
GREP = {
    "grep for 'TODO'": "TODO",
    "grep TODO": "TODO",
    "search the code for `f(x)`": r"f\(x\)",
    "Search the files for invoice": "invoice",
    "which files mention invoice?": "invoice",
    "Which file contains 'two words'?": "two words",
    "look for 'a.b' in the files": r"a\.b",
    "哪些文件包含“发票”": "发票",
    "在文件中搜索 TODO": "TODO",
    "查找包含“发票”的文件": "发票",
}
NOTHING_PLAIN = (
    # numbers that are no sums
    "What is 5G?", "what is 3D printing", "What is 2026-11-16?", "What is 11/16/2026?",
    "version 1.2.3", "Is 3.11.7 newer than 3.10.2?", "what is 555-1234?", "call 555-1234",
    "what is 1-800-555-0199?", "电话是 010-12345678", "010-12345678 是多少",
    "what is 24/7 support?", "What is 24/7?", "What is 50/50?", "What is the price, $5-10?",
    "how much is a 2-3 day trip?", "What is ISO-9001?", "what is covid-19", "$5 + $3",
    "What is RFC 2616/7230?",
    "rooms 10-12 are free, how much are they?", "what's on page 3-5?", "what is 12:30 - 11:15?",
    "最近 3-5 天的天气怎么样，结果如何", "2026/11/16 是多少", "What is 8.8.8.8?", "42",
    "3 4", "1 +", "What is 3 kg + 4 kg?", "what's 1/2 cup in ml?", "how much is 100 USD in EUR",
    "10 + 5 people are coming", "What is 10 times better?", "what is 1+1 in binary?", "(1 + 2",
    "这本书多少钱", "iPhone 15 多少钱", "第 3-5 章讲了什么", "5 加一等于多少人",
    # times that are not now
    "What is the date of the French revolution?", "what time is the meeting?",
    "what day is Christmas?", "what day of the week was 2020-01-01?",
    "What time does the shop open?", "I had a good time in Paris", "会议几点开始？", "会议几点",
    "明天几点开会", "当前时间戳怎么转换", "Write a function that returns the current time",
    "what is the time complexity of quicksort?", "what is the date format in ISO 8601?",
    "just in time in manufacturing", "time management tips", "时间管理的方法",
    # systems that are not this one
    "Explain what an operating system is", "write an essay on operating systems",
    "介绍一下操作系统的历史", "图书管理系统信息怎么录入", "什么系统适合老电脑",
    "how many cores does the M3 have?", "what platform should I publish on?",
    # reading that is no file
    "read the room", "read the news", "open source.", "show me the money", "show example.com",
    "open www.example.com", "print v1.2", "打开 http://example.com/a.html", "打开天窗说亮话",
    "read sales.csv and summarise it", "读一下 todo.md，然后写一首诗", "read my mind",
    # files that are a task for a skill
    "find large files and delete them", "which file format is best?", "find a skill about files",
    "list the files changed since v1.2", "find duplicate files with a skill",
    "show me how to merge pdf files", "查找大文件并删除", "文件", "合并两个 pdf 文件",
    'search for "invoice"', "Search for 'best pizza'", "搜索 “发票”", "search the web for cats",
    # everything else
    "Summarise sales.csv", "汇总 sales.csv", "make a chart of data.csv", "Write a poem", "写一首诗",
    "translate 'good morning' into French", "What is the meaning of life?", "",
    "帮我把 sales.csv 做成 report", "please", "请", "?", "/csv-report sales.csv", "/etc/hosts",
)  # fmt: skip


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "数据").mkdir()
    for name in (
        "notes.txt",
        "two words.txt",
        "README",
        "docs/a.md",
        "数据/报告.txt",
        "x.csv",
        "x.py",
    ):
        text = "TODO f(x) invoice two words a.b 发票\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


async def _answer(request: str, tool: str, arguments: dict[str, Any], place: Path) -> str:
    """The intent must be this one, and the real tool must accept it."""
    intent = detect_intent(request)
    assert intent is not None
    assert (intent.tool, dict(intent.arguments)) == (tool, arguments)

    async def no_workshop() -> ScriptExecutor:
        raise AssertionError("nothing is run here")

    tools = {made.spec.name: made for made, _ in builtin_tools(no_workshop)}
    if tool == "Platform":  # it asks how commands are isolated, which needs a script executor
        return ""
    result = await use(tools[tool], context(place), intent.arguments)
    assert not result.is_error
    return result.text


@pytest.mark.anyio
@pytest.mark.parametrize("request_", CALCULATE)
async def test_a_request_that_is_a_sum_is_calculated(request_: str, place: Path) -> None:
    expression, value = CALCULATE[request_]
    said = await _answer(request_, "Calculate", {"expression": expression}, place)
    assert value in said.rpartition("=")[2].replace(",", "")


@pytest.mark.anyio
@pytest.mark.parametrize("request_", NOW)
async def test_a_request_for_the_time_is_detected(request_: str, place: Path) -> None:
    zone = NOW[request_]
    assert "20" in await _answer(request_, "Now", {"timezone": zone} if zone else {}, place)


@pytest.mark.parametrize("request_", PLATFORM)
def test_a_request_about_the_platform_is_detected(request_: str) -> None:
    intent = detect_intent(request_)
    assert intent is not None
    assert (intent.tool, intent.arguments) == ("Platform", {})


@pytest.mark.anyio
@pytest.mark.parametrize("request_", READ)
async def test_a_request_for_a_file_reads_it(request_: str, place: Path) -> None:
    assert "发票" in await _answer(request_, "Read", {"file_path": READ[request_]}, place)


@pytest.mark.anyio
@pytest.mark.parametrize("request_", GLOB)
async def test_a_request_for_files_lists_them(request_: str, place: Path) -> None:
    pattern = GLOB[request_]
    said = await _answer(request_, "Glob", {"pattern": pattern}, place)
    suffix = pattern.rpartition(".")[2] if "." in pattern else "txt"
    assert f".{suffix}" in said


@pytest.mark.anyio
@pytest.mark.parametrize("request_", GREP)
async def test_a_request_for_words_in_files_finds_them_as_they_are_written(
    request_: str, place: Path
) -> None:
    assert "notes.txt" in await _answer(request_, "Grep", {"pattern": GREP[request_]}, place)


@pytest.mark.parametrize("request_", NOTHING_PLAIN)
def test_ambiguous_requests_are_left_to_skills(request_: str) -> None:
    assert detect_intent(request_) is None


def test_a_long_request_is_never_plain() -> None:
    assert detect_intent("1 + " * 70 + "1") is not None
    assert detect_intent("1 + " * MAX_INTENT_CHARS + "1") is None
    assert detect_intent("what time is it" + " " * MAX_INTENT_CHARS) is None


@pytest.mark.parametrize(
    "text",
    ["Hello!", "hi there", "thanks", "Who are you?", "what can you do", "你好", "您好！", "谢谢",
     "你是谁？"],
)  # fmt: skip
def test_small_talk_is_detected(text: str) -> None:
    assert is_small_talk(text)
    assert detect_intent(text) is None


@pytest.mark.parametrize(
    "text",
    ["Hello world in Rust", "thank-you letter to a customer", "help me with my CV",
     "你好世界程序怎么写", ""],
)  # fmt: skip
def test_a_task_that_begins_like_small_talk_is_no_small_talk(text: str) -> None:
    assert not is_small_talk(text)


@pytest.mark.parametrize(
    "text",
    [
        "Delete everything in /etc.", "rm -rf /", "please delete all files", "Wipe the disk",
        "erase my files", "删除 /etc 里的所有东西。", "清空文件夹", "请删除所有文件",
        "把 /etc 下的文件都删除", "格式化硬盘",
    ],
)  # fmt: skip
def test_destructive_requests_are_detected(text: str) -> None:
    assert is_destructive_request(text)
    assert detect_intent(text) is None


@pytest.mark.parametrize(
    "text",
    ["Remove duplicate rows from data.csv", "delete the second paragraph", "format this JSON",
     "删除重复的行", "清洗数据", ""],
)  # fmt: skip
def test_removing_rows_or_words_is_not_destructive(text: str) -> None:
    assert not is_destructive_request(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("汇总 sales.csv", ["sales.csv"]),
        ("把sales.csv汇总", ["sales.csv"]),
        ("分析data/a.csv和b.tsv", ["data/a.csv", "b.tsv"]),
        ("请帮我把销售数据.csv做成报表", ["销售数据.csv"]),
        ("麻烦折腾sales.csv吧", ["sales.csv"]),
        ("数据2024.csv", ["数据2024.csv"]),
        ("把2024.csv画图", ["2024.csv"]),
        ("sales_数据.csv", ["sales_数据.csv"]),
        ("summarise 'my file.csv'", ["my file.csv"]),
        ("汇总“我的 数据.csv”", ["我的 数据.csv"]),
        ("Summarise sales.csv.", ["sales.csv"]),
        ("a.csv, b.csv and a.csv", ["a.csv", "b.csv"]),
        ("unpack a.tar.gz into ../up.txt", ["a.tar.gz", "../up.txt"]),
        ("/csv-report sales.csv", ["sales.csv"]),
        ("version 1.2, e.g. v1.2.3, of www.example.com or http://x.com/a.csv", []),
        ("'not a file' and \"neither\"", []),
    ],
)
def test_files_are_found_in_a_request(text: str, names: list[str]) -> None:
    assert list(extract_file_names(text)) == names


@pytest.mark.parametrize(
    ("text", "expected"),
    [("汇总 sales.csv", True), ("Summarise sales.csv", False), ("", False), ("17*23", False),
     ("用 python 写一个 hello world 程序", True), ("Translate 你好", True),
     ("Say 你 in English", False)],
)  # fmt: skip
def test_the_language_of_a_request_is_detected(text: str, expected: bool) -> None:
    assert is_chinese(text) is expected


@given(st.text(max_size=400))
def test_detection_is_deterministic_for_any_text(text: str) -> None:
    assert detect_intent(text) == detect_intent(text)
    for name in extract_file_names(text):
        assert is_file_name(name)
        assert name in text


_PIECES = (
    "1", "1+", "(", "1,", "1.", "-1", "% of ", "sqrt(", "the ", "please ", "please", "what is ",
    "算", "请", "的", "在", "在里的", "列出", "a", "a.", "./", "a.b", "*", "*.", "**/", "'", "“",
    " ", "? ", "!", "吗", "现在的", "我的", "当前", "delete ", "rm -a ", "all ", "everything ",
    "删除", "所有的", "把", "和", "把和", "文件", "read ", "show ", "list ", "the the ", "grep a",
)  # fmt: skip
_OPENINGS = (
    "",
    "what is ",
    "read ",
    "list ",
    "grep ",
    "delete ",
    "列出",
    "把",
    "现在",
    "1 + ",
    "'",
    "rm ",
)


def test_intent_rules_run_in_bounded_time() -> None:
    """All are judged by a process that may use a processor for half a minute and no longer."""
    program = (
        "from tests.models.test_intent_rules import judge_all\n"
        "judge_all()\n"
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")},
        preexec_fn=_bounded,
    )
    assert done.returncode == 0, done.stderr


def _bounded() -> None:
    spent = int(time.process_time()) + 30
    resource.setrlimit(resource.RLIMIT_CPU, (spent, spent))


def judge_all() -> None:
    """Judge texts that make a careless pattern try without end."""
    for opening in _OPENINGS:
        for piece in _PIECES:
            for end in ("", "！x"):
                for length in (MAX_INTENT_CHARS, 8 * MAX_INTENT_CHARS):
                    text = (opening + piece * length)[: length - len(end)] + end
                    detect_intent(text)
                    is_small_talk(text)
                    is_destructive_request(text)
                    extract_file_names(text)
                    is_chinese(text)
