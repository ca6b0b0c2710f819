"""Plugins and marketplaces of every client: Agent Plugins 1.0, Codex, Copilot, and no manifest."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from apexbridge.skills.model import Problem
from apexbridge.sources.plugins.finder import PluginSource, find_plugins
from apexbridge.sources.plugins.marketplace_source import local_path, remote_address
from apexbridge.sources.repository import discover_skills
from apexbridge.testing import make_skill, skill_md

pytestmark = pytest.mark.anyio

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"


def _write(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def _agent_plugin(root: Path, **fields: object) -> Path:
    _write(root / "plugin.json", {"$schema": SCHEMA, "name": root.name, **fields})
    return root


def _find(*paths: Path) -> tuple[list[PluginSource], list[Problem]]:
    return find_plugins(paths, data=paths[0].parent / "data", config={}, disabled=())


async def _names(*paths: Path) -> list[str]:
    sources, problems = _find(*paths)
    assert [problem.message for problem in problems] == []
    return [skill.name for source in sources for skill in (await source.scan()).skills]


def _codes(problems: Collection[Problem]) -> list[str]:
    return [problem.code for problem in problems]


# --- Agent Plugins


async def test_an_agent_plugin_has_its_skills_directly_below_skills(tmp_path: Path) -> None:
    root = _agent_plugin(tmp_path / "acme.tools", version="1", keywords=["a"], author={"name": "x"})
    make_skill(root / "skills", "one")
    make_skill(root / "skills/group", "deeper")
    make_skill(root / "other", "two")
    (source,), problems = _find(root)
    scan = await source.scan()
    assert (problems, [skill.name for skill in scan.skills]) == ([], ["acme.tools:one"])
    assert _codes(scan.problems) == ["folder_not_searched"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "My-Plugin"}, "name"),
        ({"name": "a--b"}, "name"),
        ({"name": "a..b"}, "name"),
        ({"name": "-a"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"name": None}, "name"),
        ({"version": 1}, "version"),
        ({"keywords": "a"}, "keywords"),
        ({"author": "x"}, "author"),
        ({"author": {"name": "x", "age": 1}}, "author.age"),
        ({"license": None}, "license"),
        ({"$schema": "https://agent-plugins.org/schemas/2.0.0/plugin.schema.json"}, "$schema"),
    ],
)
async def test_a_manifest_that_the_specification_rejects_rejects_the_plugin(
    tmp_path: Path, fields: dict[str, object], says: str
) -> None:
    root = _agent_plugin(tmp_path / "p", **fields)
    make_skill(root / "skills", "one")
    sources, problems = _find(root)
    assert (sources, _codes(problems)) == ([], ["plugin_manifest_invalid"])
    assert says in problems[0].message


async def test_unknown_fields_and_extensions_are_reported_or_ignored(tmp_path: Path) -> None:
    root = _agent_plugin(tmp_path / "p", skills="./elsewhere", displayName="P", extensions=["x"])
    make_skill(root / "skills", "one")
    make_skill(root / "elsewhere", "two")
    (source,), problems = _find(root)
    assert [skill.name for skill in (await source.scan()).skills] == ["p:one"]
    keys = [problem.details["key"] for problem in problems]
    assert (keys, {p.severity for p in problems}) == (
        ["displayName", "skills", "extensions"],
        {"warning"},
    )
    _agent_plugin(root, extensions={"com.example.client": {"skills": ["./nowhere"]}})
    assert await _names(root) == ["p:one"]


async def test_the_fields_of_1_1_are_known(tmp_path: Path) -> None:
    newer = SCHEMA.replace("1.0.0", "1.1.0")
    root = _agent_plugin(tmp_path / "p", **{"$schema": newer}, displayName="P", icon="./a.png")
    make_skill(root / "skills", "one")
    assert await _names(root) == ["p:one"]


async def test_an_agent_plugin_without_skills_is_no_fault(tmp_path: Path) -> None:
    assert await _names(_agent_plugin(tmp_path / "p")) == []


async def test_an_agent_plugin_wins_over_other_manifests_and_their_secrets_stay_secret(
    tmp_path: Path,
) -> None:
    root = _agent_plugin(tmp_path / "p", name="portable")
    secret = {"key": {"sensitive": True}}
    _write(root / ".claude-plugin/plugin.json", {"name": "claude", "userConfig": secret})
    make_skill(root / "skills", "one")
    (source,), problems = _find(root)
    assert (problems, source.plugin.name, source.plugin.secrets) == ([], "portable", {"key"})


async def test_a_plugin_json_of_another_program_says_nothing(tmp_path: Path) -> None:
    root = tmp_path / "p"
    _write(root / ".claude-plugin/plugin.json", {"name": "claude"})
    _write(root / "plugin.json", {"name": "other", "$schema": "https://example.org/x.json"})
    make_skill(root / "skills", "one")
    assert await _names(root) == ["claude:one"]


# --- manifests of other clients, and none


@pytest.mark.parametrize(
    "place",
    ["plugin.json", ".plugin/plugin.json", ".github/plugin/plugin.json",
     ".codex-plugin/plugin.json", ".cursor-plugin/plugin.json"],
)  # fmt: skip
async def test_manifests_of_other_clients_are_read(tmp_path: Path, place: str) -> None:
    root = tmp_path / "p"
    _write(root / place, {"name": "named", "skills": "./here/"})
    make_skill(root / "here", "one")
    assert await _names(root) == ["named:one"]


async def test_a_folder_without_a_manifest_is_a_plugin_of_its_own_name(tmp_path: Path) -> None:
    make_skill(tmp_path / "My Tools/skills", "one")
    make_skill(tmp_path / "My Tools/skills/.curated", "two")
    (tmp_path / "agents-only/agents").mkdir(parents=True)
    assert await _names(tmp_path / "My Tools") == ["my-tools:one", "my-tools:.curated:two"]
    assert await _names(tmp_path / "agents-only") == []
    (tmp_path / "nothing/docs").mkdir(parents=True)
    assert _codes(_find(tmp_path / "nothing")[1]) == ["plugin_missing"]


async def test_a_repository_without_a_manifest_has_no_plugin(tmp_path: Path) -> None:
    make_skill(tmp_path / "repo/skills", "one")
    (skill,) = discover_skills(tmp_path / "repo").skills
    assert skill.plugin == ""


# --- marketplaces


async def test_a_marketplace_lists_a_plugin_that_has_no_manifest(tmp_path: Path) -> None:
    plugins = [{"name": "tools", "source": "./a"}, {"source": "./b"}]
    _write(tmp_path / "m/.claude-plugin/marketplace.json", {"plugins": plugins})
    make_skill(tmp_path / "m/a/skills", "one")
    (tmp_path / "m/b").mkdir()
    (tmp_path / "m/b/SKILL.md").write_bytes(skill_md("b"))
    sources, problems = _find(tmp_path / "m")
    names = [skill.name for source in sources for skill in (await source.scan()).skills]
    assert names == ["tools:one", "b:b"]
    assert _codes(problems) == ["plugin_name_missing"]


async def test_an_entry_that_is_not_strict_lists_its_own_skills(tmp_path: Path) -> None:
    entry = {"name": "docs", "source": "./", "strict": False}
    plugins = [
        {**entry, "skills": ["./skills/pdf", "./skills/docx"]},
        {**entry, "name": "one", "skills": "./skills/art"},
    ]
    _write(tmp_path / ".claude-plugin/marketplace.json", {"plugins": plugins})
    for name in ("pdf", "docx", "art", "unlisted"):
        make_skill(tmp_path / "skills", name)
    assert await _names(tmp_path) == ["docs:pdf", "docs:docx", "one:art"]


@pytest.mark.parametrize(
    "place",
    [".agents/plugins", ".github/plugin", ".plugin", ".cursor-plugin"],
)
async def test_marketplaces_of_other_clients_are_read(tmp_path: Path, place: str) -> None:
    plugins = [
        {"name": "a", "source": {"source": "local", "path": "./plugins/a"}},
        {"name": "b", "source": "plugins/b"},
        {"name": "c", "source": {"source": "url", "url": "./"}},
    ]
    _write(tmp_path / place / "marketplace.json", {"plugins": plugins})
    for name in ("plugins/a", "plugins/b", "."):
        make_skill(tmp_path / name / "skills", "one")
    assert await _names(tmp_path) == ["a:one", "b:one", "c:one"]


async def test_plugins_of_copilots_marketplace_share_its_skills(tmp_path: Path) -> None:
    root = tmp_path / "m"
    plugins = [{"name": name, "source": f"plugins/{name}"} for name in ("a", "b")]
    _write(root / ".github/plugin/marketplace.json", {"plugins": plugins})
    shared = ["./skills/pdf/", "./skills/gone", "../out", "/etc"]
    for name, skills in (("a", shared), ("b", shared[:1])):
        extension = {"com.github.awesome-copilot": {"skills": skills}}
        _agent_plugin(root / "plugins" / name, extensions=extension)
    make_skill(root / "skills", "pdf", body="Read it.")
    make_skill(root / "skills", "unlisted")
    make_skill(tmp_path, "out")
    sources, problems = _find(root)
    scans = [await source.scan() for source in sources]
    assert [skill.name for scan in scans for skill in scan.skills] == ["a:pdf", "b:pdf"]
    assert [p.message for scan in scans for p in scan.problems] == []
    skill = scans[0].skills[0]
    assert (await sources[0].content(skill)).body == "Read it."
    assert [(p.code, p.details["path"]) for p in problems] == [
        ("path_missing", path) for path in shared[1:]
    ]


async def test_plugins_in_other_repositories_are_reported_once_with_their_addresses(
    tmp_path: Path,
) -> None:
    sources = [
        {"source": "github", "repo": "a/b", "ref": "v1"},
        {"source": "git-subdir", "url": "https://github.com/c/d.git", "path": "p/q", "sha": "0af"},
        {"source": "url", "url": "https://git.example.org/e/f.git"},
        *({"source": "github", "repo": f"x/y{number}"} for number in range(4)),
    ]
    plugins = [{"name": f"p{number}", "source": s} for number, s in enumerate(sources)]
    plugins.append({"name": "here", "source": "./here"})
    _write(tmp_path / ".claude-plugin/marketplace.json", {"plugins": plugins})
    make_skill(tmp_path / "here/skills", "one")
    found, (problem,) = _find(tmp_path)
    assert [source.plugin.name for source in found] == ["here"]
    assert (problem.code, problem.severity, problem.details["count"]) == (
        "plugin_elsewhere",
        "warning",
        7,
    )
    listed = str(problem.details["names"])
    assert listed.startswith("p0 (a/b@v1), p1 (c/d@0af/p/q), p2 (https://git.example.org/e/f.git)")
    assert listed.endswith("(+2)")


async def test_a_manifest_of_another_client_beside_a_marketplace_is_not_a_second_plugin(
    tmp_path: Path,
) -> None:
    _write(tmp_path / ".claude-plugin/marketplace.json", {"plugins": [{"source": "./a"}]})
    _write(tmp_path / "a/.claude-plugin/plugin.json", {"name": "a"})
    make_skill(tmp_path / "a/skills", "one")
    _write(tmp_path / ".codex-plugin/plugin.json", {"name": "bundle", "skills": "./a/skills"})
    assert await _names(tmp_path) == ["a:one"]


@pytest.mark.parametrize(
    ("source", "path", "address"),
    [
        ("./a", "./a", ""),
        ({"source": "local", "path": "./a"}, "./a", ""),
        ({"source": "url", "url": "./"}, "./", ""),
        ({"source": "github", "repo": "a/b"}, None, "a/b"),
        ({"source": "url", "url": "https://github.com/a/b.git", "sha": "1"}, None, "a/b@1"),
        ({"source": "url", "url": "git@github.com:a/b.git"}, None, "a/b"),
        ({"source": "git", "url": "ssh://git.example.org/a"}, None, "ssh://git.example.org/a"),
        ({"source": "git-subdir", "url": "a/b", "path": "./p/"}, None, "a/b/p"),
        ({"source": "npm", "package": "a"}, None, ""),
        ({"source": "url", "url": "file:///etc"}, None, ""),
        ({"source": "github", "repo": 7}, None, ""),
        ([], None, ""),
        (None, None, ""),
    ],
)
def test_sources_are_paths_or_addresses(source: object, path: str | None, address: str) -> None:
    assert (local_path(source), remote_address(source)) == (path, address)
