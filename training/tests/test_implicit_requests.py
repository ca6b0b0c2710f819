"""Things that are asked for without their names, and the skills that are about them."""

import random
from pathlib import Path

import pytest

from training.implicit_requests import Topic, read_things, skills_about
from training.jsonl import write_rows


def _thing(*names: str) -> Topic:
    return Topic(names=names, what={"en": "a tool", "zh": "工具"}, requests=("that one",))


@pytest.mark.parametrize(
    ("names", "name", "description", "is_about"),
    [
        (("Signal",), "signal-sender", "Send messages", True),
        (("Signal",), "messenger", "Send messages over Signal", True),
        (("Signal",), "plots", "Plot a signal", False),
        (("Signal",), "plots", "Plots. " * 40 + "Signal", False),
        (("VS Code",), "editor", "Settings of VS Code.", True),
        (("VS Code",), "editor", "VS has Code", False),
        (("Feishu", "飞书"), "chat", "把消息发到飞书群", True),
        (("C++",), "build", "Build C++ projects", True),
        (("C",), "build", "Build C++ projects", False),
    ],
)
def test_a_skill_is_about_what_its_name_or_beginning_names(
    names: tuple[str, ...], name: str, description: str, *, is_about: bool
) -> None:
    skill = {"name": name, "description": description}
    found = skills_about([_thing(*names)], [skill], random.Random(1))  # noqa: S311
    assert found == [[skill] if is_about else []]


def test_only_a_few_skills_of_many_are_taken() -> None:
    skills = [{"name": f"signal-{n}", "description": ""} for n in range(40)]
    (found,) = skills_about([_thing("Signal")], skills, random.Random(1))  # noqa: S311
    assert len(found) == 4


def test_a_thing_stands_under_a_name_of_the_language() -> None:
    assert list(_thing("飞书", "Feishu").texts()) == ["Feishu. a tool", "飞书. 工具"]
    assert list(_thing("Signal").texts()) == ["Signal. a tool", "Signal. 工具"]


def test_the_same_thing_twice_is_one(tmp_path: Path) -> None:
    row = {"names": ["Signal"], "what_en": "a", "what_zh": "b", "en": ["c"], "zh": ["d"]}
    for place in "ab":
        write_rows(tmp_path / f"things-{place}.jsonl", [row | {"what_en": place}])
    (thing,) = read_things(tmp_path)
    assert thing.what["en"] == "a"
    assert thing.requests == ("c", "d")
