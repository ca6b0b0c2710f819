"""Cases of the consent table, docs/consent.md: one for each row, and the ways in to try it by."""

import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx

from apexbridge.api_keys import Scope
from apexbridge.runtime import Runtime
from apexbridge.server.skills import versions, write
from apexbridge.settings import Config, load
from apexbridge.testing import make_skill, skill_md
from tests.server.live_server import LiveServer, live_server
from tests.server.skills_server import FORM_TYPE, make_zip

DOCS = Path(__file__).parents[2] / "docs"
NAME = "subject"
Fields = Mapping[str, Any]
LENDS_A_COMMAND: Fields = {"allowed-tools": ["Bash(echo *)"]}
Settings = Mapping[str, Mapping[str, object]]
Prepare = Callable[[Path], Awaitable[None]]
Scopes = tuple[Scope, ...]
BOTH: Scopes = ("skills:read", "skills:write", "exec")
WRITE: Scopes = ("skills:read", "skills:write")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is there before the model calls the skill, and the settings that apply."""

    prepare: Prepare
    settings: Settings = field(default_factory=dict[str, Mapping[str, object]])
    is_managed: bool = False
    """Whether `operator` below the home is the folder of the operator's skills."""

    def settings_at(self, home: Path) -> Settings:
        """The settings of this case."""
        if self.is_managed:
            return {"skills": {"managed_path": str(home / "operator")}}
        return self.settings


def table(language: str = "") -> dict[str, str]:
    """Row ids of the page and their answers: `yes`, `no` or `refused`."""
    text = (DOCS / language / "consent.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d\d) \|.*\| (yes|no|refused) \|", text, re.MULTILINE)
    assert len(rows) == len(dict(rows)) == len(re.findall(r"^\| [A-Z]\d\d ", text, re.MULTILINE))
    return dict(rows)


def config(home: Path, settings: Settings | None = None) -> Config:
    """The same project, home and data folder for every way in."""
    project = home / "project"
    (project / ".git").mkdir(parents=True, exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    return load(project=project, environment=environment, flags=dict(settings or {}))


def text_of(fields: Fields, name: str = NAME) -> bytes:
    """A SKILL.md with these fields; `body` is its text."""
    rest = {key: value for key, value in fields.items() if key != "body"}
    text = skill_md(name, body=str(fields.get("body", "Do it.")), **rest)
    # The builder writes hyphens; some keys really have underscores.
    return text.replace(b"when-to-use:", b"when_to_use:")


async def own(home: Path, fields: Fields, folder: str = ".claude/skills", name: str = NAME) -> None:
    """A skill in one of the user's own folders, or of the project."""
    files = {"scripts/main.py": "print('it ran')\n"}
    make_skill(home / folder, name, raw=text_of(fields, name), files=files)


@asynccontextmanager
async def _server(home: Path) -> AsyncGenerator[tuple[LiveServer, httpx.AsyncClient]]:
    """Serve the routes that install, update and remove."""
    routes = (*write.router.routes, *versions.router.routes)
    async with (
        live_server(config(home), routes) as served,
        httpx.AsyncClient(base_url=served.url, timeout=60) as http,
    ):
        yield served, http


async def send(
    home: Path,
    scopes: Scopes,
    fields: Fields = LENDS_A_COMMAND,
    *,
    name: str = NAME,
    method: str = "install",
) -> None:
    """Install, update or remove by HTTP, with a key for these scopes."""
    async with _server(home) as (served, http):
        key = {"Authorization": f"Bearer {served.key_for(*scopes)}"}
        if method == "remove":
            reply = await http.delete(f"/v1/skills/{name}", headers=key)
        else:
            archive = make_zip({f"{name}/SKILL.md": text_of(fields, name)})
            path = "/v1/skills" if method == "install" else f"/v1/skills/{name}/versions"
            files = {"files": ("a.zip", archive, FORM_TYPE)}
            reply = await http.post(path, files=files, headers=key)
        assert reply.status_code in {200, 201}, reply.text


def _each(*variants: Fields) -> tuple[Fields, ...]:
    return variants


def _lends(*tools: str) -> tuple[Fields, ...]:
    return tuple({"allowed-tools": [tool]} for tool in tools)


DECLARED: dict[str, tuple[Fields, ...]] = {
    "A01": _each(
        {"version": "1.0.0", "allowed-tools": ["Read", "Grep", "Glob"]},
        {"version": "1.0.0", "allowed-tools": "Read Grep Glob"},
        {"allowed-tools": "Read(docs/**), Glob"},
    ),
    "A02": _each(
        {
            "license": "MIT",
            "compatibility": "Any.",
            "metadata": {"a": "b"},
            "argument-hint": "[file]",
            "arguments": ["file"],
            "when_to_use": "Always.",
            "user-invocable": True,
            "effort": "high",
            "shell": "bash",
        }
    ),
    "A03": _each(
        {"tags": ["a"], "keywords": "b", "category": "c", "triggers": ["d"], "author": "e"},
        {"Dependencies": ["numpy"], "Author": "f"},
    ),
    "A04": _each({"model": "inherit"}, {"model": "Inherit"}),
    "A05": _each({"disallowed-tools": ["Bash", "Write"]}),
    "A06": _lends("SkillSearch", "skills_list", "skills_load", "Calculate", "Now", "Platform"),
    "A07": _each({}),
    "A10": _lends("Bash", "Bash(git *)"),
    "A11": _lends("Write", "Edit(src/**)"),
    "A12": _lends("Skill", "Skill(other)"),
    "A13": _lends("WebFetch", "mcp__github", "mcp__*", "*", "Read*", "Unknown", "SkillScript"),
    "A14": _each({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}}),
    "A15": _each({"body": "Now: !`echo hi`"}, {"body": "```!\necho hi\n```\n"}),
    "A16": _each({"context": "fork"}, {"agent": "general-purpose"}),
    "A17": _each({"model": "another"}),
    "A18": _each({"surprise": "x"}, {"network": ["example.org"]}),
    "A19": _each({"secrets": ["KEY=api.example.org"]}, {"metadata": {"secrets": "KEY"}}),
}


