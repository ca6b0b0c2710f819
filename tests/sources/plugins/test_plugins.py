"""Plugin and marketplace discovery, and the skills of plugins."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from apexbridge.catalog.catalog import SourceState
from apexbridge.errors import SkillNotFoundError, UnsafePathError
from apexbridge.permissions.rules import ToolPattern
from apexbridge.skills.model import Origin, Problem
from apexbridge.sources.folders import DEFAULT_LIMITS, ScanLimits
from apexbridge.sources.plugins.finder import PluginSource, find_plugins
from apexbridge.testing import MemorySource, make_skill, skill_md

pytestmark = pytest.mark.anyio


def _plugin(root: Path, manifest: Mapping[str, Any] | bytes | None = None) -> Path:
    values = {"name": root.name} if manifest is None else manifest
    return _manifest(root, "plugin.json", values)


def _manifest(root: Path, name: str, values: Mapping[str, Any] | bytes) -> Path:
    path = root / ".claude-plugin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(values if isinstance(values, bytes) else json.dumps(values).encode())
    return root


def _market(root: Path, *plugins: object, **fields: object) -> Path:
    return _manifest(root, "marketplace.json", {"name": "m", "plugins": plugins, **fields})


def _find(
    *paths: Path,
    config: Mapping[str, Mapping[str, str]] | None = None,
    disabled: Collection[str] = (),
    limits: ScanLimits = DEFAULT_LIMITS,
) -> tuple[list[PluginSource], list[Problem]]:
    data = paths[0].parent / "data"
    return find_plugins(paths, data=data, config=config or {}, disabled=disabled, limits=limits)


def _codes(problems: Collection[Problem]) -> list[str]:
    return [problem.code for problem in problems]


async def _names(*paths: Path) -> list[str]:
    sources, problems = _find(*paths)
    assert _codes(problems) == []
    return [skill.name for source in sources for skill in (await source.scan()).skills]


async def test_skills_carry_the_name_of_their_plugin(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "super")
    make_skill(root / "skills", "plan", body="Plan it.", files={"a.txt": "a"})
    (source,), problems = _find(root)
    scan = await source.scan()
    (skill,) = scan.skills
    assert (problems, scan.problems) == ([], ())
    assert skill.name == "super:plan"
    content = await source.content(skill)
    assert (content.body, content.skill) == ("Plan it.", skill)
    resource = await source.resource(skill, PurePosixPath("a.txt"))
    assert (resource.data, resource.skill) == (b"a", skill)


async def test_folders_between_become_a_namespace(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p")
    make_skill(root / "skills/review", "code")
    make_skill(root / "skills/审查/Deep Down", "text", body="甲")
    (source,), _ = _find(root)
    skills = (await source.scan()).skills
    assert [skill.name for skill in skills] == ["p:review:code", "p:审查:deep-down:text"]
    assert (await source.content(skills[1])).body == "甲"


async def test_what_a_plugin_brings_is_not_trusted_and_says_who_lists_it(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p")
    make_skill(root / "skills", "a")
    (source,), _ = _find(root)
    (skill,) = (await source.scan()).skills
    facts = skill.provenance
    assert facts.source_id == source.id == f"plugin:p@{root}"
    assert (facts.origin, facts.needs_trust, facts.writable) == (Origin.PLUGIN, True, False)
    assert (facts.may_run_shell, skill.is_trusted) == (True, False)
    assert root / "skills" in source.roots
    await source.close()


@pytest.mark.parametrize(
    "said",
    [
        {"skillsPath": "more"},
        {"skillsPaths": ["./more"]},
        {"skills": "./more/"},
        {"skills": ["./more", "more"], "skillsPath": "more"},
    ],
    ids=["skillsPath", "skillsPaths", "skills", "all"],
)
async def test_the_manifest_says_where_skills_are(tmp_path: Path, said: dict[str, Any]) -> None:
    root = _plugin(tmp_path / "p", {"name": "p", **said})
    make_skill(root / "skills", "default")
    make_skill(root / "more", "named")
    assert await _names(root) == ["p:named"]


@pytest.mark.parametrize("said", [{}, {"skills": []}, {"skillsPath": ""}, {"skills": None}])
async def test_skills_are_in_skills_when_nothing_is_said(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    root = _plugin(tmp_path / "p", {"name": "p", **said})
    make_skill(root / "skills", "default")
    assert await _names(root) == ["p:default"]


async def test_a_plugin_without_skills_is_no_fault(tmp_path: Path) -> None:
    assert await _names(_plugin(tmp_path / "p")) == []


@pytest.mark.parametrize(
    ("raw", "name"), [(skill_md("pdf"), "tool:pdf"), (b"---\ndescription: x\n---\nx", "tool:tool")]
)
async def test_a_plugin_that_is_itself_a_skill_is_that_one(
    tmp_path: Path, raw: bytes, name: str
) -> None:
    root = make_skill(tmp_path, "1.2.0", raw=raw, files={"a.txt": "a"})
    make_skill(root / "skills", "inner")
    _plugin(root, {"name": "tool"})
    (source,), problems = _find(root)
    scan = await source.scan()
    (skill,) = scan.skills
    assert (skill.name, skill.root) == (name, root)
    assert problems == []
    assert _codes(scan.problems) == []
    assert (await source.resource(skill, PurePosixPath("a.txt"))).data == b"a"
    with pytest.raises(UnsafePathError):
        await source.resource(skill, PurePosixPath("../data"))


async def test_a_path_may_name_one_skill(tmp_path: Path) -> None:
    said = {"name": "p", "skills": ["./skills/b", "./skills", "./skills/b"]}
    root = _plugin(tmp_path / "p", said)
    for name in ("a", "b"):
        make_skill(root / "skills", name, body=name)
    (source,), problems = _find(root)
    skills = (await source.scan()).skills
    assert problems == []
    assert [skill.name for skill in skills] == ["p:b", "p:a"]
    assert [(await source.content(skill)).body for skill in skills] == ["b", "a"]


async def test_skills_of_several_folders_are_each_read_from_their_own(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p", {"name": "p", "skills": ["./one", "./two"]})
    make_skill(root / "one/sub", "a", body="1")
    make_skill(root / "two/sub", "b", body="2")
    (source,), _ = _find(root)
    skills = (await source.scan()).skills
    assert [skill.name for skill in skills] == ["p:sub:a", "p:sub:b"]
    assert [(await source.content(skill)).body for skill in skills] == ["1", "2"]
    for skill in skills:
        assert (await source.resource(skill, PurePosixPath("SKILL.md"))).skill == skill


async def test_an_edit_that_goes_wrong_keeps_the_skill_listed(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p")
    folder = make_skill(root / "skills", "a", body="${user_config.x}")
    (source,), _ = _find(root)
    assert _codes((await source.scan()).problems) == ["plugin_config_missing"]
    (folder / "SKILL.md").write_text("broken", encoding="utf-8")
    scan = await source.scan()
    assert [skill.name for skill in scan.skills] == ["p:a"]
    assert _codes(scan.problems) == ["frontmatter_missing", "last_good_kept"]


async def test_overlapping_paths_list_a_skill_once_under_its_first_name(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p", {"name": "p", "skills": ["./skills", "./skills/sub"]})
    make_skill(root / "skills/sub", "a", body="A")
    (source,), _ = _find(root)
    (skill,) = (await source.scan()).skills
    assert skill.name == "p:sub:a"
    assert (await source.content(skill)).body == "A"


async def test_problems_of_skills_say_whose_they_are(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p", {"name": "p", "skills": ["./skills", "./one"]})
    make_skill(root / "skills/group", "x", raw=b"nothing")
    make_skill(root, "one", raw=b"nothing")
    (source,), _ = _find(root)
    scan = await source.scan()
    assert [(p.where, p.code) for p in scan.problems] == [
        ("p/skills/group/x/SKILL.md:1", "frontmatter_missing"),
        ("p/one/SKILL.md:1", "frontmatter_missing"),
    ]


async def test_a_skill_gone_since_it_was_found_is_a_problem(tmp_path: Path) -> None:
    root = make_skill(_plugin(tmp_path / "p", {"name": "p", "skills": "one"}), "one")
    (source,), _ = _find(tmp_path / "p")
    (root / "SKILL.md").unlink()
    scan = await source.scan()
    assert [(p.where, p.code) for p in scan.problems] == [("p/one", "skill_md_missing")]


async def test_a_folder_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p", {"name": "p", "skills": ["./a", "./b"]})
    make_skill(root / "a", "x")
    make_skill(root / "b", "y")
    (source,), _ = _find(root)
    for path in ("a/x/SKILL.md", "a/x", "a"):
        (root / path).unlink() if path.endswith(".md") else (root / path).rmdir()
    (root / "a").write_text("a file now", encoding="utf-8")
    scan = await source.scan()
    assert [skill.name for skill in scan.skills] == ["p:y"]
    assert [(p.where, p.code) for p in scan.problems] == [("p/a", "source_unreadable")]


@pytest.mark.parametrize(
    "path",
    ["../out", "/etc", "a/../../out", "a/../skills", "~/x", "link", "ring", "a\\b", "C:", "\0"],
)
async def test_a_path_out_of_the_plugin_is_refused_and_the_rest_goes_on(
    tmp_path: Path, path: str
) -> None:
    make_skill(tmp_path / "out", "evil")
    root = _plugin(tmp_path / "p", {"name": "p", "skills": [path, "./skills"]})
    make_skill(root / "skills", "good")
    (root / "link").symlink_to(tmp_path / "out")
    (root / "ring").symlink_to("ring")
    (source,), problems = _find(root)
    assert _codes(problems) == ["path_unsafe"]
    assert [skill.name for skill in (await source.scan()).skills] == ["p:good"]


async def test_a_skills_folder_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    make_skill(tmp_path / "out", "evil")
    root = _plugin(tmp_path / "p")
    (root / "skills").symlink_to(tmp_path / "out")
    (source,), problems = _find(root)
    assert _codes(problems) == ["path_unsafe"]
    assert (await source.scan()).skills == ()


async def test_a_plugin_with_commands_only_is_there(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p")
    (root / "commands").mkdir()
    (root / "commands/push.md").write_text("Push it.", encoding="utf-8")
    (source,), _ = _find(root)
    scan = await source.scan()
    assert [skill.name for skill in scan.skills] == ["p:push"]
    assert SourceState(source=source, source_id=source.id, scan=scan).is_there()
    (root / "commands/push.md").unlink()
    (root / "commands").rmdir()
    assert not SourceState(source=source, source_id=source.id, scan=await source.scan()).is_there()


async def test_a_missing_path_is_reported(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p", {"name": "p", "skills": ["./gone", "x" * 300]})
    _, problems = _find(root)
    assert [(p.code, p.severity) for p in problems] == [("path_missing", "warning")] * 2


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"",
        b"[]",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"name": "\\ud800"}',
        b'{"name": "p", "x": "' + b"y" * (1024 * 1024) + b'"}',
    ],
    ids=["cut", "empty", "list", "utf-16", "deep", "surrogate", "huge"],
)
@pytest.mark.parametrize("name", ["plugin.json", "marketplace.json"])
async def test_a_manifest_that_is_no_sane_json_is_a_problem(
    tmp_path: Path, name: str, data: bytes
) -> None:
    root = _manifest(tmp_path / "bad", name, data)
    good = _plugin(tmp_path / "good")
    sources, problems = _find(root, good)
    assert [source.plugin.name for source in sources] == ["good"]
    assert _codes(problems) == ["plugin_manifest_invalid"]
    assert problems[0].where == str(root / ".claude-plugin" / name)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "linked folder", "locked"])
async def test_a_manifest_that_is_no_plain_file_is_a_problem(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "p"
    path = root / ".claude-plugin/plugin.json"
    elsewhere = _plugin(tmp_path / "else")
    path.parent.mkdir(parents=True)
    if kind == "link":
        path.symlink_to(elsewhere / ".claude-plugin/plugin.json")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "linked folder":
        path.parent.rmdir()
        path.parent.symlink_to(elsewhere / ".claude-plugin")
    else:
        _plugin(root)
        monkeypatch.setattr(os, "open", _refuse)
    sources, problems = _find(root)
    assert (sources, _codes(problems)) == ([], ["plugin_manifest_invalid"])


def _refuse(*_: object, **__: object) -> int:
    raise PermissionError(13, "Permission denied")


async def test_invalid_fields_are_left_out_and_reported(tmp_path: Path) -> None:
    values = {"name": "p", "version": 2, "skills": [7], "skillsPath": {"a": 1}, "hooks": "kept"}
    root = _plugin(tmp_path / "p", values)
    make_skill(root / "skills", "a")
    (source,), problems = _find(root)
    assert [p.details["key"] for p in problems] == ["version", "skillsPath", "skills"]
    assert [skill.name for skill in (await source.scan()).skills] == ["p:a"]


@pytest.mark.parametrize(
    ("written", "used", "code"),
    [
        ({}, "folder", "plugin_name_missing"),
        ({"name": " "}, "folder", "plugin_name_missing"),
        ({"name": "My Plugin"}, "my-plugin", "plugin_name_replaced"),
        ({"name": "../x"}, "x", "plugin_name_replaced"),
        ({"name": "!"}, "folder", "plugin_name_replaced"),
        ({"name": "a:b"}, "a-b", "plugin_name_replaced"),
    ],
)
async def test_a_missing_or_invalid_name_is_replaced_and_reported(
    tmp_path: Path, written: dict[str, str], used: str, code: str
) -> None:
    (source,), problems = _find(_plugin(tmp_path / "folder", written))
    assert source.plugin.name == used
    assert [(p.code, p.severity) for p in problems] == [(code, "warning")]
    assert used in problems[0].message


async def test_a_plugin_of_which_no_name_remains_is_still_there(tmp_path: Path) -> None:
    (source,), _ = _find(_plugin(tmp_path / "!!", {}))
    assert source.plugin.name == "plugin"


async def test_a_byte_order_mark_before_the_manifest_is_fine(tmp_path: Path) -> None:
    (source,), problems = _find(_plugin(tmp_path / "p", b'\xef\xbb\xbf{"name": "p"}'))
    assert (source.plugin.name, problems) == ("p", [])


async def test_paths_that_lead_to_no_plugin_are_problems(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/.claude-plugin").write_text("", encoding="utf-8")
    paths = [tmp_path / name for name in ("nowhere", "file", "ring", "empty", "odd")]
    sources, problems = _find(*paths)
    assert sources == []
    assert _codes(problems) == [*["path_missing"] * 3, *["plugin_missing"] * 2]


async def test_the_first_of_two_plugins_with_one_name_wins(tmp_path: Path) -> None:
    one = _plugin(tmp_path / "one", {"name": "Same"})
    two = _plugin(tmp_path / "two", {"name": "same"})
    sources, problems = _find(one, two, one)
    assert [source.plugin.root for source in sources] == [one]
    assert [(p.code, p.details["winner"]) for p in problems] == [("plugin_shadowed", one)]


async def test_a_disabled_plugin_is_left_out(tmp_path: Path) -> None:
    one, two = _plugin(tmp_path / "one"), _plugin(tmp_path / "two")
    sources, problems = _find(one, two, disabled=["One", "unknown"])
    assert [source.plugin.name for source in sources] == ["two"]
    assert problems == []


async def test_a_plugin_behind_a_symlink_is_resolved(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "real", {"name": "p"})
    (tmp_path / "link").symlink_to(root)
    (source,), _ = _find(tmp_path / "link")
    assert source.plugin.root == root


async def test_a_marketplace_lists_plugins_by_path(tmp_path: Path) -> None:
    root = _market(
        tmp_path / "m",
        {"name": "a", "source": "./plugins/a"},
        {"name": "b", "source": "plugins/b", "strict": False},
        {"name": "c", "source": "./", "strict": False, "skills": ["./extra/x"]},
        {"name": "d", "source": "./", "strict": False, "skills": "./extra/y"},
    )
    _plugin(root / "plugins/a")
    make_skill(root / "plugins/a/skills", "one")
    make_skill(root / "plugins/b/skills", "two")
    for name in ("x", "y"):
        make_skill(root / "extra", name)
    assert await _names(root) == ["a:one", "b:two", "c:x", "d:y"]


async def test_paths_of_a_marketplace_start_at_its_plugin_root(tmp_path: Path) -> None:
    entries = [{"name": name, "source": f"./{path}"} for name, path in
               (("a", "a"), ("b", "plugins/b"), ("gone", "gone"))]  # fmt: skip
    root = _market(tmp_path / "m", *entries, metadata={"pluginRoot": "./plugins"})
    for name in ("a", "b"):
        make_skill(_plugin(root / "plugins" / name) / "skills", "s")
    sources, problems = _find(root)
    assert [source.plugin.name for source in sources] == ["a", "b"]
    assert [(p.code, p.details["path"]) for p in problems] == [
        ("path_missing", root / "plugins/gone")
    ]


async def test_a_plugin_root_that_leaves_is_not_used(tmp_path: Path) -> None:
    _plugin(tmp_path / "a")
    root = _market(tmp_path / "m", {"source": "./a"}, metadata={"pluginRoot": "../"})
    sources, problems = _find(root)
    assert (sources, _codes(problems)) == ([], ["path_missing"])


@pytest.mark.parametrize(
    "source",
    [
        {"source": "npm", "package": "a"},
        {"source": "git-subdir", "url": "u", "path": "p"},
        "https://example.com/x.git",
        "../out",
        "/etc",
        "link",
        "",
        None,
        7,
    ],
    ids=range(9),
)
async def test_path_traversal_out_of_the_marketplace_is_reported(
    tmp_path: Path, source: object
) -> None:
    _plugin(tmp_path / "out")
    root = _market(tmp_path / "m", {"name": "x", "source": source}, {"source": "ok"})
    (root / "link").symlink_to(tmp_path / "out")
    _plugin(root / "ok")
    sources, problems = _find(root)
    assert [found.plugin.name for found in sources] == ["ok"]
    code = "path_missing" if source == "https://example.com/x.git" else "plugin_source_unsupported"
    assert [(p.code, p.severity) for p in problems] == [(code, "warning")]


async def test_plugins_of_a_marketplace_share_skills_by_symlinks(tmp_path: Path) -> None:
    make_skill(tmp_path / "m/.claude/skills", "shared")
    root = _market(tmp_path / "m", {"source": "./plugins/one"}, {"source": "./plugins/two"})
    one = _plugin(root / "plugins/one", {"name": "one", "skills": ["./skills/shared"]})
    (one / "skills").mkdir()
    (one / "skills/shared").symlink_to("../../../.claude/skills/shared")
    two = _plugin(root / "plugins/two", {"name": "two"})
    (two / "skills").symlink_to("../../.claude/skills")
    assert await _names(root) == ["one:shared", "two:shared"]
    assert _codes(_find(one)[1]) == ["path_unsafe"]  # nothing lists it: it is alone
    (tmp_path / "m/.claude/commands").mkdir()
    (tmp_path / "m/.claude/commands/push.md").write_text("Push.\n", encoding="utf-8")
    (two / "commands").symlink_to("../../.claude/commands")
    assert sorted(await _names(root)) == ["one:shared", "two:push", "two:shared"]
    assert _find(root)[1] == []


@pytest.mark.parametrize(
    "path", ["link", "../../out", "/etc", "~/x", "plugins\\p", "\0", "ring", "./loop/skills"]
)
async def test_a_path_out_of_the_marketplace_of_a_plugin_is_refused(
    tmp_path: Path, path: str
) -> None:
    make_skill(tmp_path / "out", "evil")
    root = _market(tmp_path / "m", {"source": "./plugins/p"})
    plugin = _plugin(root / "plugins/p", {"name": "p", "skills": [path]})
    (plugin / "link").symlink_to(tmp_path / "out")
    (plugin / "ring").symlink_to("ring")
    (plugin / "loop").symlink_to("../../..")
    (source,), problems = _find(root)
    assert _codes(problems) == ["path_unsafe"]
    assert (await source.scan()).skills == ()


async def test_invalid_entries_are_reported_and_hide_no_other(tmp_path: Path) -> None:
    entry = {"name": 7, "source": "ok", "strict": "perhaps"}
    root = _market(tmp_path / "m", "text", entry)
    _plugin(root / "ok", {"name": "fine"})
    sources, problems = _find(root)
    assert [source.plugin.name for source in sources] == ["fine"]
    keys = ["plugins[0]", "plugins[1].name", "plugins[1].strict"]
    assert [(p.code, p.details["key"]) for p in problems] == [("field_invalid", k) for k in keys]


async def test_a_plugin_of_a_marketplace_that_nothing_describes_is_a_problem(
    tmp_path: Path,
) -> None:
    root = _market(tmp_path / "m", {"name": "a", "source": "./a"}, {"name": "b", "source": "./b"})
    (root / "a").mkdir()
    _plugin(root / "b", b"{")
    sources, problems = _find(root)
    assert sources == []
    assert _codes(problems) == ["plugin_manifest_missing", "plugin_manifest_invalid"]
    (root / "b/.claude-plugin/plugin.json").unlink()
    (root / "b/.claude-plugin/plugin.json").mkdir()
    assert _codes(_find(root)[1]) == ["plugin_manifest_missing", "plugin_manifest_invalid"]


async def test_a_marketplace_that_is_a_plugin_too_is_taken_once(tmp_path: Path) -> None:
    root = _plugin(_market(tmp_path / "m", {"name": "m", "source": "."}), {"name": "m"})
    make_skill(root / "skills", "a")
    assert await _names(root) == ["m:a"]
    _market(root, {"name": "sub", "source": "sub"})
    make_skill(_plugin(root / "sub") / "skills", "b")
    assert await _names(root) == ["sub:b", "m:a"]


async def test_an_entry_adds_to_what_the_plugin_says(tmp_path: Path) -> None:
    root = _market(tmp_path / "m", {"name": "listed", "source": "a", "skills": "more"})
    plugin = _plugin(root / "a", {"skills": "some"})
    make_skill(plugin / "some", "x")
    make_skill(plugin / "more", "y")
    assert await _names(root) == ["listed:x", "listed:y"]


async def test_a_marketplace_of_any_size_ends_and_says_so(tmp_path: Path) -> None:
    entries = [{"name": f"p{n}", "source": "p", "strict": False} for n in range(8)]
    root = _market(tmp_path / "m", *entries)
    (root / "p").mkdir()
    sources, problems = _find(root, limits=ScanLimits(max_folders=5))
    assert (len(sources), _codes(problems)) == (5, ["folder_limit"])


BODY = (
    "${CLAUDE_PLUGIN_ROOT}/run.sh --host ${user_config.host} ${user_config.empty}"
    " ${user_config.missing} ${CLAUDE_SKILL_DIR} ${user_config.} $ARGUMENTS"
)


async def test_variables_are_filled_in_one_pass_and_unknown_ones_stay(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "My.Plugin")
    make_skill(root / "skills", "a", body=BODY)
    values = {"host": r"${CLAUDE_PLUGIN_ROOT} \1 ${user_config.host}", "empty": ""}
    (source,), _ = _find(root, config={"my.plugin": values})
    scan = await source.scan()
    body = (await source.content(scan.skills[0])).body
    assert body == (
        f"{root}/run.sh --host {values['host']} "
        " ${user_config.missing} ${CLAUDE_SKILL_DIR} ${user_config.} $ARGUMENTS"
    )
    (problem,) = scan.problems
    assert (problem.code, problem.severity) == ("plugin_config_missing", "warning")
    assert problem.where == "My.Plugin/skills/a/SKILL.md"
    assert "${user_config.missing}" in problem.message
    assert not (tmp_path / "data").exists()


async def test_a_secret_is_never_put_into_text(tmp_path: Path) -> None:
    options = {"key": {"sensitive": True}, "host": {"sensitive": False}, "odd": "text"}
    root = _plugin(tmp_path / "p", {"name": "p", "userConfig": options})
    make_skill(root / "skills", "a", body="${user_config.key} ${user_config.host}")
    (source,), problems = _find(root, config={"p": {"key": "s3cret", "host": "h"}})
    scan = await source.scan()
    assert (await source.content(scan.skills[0])).body == "${user_config.key} h"
    assert (problems, _codes(scan.problems)) == ([], ["plugin_config_secret"])


async def test_the_data_folder_is_there_once_a_text_names_it(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p")
    make_skill(root / "skills", "a", body="Write to ${CLAUDE_PLUGIN_DATA}/x.")
    (source,), _ = _find(root)
    (skill,) = (await source.scan()).skills
    place = tmp_path / "data/plugins/p"
    assert not place.exists()
    assert (await source.content(skill)).body == f"Write to {place}/x."
    assert place.stat().st_mode & 0o777 == 0o700


async def test_the_body_is_loaded_although_the_data_folder_cannot_be_created(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").write_text("in the way", encoding="utf-8")
    root = _plugin(tmp_path / "p")
    make_skill(root / "skills", "a", body="${CLAUDE_PLUGIN_DATA}")
    (source,), _ = _find(root)
    (skill,) = (await source.scan()).skills
    assert (await source.content(skill)).body == f"{tmp_path}/data/plugins/p"
    assert "cannot create" in caplog.text


async def test_rules_and_hooks_name_the_plugins_own_folder(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p")
    run = "${CLAUDE_PLUGIN_ROOT}/run.sh"
    tools = [f"Bash({run}:*)", "Read", "Bash(${user_config.tool} *)"]
    hooks = {"Stop": [{"command": [run, "${user_config.tool}"]}]}
    make_skill(root / "skills", "a", allowed_tools=tools, hooks=hooks)
    (source,), _ = _find(root, config={"p": {"tool": "rm"}})
    (skill,) = (await source.scan()).skills
    assert skill.tools == (
        ToolPattern("Bash", f"{root}/run.sh *"),
        ToolPattern("Read"),
        ToolPattern("Bash", "${user_config.tool} *"),
    )
    assert skill.hooks[0].command == (f"{root}/run.sh", "${user_config.tool}")


async def test_skills_of_others_are_not_read(tmp_path: Path) -> None:
    one, two = _plugin(tmp_path / "one"), _plugin(tmp_path / "two")
    make_skill(one / "skills", "a")
    (first, second), _ = _find(one, two)
    (skill,) = (await first.scan()).skills
    foreign = (await MemorySource({"a": {"SKILL.md": skill_md("a")}}).scan()).skills[0]
    for source, unknown in ((second, skill), (first, foreign)):
        with pytest.raises(SkillNotFoundError):
            await source.content(unknown)
        with pytest.raises(SkillNotFoundError):
            await source.resource(unknown, PurePosixPath("SKILL.md"))


async def test_the_folder_limit_is_reported_with_the_full_path(tmp_path: Path) -> None:
    root = _plugin(tmp_path / "p")
    for name in ("a", "b", "c"):
        make_skill(root / "skills", name)
    (source,), _ = _find(root, limits=ScanLimits(max_folders=1))
    scan = await source.scan()
    assert [(p.where, p.code) for p in scan.problems] == [(str(root / "skills"), "folder_limit")]
