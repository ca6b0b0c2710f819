"""References of a text to files of its skill: what is prose, and what is missing."""

from pathlib import PurePosixPath

import pytest

from apexbridge.skills.references import reference_problems

FILES = frozenset(map(PurePosixPath, ("SKILL.md", "references", "references/a.md", "scripts")))


def _found(body: str) -> list[str]:
    return [f"{p.code}:{p.details['path']}@{p.where}" for p in reference_problems(body, 1, FILES)]


@pytest.mark.parametrize(
    "body",
    [
        "Write links as `[text](url)` or ``[a](b/c.md) `x` ``.",
        "Write links as [text](url), [text](URL) or [name](relative-url).",
        "The syntax is `![description](media/picture.png)` and\n`[two](lines/of.md)`.",
        "```markdown\n[link](./path.md)\n```\n",
        "1. First:\n\n   ```markdown\n   [link](./path.md)\n   ```\n",
        "````markdown\n```\n[link](./path.md)\n```\n[more](there.md)\n````\n",
        "~~~\n[link](./path.md)\n```\n[more](there.md)\n~~~\n",
        "- ```\n  [link](./path.md)\n  ```\n",
        "```\n[unclosed](to/the/end.md)\n",
        "<!-- [old](gone.md) -->",
        "[all](docs/*.md) [that](<file>.md) [one]({name}.md) [any](media/...) [x](path/to/file.md)",
        "[wiki](internal-wiki/runbook) [here](#top) [web](//cdn.example.org/x.js)",
        "[another skill](../other-skill/SKILL.md) [and its folder](../other-skill/)",
        "[coded](references/a%2Emd) [it](references/a.md#part) [x](./scripts/../references/a.md)",
        "grep -e '[0-9]+(a|b|c)'",
    ],
)
def test_prose_and_examples_are_no_missing_reference(body: str) -> None:
    assert _found(body) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("See [it](references/b.md).", "reference_missing:references/b.md@SKILL.md:1"),
        ("\n\nSee [it](b.md)", "reference_missing:b.md@SKILL.md:3"),
        ("Run [it](scripts/run)", "reference_missing:scripts/run@SKILL.md:1"),
        ("The [licence](LICENSE)", "reference_missing:LICENSE@SKILL.md:1"),
        ("All of [it](guides/)", "reference_missing:guides/@SKILL.md:1"),
        ("`${CLAUDE_SKILL_DIR}/scripts/x.py`.", "reference_missing:scripts/x.py@SKILL.md:1"),
        ("An unclosed ` and [it](b.md)", "reference_missing:b.md@SKILL.md:1"),
        ("One ` tick.\n\n[it](b.md) and ` one.", "reference_missing:b.md@SKILL.md:3"),
        ("```\ncode\n```\n[it](b.md)", "reference_missing:b.md@SKILL.md:4"),
        ("[out](../../etc/passwd)", "reference_outside:../../etc/passwd@SKILL.md:1"),
        ("[out](../README.md)", "reference_outside:../README.md@SKILL.md:1"),
        ("[out](/etc/passwd)", "reference_outside:/etc/passwd@SKILL.md:1"),
    ],
)
def test_a_missing_file_is_reported_at_its_line(body: str, expected: str) -> None:
    assert _found(body) == [expected]


def test_a_text_of_backticks_takes_no_long_time() -> None:
    # Quadratic pairing would take minutes; the test's own deadline would end it.
    body = "".join("`" * (number % 60 + 1) + " x " for number in range(20_000))
    assert _found(body) == []
