"""Validator: every violation at once, at both levels."""

import os
from pathlib import Path, PurePosixPath

import pytest

from apexbridge.skills import validator as packages
from apexbridge.skills.model import Problem
from apexbridge.skills.validator import Level, Package, open_folder, validate
from apexbridge.testing import make_skill, skill_md


def _check(text: str | bytes, level: Level = "compat", folder: str = "pdf") -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    return [_told(problem) for problem in _rules(Package(folder=folder, skill_md=data), level)]


def _rules(package: Package, level: Level = "compat") -> list[Problem]:
    """Broken rules; advice has its own tests, and the descriptions here are short."""
    return [problem for problem in validate(package, level) if problem.severity != "advice"]


def _told(problem: Problem) -> str:
    mark = "" if problem.severity == "error" else "?"
    return f"{mark}{problem.code}@{problem.where.removeprefix('SKILL.md').removeprefix(':')}"


GOOD = "---\nname: pdf\ndescription: Reads PDF files.\n---\nDo it.\n"


@pytest.mark.parametrize("level", ["spec", "compat"])
def test_a_valid_skill_breaks_no_rule(level: Level) -> None:
    assert _check(GOOD, level) == []


def test_every_violation_is_reported_at_once_in_the_order_of_the_file() -> None:
    text = (
        "---\nname: PDF_x\ndescription: ''\ncompatibility: " + "x" * 501 + "\n"
        "context: never\nallowed-tools: Bash(\nunknown: 1\n---\nSee [a](b.md).\n"
    )
    assert _check(text) == [
        "name_not_lowercase@2",
        "name_characters@2",
        "name_mismatch@2",
        "description_empty@3",
        "?compatibility_too_long@4",
        "field_invalid@5",
        "?tool_pattern_invalid@6",
        "?unknown_key@7",
        "?reference_missing@9",
    ]


@pytest.mark.parametrize(
    ("field", "spec", "compat"),
    [
        ("context: fork", ["key_not_in_spec@4"], []),
        ("paths: '*.py'", ["key_not_in_spec@4"], []),
        ("context: never", ["key_not_in_spec@4"], ["field_invalid@4"]),
        ("authr: me", ["key_not_in_spec@4"], ["?unknown_key@4"]),
        ("descripton: x", ["key_not_in_spec@4"], ["?unknown_key_near@4"]),
        ("allowedTools: Read", ["key_not_in_spec@4"], []),
        ("allowed-tools: [Read, Grep]", ["tools_not_text@4"], []),
        ("allowed-tools: Read Grep", [], []),
        ("license: [a]", ["field_not_text@4"], ["field_not_text@4"]),
        ("metadata: {a: [b]}", ["?metadata_not_map@4"], ["?metadata_not_map@4"]),
        ("metadata: {apexbridge.context: fork}", [], []),
        ("metadata: {apexbridge.contxt: x}", ["?unknown_key@4"], ["?unknown_key@4"]),
        ("compatibility: needs: quotes", ["frontmatter_repaired@4"], ["?frontmatter_repaired@4"]),
    ],
)
@pytest.mark.promise("M02", "M13")
def test_the_levels_differ_where_the_format_ends(
    field: str, spec: list[str], compat: list[str]
) -> None:
    text = f"---\nname: pdf\ndescription: d\n{field}\n---\nDo it.\n"
    assert (_check(text, "spec"), _check(text, "compat")) == (spec, compat)


@pytest.mark.promise("M08")
def test_reserved_names_are_refused_by_us_alone_and_those_of_vendors_are_a_warning() -> None:
    text = "---\nname: con\ndescription: d\n---\nDo it.\n"
    assert _check(text, "spec", "con") == []
    assert _check(text, "compat", "con") == ["name_reserved@2"]
    text = "---\nname: claude-x\ndescription: d\n---\nDo it.\n"
    assert _check(text, "spec", "claude-x") == []
    assert _check(text, "compat", "claude-x") == ["?name_of_vendor@2"]