A_ROWS: dict[str, tuple[Case, ...]] = {
    row: tuple(Case(prepare=partial(own, fields=fields)) for fields in variants)
    for row, variants in DECLARED.items()
}
"""Each in one of the user's own folders, where nobody has consented to it."""


async def _by_command_line(home: Path) -> None:
    folder = make_skill(home / "downloads", NAME, raw=text_of(LENDS_A_COMMAND))
    await command(home, "add", str(folder), "--yes")


async def _by_python(home: Path) -> None:
    folder = make_skill(home / "downloads", NAME, raw=text_of(LENDS_A_COMMAND))
    async with Runtime.open(config(home)) as runtime:
        await runtime.manager.install(folder)


async def _changed(home: Path) -> None:
    await send(home, BOTH)
    file = config(home).data / "skills" / NAME / "extra.md"
    file.write_text("More.", encoding="utf-8")


async def _updated(home: Path) -> None:
    await send(home, BOTH)
    await send(home, WRITE, {**LENDS_A_COMMAND, "version": "2"}, method="update")


async def _installed_again(home: Path) -> None:
    await send(home, BOTH)
    await send(home, BOTH, method="remove")
    await send(home, WRITE)


async def _copied(home: Path) -> None:
    """The same files in the project, whose skill comes before the installed one of that name."""
    await send(home, BOTH)
    shutil.copytree(config(home).data / "skills" / NAME, home / "project/.claude/skills" / NAME)


async def _trusted(home: Path, folder: str) -> None:
    await own(home, LENDS_A_COMMAND, folder)
    await command(home, "trust", NAME, "--yes")


def _untrusted(*variants: Fields) -> tuple[Case, ...]:
    return tuple(
        Case(prepare=partial(own, fields=fields, folder="project/.claude/skills"))
        for fields in variants
    )


def _ruled(effect: str) -> tuple[Case, ...]:
    rule = {"permissions": {effect: [f"Skill({NAME})"]}}
    return (Case(prepare=partial(send, scopes=BOTH), settings=rule),)


def _after(prepare: Prepare) -> tuple[Case, ...]:
    return (Case(prepare=prepare),)


B_ROWS: dict[str, tuple[Case, ...]] = {
    "B01": _after(partial(send, scopes=BOTH)),
    "B02": _after(_by_command_line),
    "B03": _after(_by_python),
    "B04": _after(partial(send, scopes=WRITE)),
    "B05": _after(_changed),
    "B06": _after(_updated),
    "B07": _after(_installed_again),
    "B08": _after(_copied),
    "B09": _after(partial(_trusted, folder=".claude/skills")),
    "B10": (
        Case(prepare=partial(own, fields=LENDS_A_COMMAND, folder="operator"), is_managed=True),
    ),
    "B11": _untrusted({}, {"tags": ["a"], "model": "inherit"}),
    "B12": _untrusted(
        {"allowed-tools": ["Read"]},
        LENDS_A_COMMAND,
        {"context": "fork"},
        {"model": "another"},
        {"body": "!`id`"},
        {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}},
    ),
    "B13": _after(partial(_trusted, folder="project/.claude/skills")),
    "B14": _ruled("ask"),
    "B15": _ruled("deny"),
}


async def command(
    home: Path, *words: str, exits: int = 0, variables: Mapping[str, str] | None = None
) -> str:
    """Run a command of the program, which must exit with a code; return what it printed."""
    environment = {**kept_environment(), "HOME": str(home), "LANG": "C.UTF-8"}
    environment |= {"APEXBRIDGE_INDEX__EMBEDDER": "hash", **(variables or {})}
    done = await anyio.run_process(
        [sys.executable, "-m", "apexbridge", *words],
        cwd=config(home).project,
        env=environment,
        check=False,
    )
    assert done.returncode == exits, (done.stdout, done.stderr)
    return done.stdout.decode()


def kept_environment() -> dict[str, str]:
    """What a child process needs of ours: where programs are, and the measuring of coverage."""
    names = ("PATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    return {name: os.environ[name] for name in names if name in os.environ}
