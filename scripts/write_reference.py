"""Write the reference pages from the program itself; `make docs` runs it, a test compares."""

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import typer
from pydantic import BaseModel

from apexbridge import errors, events, extensions, locales, path_patterns
from apexbridge.cli.lazy_group import DEPRECATED_OPTIONS
from apexbridge.cli.main import app
from apexbridge.cli.output import ExitCode
from apexbridge.lifecycle.zip.archive import ArchiveLimits
from apexbridge.permissions.hook_protocol import HookEvent
from apexbridge.scanner.rules import load_rules
from apexbridge.settings import (
    RENAMED,
    RENAMED_VALUES,
    AgentSettings,
    DependencySettings,
    IndexSettings,
    InstallSettings,
    McpServer,
    McpSettings,
    ModelSettings,
    PermissionSettings,
    PluginSettings,
    RemoteSettings,
    SandboxSettings,
    ServerSettings,
    Settings,
    SkillSettings,
)
from apexbridge.skills import frontmatter, names, parser, tree, validator
from apexbridge.skills.model import SPEC_KEYS, SkillManifest
from tests.promises import PROMISES

PLACE = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by `make docs`; edit scripts/write_reference.py instead. -->"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = ["| " + " | ".join(heads) + " |"]
    lines.append("|" + "---|" * (lines[0].count(" | ") + 1))
    for row in rows:
        cells = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(title: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join((NOTE, f"# {title}", *parts)) + "\n"


def cli_page() -> str:
    """Every command with its flags, and the exit codes."""
    command: Any = typer.main.get_command(app)
    parts = [
        "Every command takes `--help`; every one that prints takes `--json` and `--quiet`.",
        "## Common options",
        _options(command),
    ]
    for name, sub in commands(command):
        parts += [f"## `apexbridge {name}`", str(sub.help), _options(sub)]
    options = [
        (f"`{name} {old}`", f"`{name} {new}`")
        for name, renamed in DEPRECATED_OPTIONS.items()
        for old, new in renamed.items()
    ]
    deprecated = table(("deprecated", "use"), [*options, ("`keys make`", "`keys create`")])
    codes = table(("code", "meaning"), ((int(code), code.name.lower()) for code in ExitCode))
    envelope = (
        'With `--json` one line is printed: `{"ok", "command", "data", "error"}`; `error` is null '
        "or `{code, message, hint, param}`. Human-readable text then goes to stderr."
    )
    endings = ("## Exit codes", codes, "## JSON", envelope, "## Deprecated names", deprecated)
    return page("Command line", *parts, *endings)


def commands(group: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Every command by its full name, those of groups too."""
    for name, sub in group.commands.items():
        if sub.hidden:
            continue  # deprecated names have a table of their own
        if hasattr(sub, "commands"):
            yield from commands(sub, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", sub


def _options(command: Any) -> str:
    rows = [
        (", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts)), option.help)
        for option in command.params
        if option.name != "help"
    ]
    return table(("option", "meaning"), rows)


def settings_page() -> str:
    """Every setting, its default and its variable."""
    rows = [
        *_settings(Settings, ""),
        *_settings(SkillSettings, "skills."),
        *_settings(PluginSettings, "plugins."),
        *_settings(McpSettings, "mcp."),
        *_settings(McpServer, "mcp.servers.NAME."),
        *_settings(RemoteSettings, "remote."),
        *_settings(InstallSettings, "install."),
        *_settings(SandboxSettings, "sandbox."),
        *_settings(DependencySettings, "dependencies."),
        *_settings(IndexSettings, "index."),
        *_settings(ModelSettings, "model."),
        *_settings(AgentSettings, "agent."),
        *_settings(PermissionSettings, "permissions."),
        *_settings(ServerSettings, "server."),
    ]
    intro = (
        "Later wins: defaults, your `config.toml`, the project's `ship.json` (only `skills.paths` "
        "and `skills.allowExternalPaths`), the project's `apexbridge.toml`, `APEXBRIDGE_*`, flags "
        "(`--set KEY=VALUE`). `apexbridge config` shows where each value came from."
    )
    renamed = [(f"`{old}`", f"`{new}`") for old, new in RENAMED.items()]
    renamed += [
        (f"`{key} = {old}`", f"`{key} = {new}`") for (key, old), new in RENAMED_VALUES.items()
    ]
    return page(
        "Settings",
        intro,
        table(("setting", "default", "variable", "meaning"), rows),
        "## Deprecated names",
        "Still accepted in files, variables and flags, with a warning on stderr:",
        table(("deprecated", "use"), renamed),
    )


def _settings(model: type[BaseModel], prefix: str) -> Iterable[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        default: Any = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, BaseModel):
            continue
        shown = ":".join(map(str, default)) if isinstance(default, tuple) else default  # pyright: ignore[reportUnknownArgumentType]
        variable = f"APEXBRIDGE_{prefix}{name}".upper().replace(".", "__")
        yield f"`{prefix}{name}`", f"`{shown}`", f"`{variable}`", str(field.description)


def errors_page() -> str:
    """Every code with its words in both languages."""
    kinds = {
        kind.code: kind.__name__
        for kind in _error_kinds(errors.ApexBridgeError)
        if not kind.__name__.startswith("_")
    }
    rows = [
        (f"`{code}`", f"`{kinds[code]}`" if code in kinds else "", phrase.message, other.message)
        for (code, phrase), other in zip(
            locales.error_texts("en").items(), locales.error_texts("zh").values(), strict=True
        )
    ]
    intro = "Codes are stable and never translated; their words may change."
    return page("Error and problem codes", intro, table(("code", "raised as", "en", "zh"), rows))


def _error_kinds(kind: type[errors.ApexBridgeError]) -> Iterable[type[errors.ApexBridgeError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _error_kinds(child)


def events_page() -> str:
    """Every event with its fields."""
    kinds: tuple[Any, ...] = get_args(events.Event)
    parts = ["Events are the telemetry: typed, complete, and free of secrets."]
    for kind in kinds:
        fields = ((f"`{f.name}`", f"`{_type_name(f.type)}`") for f in dataclasses.fields(kind))
        parts += [f"## `{kind.__name__}`", str(kind.__doc__), table(("field", "type"), fields)]
    return page("Events", *parts)


def _type_name(annotation: object) -> str:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def format_page() -> str:
    """Every field of SKILL.md."""
    rows = [
        (f"`{field.alias or name}`", "yes" if (field.alias or name) in SPEC_KEYS else "")
        for name, field in SkillManifest.model_fields.items()
    ]
    intro = (
        "Fields of SKILL.md. Those outside the Agent Skills format may also be written as "
        "`apexbridge.<field>` in `metadata`, which every client accepts. Hooks can be attached to: "
        + ", ".join(f"`{event}`" for event in HookEvent)
        + "."
    )
    return page("SKILL.md fields", intro, table(("field", "in the Agent Skills format"), rows))


def limits_page() -> str:
    """Every published limit."""
    archive = ArchiveLimits()
    rows = [
        ("name", f"{names.MAX_LENGTH} characters"),
        ("description", f"{parser.MAX_DESCRIPTION} characters"),
        ("compatibility", f"{validator.MAX_COMPATIBILITY} characters"),
        ("SKILL.md", f"{parser.MAX_SKILL_MD_BYTES} bytes"),
        ("frontmatter", f"{frontmatter.MAX_BYTES} bytes"),
        ("frontmatter depth", f"{frontmatter.MAX_DEPTH} levels"),
        ("frontmatter values", frontmatter.MAX_NODES),
        ("patterns one `paths` entry may stand for", path_patterns.MAX_EXPANSIONS),
        ("files of a skill that are hashed", tree.MAX_FILES),
        ("archive, packed", f"{archive.packed_bytes} bytes"),
        ("archive, unpacked", f"{archive.unpacked_bytes} bytes"),
        ("archive, one file", f"{archive.file_bytes} bytes"),
        ("archive, files", archive.files),
    ]
    return page("Limits", table(("what", "limit"), rows))


def extensions_page() -> str:
    """Every extension point."""
    return page("Extension points", f"```text\n{inspect.getdoc(extensions)}\n```")


def promises_page() -> str:
    """The promise register."""
    rows = [(row.id, row.says, row.state, row.remains) for row in PROMISES.values()]
    count = sum(row.state == "open" for row in PROMISES.values())
    intro = (
        "What each bad input or fault must get. A row is `kept` when a test proves all of it, "
        f"`partly` when the part that exists is proved, else `open` ({count} rows)."
    )
    return page("Promises", intro, table(("row", "promise", "state", "still to come"), rows))


def scanner_rules_page() -> str:
    """Every rule of the security scanner."""
    rows = [
        (
            f"`{rule.id}`",
            f"`{rule.slug}`",
            rule.level,
            ", ".join(rule.owasp),
            rule.title.en,
            rule.title.zh,
            "patterns" if rule.patterns else "Python",
        )
        for rule in load_rules().values()
    ]
    intro = (
        "The rules of `src/apexbridge/scanner/rules/*.toml`; see [the scanner](../scanner.md). The "
        "level is the usual one: a finding can be lower (in a reference, in educational text) or "
        "higher (beside another finding)."
    )
    heads = ("rule", "slug", "level", "OWASP", "en", "zh", "detection")
    return page("Scanner rules", intro, table(heads, rows))


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "extensions.md": extensions_page,
    "limits.md": limits_page,
    "promises.md": promises_page,
    "scanner-rules.md": scanner_rules_page,
    "settings.md": settings_page,
    "skill-fields.md": format_page,
}


def main() -> None:
    """Write every page."""
    PLACE.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        (PLACE / name).write_text(write(), encoding="utf-8")
    print(f"{len(PAGES)} pages in {PLACE.name}/")


if __name__ == "__main__":
    main()