@pytest.mark.promise("M08")
def test_a_missing_name_violates_the_format_and_is_reported() -> None:
    text = "---\ndescription: d\n---\nDo it.\n"
    assert _check(text, "spec") == ["name_missing@1"]
    assert _check(text, "compat") == ["?name_missing@1"]
    assert _check(text, "compat", "No Name") == [
        "?name_missing@1",
        "name_not_lowercase@1",
        "name_characters@1",
    ]


@pytest.mark.promise("M08", "M09")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("name: pdf\n", ["description_missing@1"]),
        ("name: pdf\ndescription:\n", ["description_empty@3"]),
        ("name: pdf\ndescription: '  '\n", ["description_empty@3"]),
        ("name: pdf\ndescription: [a]\n", ["field_not_text@3"]),
        (f"name: pdf\ndescription: {'技' * 1024}\n", []),
        ("name:\ndescription: d\n", ["name_empty@2"]),
        ("name: [pdf]\ndescription: d\n", ["field_not_text@2"]),
        ("name: ../../x\ndescription: d\n", ["name_characters@2", "name_mismatch@2"]),
    ],
)
def test_names_and_descriptions_are_held_to_their_rules(fields: str, expected: list[str]) -> None:
    for level in ("spec", "compat"):
        assert _check(f"---\n{fields}---\nDo it.\n", level) == expected


@pytest.mark.promise("M09")
@pytest.mark.parametrize(
    ("field", "code"),
    [
        (f"description: {'技' * 1025}", "description_too_long@3"),
        (f"description: d\ncompatibility: {'x' * 501}", "compatibility_too_long@4"),
    ],
)
def test_a_text_over_the_length_of_the_format_is_an_error_of_the_format_and_a_warning_here(
    field: str, code: str
) -> None:
    text = f"---\nname: pdf\n{field}\n---\nDo it.\n"
    assert _check(text, "spec") == [code]
    assert _check(text) == [f"?{code}"]


def test_a_tool_pattern_of_another_client_grants_nothing_and_is_no_error() -> None:
    text = "---\nname: pdf\ndescription: d\n{}: ['Azure MCP/documentation']\n---\nDo it.\n"
    assert _check(text.format("allowed-tools")) == ["?tool_pattern_invalid@4"]
    # Withholding it would silently not happen, so there it is an error.
    assert _check(text.format("disallowed-tools")) == ["tool_pattern_invalid@4"]


@pytest.mark.parametrize("key", ["tags", "Tags", "keywords", "author", "category", "triggers"])
def test_a_key_that_only_describes_is_known(key: str) -> None:
    text = f"---\nname: pdf\ndescription: d\n{key}: [a, b]\n---\nDo it.\n"
    assert _check(text) == []
    assert _check(text, "spec") == ["key_not_in_spec@4"]


@pytest.mark.promise("M14")
def test_endless_braces_are_an_error() -> None:
    text = f"---\nname: pdf\ndescription: d\npaths: '{'{a,b}' * 30}'\n---\nDo it.\n"
    assert _check(text) == ["path_pattern_too_wide@4"]


@pytest.mark.promise("M01", "M03", "M04", "M05", "M06", "M12")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"# Only text\n", "frontmatter_missing"),
        (b"---\nname: pdf\n", "frontmatter_unclosed"),
        (b"---\nname: !!python/name:os.system\n---\n", "frontmatter_tag"),
        (b"---\na: &a [x]\nb: [*a, *a]\n---\n", "frontmatter_alias"),
        (b"---\na: " + b"[" * 5_000 + b"\n---\n", "frontmatter_too_deep"),
        (b"---\nname: a\nname: b\n---\n", "duplicate_key"),
        ("---\nname: a\n---\n".encode("utf-16"), "encoding_utf16"),
        ("---\nname: 技能\n---\n".encode("gbk"), "encoding_not_utf8"),
        (b"---\nname: a\0\n---\n", "encoding_nul"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(data: bytes, code: str) -> None:
    for level in ("spec", "compat"):
        (found,) = _check(data, level)
        assert found.split("@")[0] == code


@pytest.mark.promise("M16")
def test_references_are_followed_on_paper_only() -> None:
    body = (
        "[ok](references/a.md) [ok](./references/a.md#top) [web](https://example.org/x.md)\n"
        "[gone](references/b.md) [out](../../etc/passwd) [abs](/etc/passwd) [home](~/x)\n"
        "`${CLAUDE_SKILL_DIR}/scripts/run.py` [in](references/../scripts) [top](#here)\n"
        "```\n[example](in/code.md)\n```\n[gone](references/b.md)\n"
    )
    files = frozenset(
        path for name in ("references/a.md", "scripts/main.py") for path in _with_parents(name)
    )
    package = Package(folder="pdf", skill_md=skill_md("pdf", body=body), files=files)
    assert [(p.code, p.details["path"]) for p in _rules(package)] == [
        ("reference_missing", "references/b.md"),
        ("reference_outside", "../../etc/passwd"),
        ("reference_outside", "/etc/passwd"),
        ("reference_outside", "~/x"),
        ("reference_missing", "scripts/run.py"),
    ]


def _with_parents(name: str) -> list[PurePosixPath]:
    path = PurePosixPath(name)
    return [path, *path.parents]


def test_references_of_a_body_are_checked_up_to_a_limit() -> None:
    body = "".join(f"[x](f{number}.md)\n" for number in range(3_000))
    package = Package(folder="pdf", skill_md=skill_md("pdf", body=body))
    assert len(_rules(package)) == 1_000


def test_an_empty_body_is_reported() -> None:
    assert _check("---\nname: pdf\ndescription: d\n---\n \n") == ["?body_empty@"]


def test_the_placeholder_description_is_reported() -> None:
    text = "---\nname: pdf\ndescription: Say here what this skill does, please\n---\nDo it.\n"
    assert _check(text) == ["?description_placeholder@3"]


def test_links_and_devices_in_a_folder_are_problems(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf")
    (root / "away").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    package = open_folder(root)
    assert isinstance(package, Package)
    assert [(p.code, p.where) for p in _rules(package)] == [
        ("tree_odd_file", "away"),
        ("tree_odd_file", "pipe"),
    ]


def test_a_link_that_stays_inside_is_no_problem_and_what_it_points_to_is_there(
    tmp_path: Path,
) -> None:
    body = "Read [it](docs/a.md) and [that](again/a.md)."
    root = make_skill(tmp_path, "pdf", files={"references/a.md": "x"}, body=body)
    (root / "docs").mkdir()
    (root / "docs/a.md").symlink_to("../references/a.md")
    (root / "again").symlink_to("references")
    package = open_folder(root)
    assert isinstance(package, Package)
    assert validate(package) == ()


def test_a_folder_without_skill_md_is_one_problem(tmp_path: Path) -> None:
    problem = open_folder(tmp_path)
    assert isinstance(problem, Problem)
    assert problem.code == "skill_md_missing"


def test_a_link_to_a_skill_is_held_to_the_name_of_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(make_skill(tmp_path, "pdf"))
    package = open_folder(tmp_path / "alias")
    assert isinstance(package, Package)
    assert _rules(package) == []


def test_a_folder_of_too_many_files_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_skill(tmp_path, "pdf", files={"a": "", "b": ""})
    monkeypatch.setattr(packages.tree, "MAX_FILES", 2)
    package = open_folder(root)
    assert isinstance(package, Package)
    assert [p.code for p in package.problems] == ["tree_too_large"]


def test_a_folder_that_vanishes_while_it_is_read_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(_: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    root = make_skill(tmp_path, "pdf")
    monkeypatch.setattr(packages.links, "copied_entries", vanish)
    package = open_folder(root)
    assert isinstance(package, Package)
    assert [p.code for p in package.problems] == ["folder_unreadable"]
