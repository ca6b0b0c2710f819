"""Layered settings, their origins, validation and deprecated names."""

import json
from pathlib import Path

import pytest

from apexbridge.errors import ConfigError, SettingNotFoundError
from apexbridge.settings import RENAMED, default_language, flatten, load, user_config_file
from apexbridge.skills.model import Origin


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project folder next to a home folder."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path


def _variables(place: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(place / "home"), **more}


def _user_file(place: Path, text: str) -> None:
    file = user_config_file(_variables(place), place / "home")
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")


def test_without_any_layer_all_values_are_defaults(place: Path) -> None:
    config = load(project=place / "project", environment=_variables(place))
    assert set(config.origins.values()) == {"default"}
    assert config.settings.skills.precedence == tuple(Origin)
    assert config.settings.data_dir.is_relative_to(place / "home")
    assert config.language == "en"


def test_later_layers_win_and_are_recorded_as_origin(place: Path) -> None:
    project = place / "project"
    _user_file(place, 'lang = "zh"\n[skills]\nmax_depth = 1\nmax_folders = 1\npaths = ["user"]\n')
    ship = {"name": "x", "skills": {"paths": ["ship"], "allowExternalPaths": True, "other": 1}}
    (project / "ship.json").write_text(json.dumps(ship), encoding="utf-8")
    toml = '[skills]\nmax_depth = 2\nmax_folders = 2\nproject_paths = ["p"]\n'
    (project / "apexbridge.toml").write_text(toml, encoding="utf-8")
    environment = _variables(place, APEXBRIDGE_SKILLS__MAX_DEPTH="3")
    flags = {"skills": {"max_folders": "4"}}
    config = load(project=project, environment=environment, flags=flags)
    chosen = config.settings.skills
    assert (config.settings.lang, chosen.paths, chosen.allow_external_paths) == (
        "zh",
        ("ship",),
        True,
    )
    assert (chosen.project_paths, chosen.max_depth, chosen.max_folders) == (("p",), 3, 4)
    assert {key: config.origins[f"skills.{key}"] for key in ("paths", "project_paths")} == {
        "paths": "ship.json",
        "project_paths": "apexbridge.toml",
    }
    assert config.origins["lang"].endswith("config.toml")
    assert config.origins["skills.max_depth"] == "environment"
    assert config.origins["skills.max_folders"] == "flag"


def test_lists_in_the_environment_are_split_at_path_separators(place: Path) -> None:
    environment = _variables(
        place,
        APEXBRIDGE_SKILLS__PATHS="a:~/b::",
        APEXBRIDGE_SKILLS__PRECEDENCE="user, bundled",
        APEXBRIDGE_DATA_DIR="/data",
    )
    settings = load(project=place, environment=environment).settings
    assert settings.skills.paths == ("a", "~/b")
    assert settings.skills.precedence == (Origin.USER, Origin.BUNDLED)
    assert settings.data_dir == Path("/data")


def test_xdg_folders_are_used(place: Path) -> None:
    environment = _variables(place, XDG_CONFIG_HOME=str(place / "c"), XDG_DATA_HOME="/d")
    (place / "c/apexbridge").mkdir(parents=True)
    (place / "c/apexbridge/config.toml").write_text('lang = "zh"', encoding="utf-8")
    config = load(project=place, environment=environment)
    assert (config.language, config.settings.data_dir) == ("zh", Path("/d/apexbridge"))


@pytest.mark.parametrize(
    ("environment", "key", "origin"),
    [
        ({"APEXBRIDGE_SKILLS__MAX_DEPTH": "many"}, "skills.max_depth", "environment"),
        ({"APEXBRIDGE_LANG": "klingon"}, "lang", "environment"),
        ({"APEXBRIDGE_SKILLS__PRECEDENCE": "user,nobody"}, "skills.precedence", "environment"),
    ],
)
def test_an_invalid_value_is_reported_with_its_origin(
    place: Path, environment: dict[str, str], key: str, origin: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(project=place, environment=_variables(place, **environment))
    assert (caught.value.details["key"], caught.value.details["origin"]) == (key, origin)


def test_an_unknown_key_in_a_file_is_rejected(place: Path) -> None:
    (place / "apexbridge.toml").write_text("[skill]\npaths = []\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(project=place, environment=_variables(place))
    assert (caught.value.details["key"], caught.value.details["origin"]) == (
        "skill",
        "apexbridge.toml",
    )


@pytest.mark.parametrize(
    "text",
    [
        'data_dir = "evil"',
        '[skills]\nuser_paths = ["evil"]',
        '[skills]\nmanaged_path = "evil"',
        '[skills]\nprecedence = ["project", "managed"]',
    ],
)
def test_a_project_cannot_set_trust_decisions(place: Path, text: str) -> None:
    (place / "apexbridge.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(project=place, environment=_variables(place))
    assert caught.value.code == "config_not_here"


def test_a_byte_order_mark_is_accepted(place: Path) -> None:
    (place / "apexbridge.toml").write_text('\ufefflang = "zh"', encoding="utf-8")
    (place / "ship.json").write_text("\ufeff{}", encoding="utf-8")
    assert load(project=place, environment=_variables(place)).settings.lang == "zh"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("apexbridge.toml", "not = [toml"),
        ("apexbridge.toml", "x = " + "[" * 5_000),
        ("ship.json", "[" * 100_000),
        ("ship.json", "{"),
        ("ship.json", "[]"),
        ("ship.json", '{"skills": 3}'),
    ],
)
def test_an_unreadable_file_is_reported(place: Path, name: str, text: str) -> None:
    (place / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(project=place, environment=_variables(place))
    assert caught.value.code == "config_unreadable"
    assert name in caught.value.message


def test_a_table_in_place_of_a_value_is_rejected(place: Path) -> None:
    (place / "apexbridge.toml").write_text("[lang]\nx = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="lang"):
        load(project=place, environment=_variables(place))


def test_a_path_with_nul_is_rejected(place: Path) -> None:
    (place / "ship.json").write_text('{"skills": {"paths": ["a\\u0000b"]}}', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(project=place, environment=_variables(place))
    assert (caught.value.details["key"], caught.value.details["origin"]) == (
        "skills.paths",
        "ship.json",
    )


@pytest.mark.promise("S16")
@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({"LANG": "zh_CN.GB18030"}, "zh"),
        ({"LANG": "zh_CN", "LC_ALL": "C"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LANG": "C", "APEXBRIDGE_LANG": "zh-Hans"}, "zh"),
        ({"LANG": "zh_CN", "APEXBRIDGE_LANG": "en_GB"}, "en"),
        ({}, "en"),
    ],
)
def test_the_language_follows_the_setting_then_the_locale(
    place: Path, variables: dict[str, str], language: str
) -> None:
    assert load(project=place, environment=_variables(place, **variables)).language == language
    assert default_language(variables) == language


def test_a_misspelt_setting_gets_close_matches(place: Path) -> None:
    config = load(project=place, environment=_variables(place))
    assert config.value("skills.max_depth") == 6
    with pytest.raises(SettingNotFoundError) as caught:
        config.value("skills.max_dept")
    assert caught.value.near[0] == "skills.max_depth"


def test_unknown_environment_variables_are_reported(place: Path) -> None:
    environment = _variables(place, APEXBRIDGE_SKILL__PATHS="x", APEXBRIDGE_LANG="en", OTHER="y")
    config = load(project=place, environment=environment)
    assert config.unknown_variables == ("APEXBRIDGE_SKILL__PATHS",)


def test_the_real_environment_is_the_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("APEXBRIDGE_LANG", "zh")
    config = load()
    assert (config.home, config.project, config.language) == (home, home.resolve(), "zh")
    assert list(flatten(config.settings)) == list(config.origins)
    assert default_language() == "zh"


@pytest.mark.parametrize(
    "text",
    [
        '[Mcp.servers.a]\ncommand = "/bin/sh"',
        "[MCP.servers.a]\nurl = 'http://x'",
        '[Skills]\nmanaged_path = "evil"',
        "[Sandbox]\nallow_unsandboxed = true",
        'Data_Dir = "x"',
        '[Remote]\nskills = ["https://example.org/SKILL.md"]',
        '[pLugins]\npaths = ["evil"]',
    ],
)
def test_trust_decisions_of_a_project_are_rejected_in_any_case(place: Path, text: str) -> None:
    (place / "apexbridge.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load(project=place, environment=_variables(place))
    assert refused.value.code == "config_not_here"


def test_the_origin_is_recorded_in_any_case(place: Path) -> None:
    (place / "apexbridge.toml").write_text('[Skills]\npaths = ["x"]', encoding="utf-8")
    config = load(project=place, environment=_variables(place))
    assert config.origins["skills.paths"] == "apexbridge.toml"
    assert config.settings.skills.paths == ("x",)


@pytest.mark.parametrize(
    "text",
    [
        '[model]\nbase_url = "https://evil.example"',
        '[Model]\npreset = "openai"',
        "[agent]\ninline_commands = true",
        '[permissions]\nallow = ["Bash"]',
        "[permissions]\ndeny = []",
        '[[hooks.PreToolUse]]\nmatcher = "*"\nhooks = [{type = "command", command = "evil"}]',
        "[Hooks]\nPreToolUse = []",
    ],
)
def test_a_project_cannot_set_model_rules_or_hooks(place: Path, text: str) -> None:
    (place / "apexbridge.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load(project=place, environment=_variables(place))
    assert refused.value.code == "config_not_here"


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("PERMISSIONS__ALLOW", "Bash(git status", "Bash(git status"),
        ("PERMISSIONS__DENY", "(rm *)", "(rm *)"),
        ("HOOKS", "{not json", "Expecting"),
        ("HOOKS", '{"Someday": []}', "Someday"),
        ("HOOKS", '{"Stop": [{"hooks": [{"type": "command"}]}]}', "command"),
        ("HOOKS", '{"Stop": 3}', "Stop"),
        ("AGENT__MAX_ROUNDS", "0", "greater than or equal to 1"),
        ("AGENT__ALLOWED_TOOLS", "everything", "restrict"),
        ("MODEL__TOOLS", "magic", "native"),
        ("MODEL__CONTEXT_WINDOW", "10", "1000"),
    ],
)
def test_invalid_rules_and_hooks_are_reported(
    place: Path, variable: str, text: str, words: str
) -> None:
    environment = _variables(place, **{f"APEXBRIDGE_{variable}": text})
    with pytest.raises(ConfigError) as caught:
        load(project=place, environment=environment)
    assert words in caught.value.message
    assert caught.value.details["origin"] == "environment"
    assert str(caught.value.details["key"]).startswith(variable.lower().replace("__", "."))


def test_rules_and_hooks_are_parsed_from_a_file_and_from_a_string(place: Path) -> None:
    hook = '[[hooks.Stop]]\nhooks = [{type = "command", command = "true"}]\n'
    _user_file(place, '[permissions]\ndeny = ["Bash(rm *)", "Read(~/.ssh/**)"]\n' + hook)
    environment = _variables(
        place, APEXBRIDGE_PERMISSIONS__ALLOW="Bash(git status *) Write(src/**), Skill(review)"
    )
    settings = load(project=place / "project", environment=environment).settings
    assert settings.permissions.allow == ("Bash(git status *)", "Write(src/**)", "Skill(review)")
    assert settings.permissions.deny == ("Bash(rm *)", "Read(~/.ssh/**)")
    assert list(settings.hooks) == ["Stop"]


def test_provider_keys_come_from_their_variables_and_are_hidden(place: Path) -> None:
    environment = _variables(
        place,
        OPENAI_API_KEY="sk-openai-secret",
        DEEPSEEK_API_KEY="",
        SOME_OTHER_API_KEY="sk-other-secret",
        APEXBRIDGE_MODEL__API_KEY="sk-own-secret",
    )
    config = load(project=place, environment=environment)
    assert config.keys == {"OPENAI_API_KEY": "sk-openai-secret"}
    assert config.settings.model.api_key.get_secret_value() == "sk-own-secret"
    assert "-secret" not in repr(config)
    assert "-secret" not in str(flatten(config.settings))


_SAMPLES = {
    "agent.tokens": "7000",
    "install.blocks_at": "warn",
    "model.window": "7000",
    "server.open_index": "true",
}
_FLAT = [(old, new) for old, new in RENAMED.items() if "NAME" not in old]


def _nested(name: str, value: str) -> dict[str, dict[str, str]]:
    table, _, key = name.partition(".")
    return {table: {key: value}}


@pytest.mark.parametrize(("old", "new"), _FLAT)
@pytest.mark.parametrize("layer", ["file", "environment", "flag"])
def test_a_deprecated_name_is_accepted_in_every_layer(
    place: Path, old: str, new: str, layer: str
) -> None:
    value = _SAMPLES.get(old, "7")
    variables, flags = _variables(place), dict[str, dict[str, str]]()
    if layer == "file":
        table, _, key = old.partition(".")
        _user_file(place, f'[{table}]\n{key} = "{value}"\n')
    elif layer == "environment":
        variables[f"APEXBRIDGE_{old.replace('.', '__')}".upper()] = value
    else:
        flags = _nested(old, value)
    config = load(project=place / "project", environment=variables, flags=flags)
    expected = load(
        project=place / "project", environment=_variables(place), flags=_nested(new, value)
    )
    if layer != "file":  # `expected` reads the same file
        assert config.settings == expected.settings
    assert config.value(new) == config.value(old) == expected.value(new)
    (found,) = config.deprecated
    assert (found.old, found.new) == (old, new)
    assert found.origin == config.origins[new]
    assert config.unknown_variables == ()


def test_a_current_name_wins_over_a_deprecated_one_in_the_same_layer(place: Path) -> None:
    _user_file(place, "[sandbox]\ntimeout_seconds = 5\nwall_seconds = 6\n")
    config = load(project=place / "project", environment=_variables(place))
    assert config.settings.sandbox.timeout_seconds == 5


def test_a_deprecated_name_in_a_later_layer_wins_over_a_current_one(place: Path) -> None:
    _user_file(place, "[sandbox]\ntimeout_seconds = 5\n")
    variables = _variables(place, APEXBRIDGE_SANDBOX__WALL_SECONDS="6")
    config = load(project=place / "project", environment=variables)
    assert config.settings.sandbox.timeout_seconds == 6
    assert config.origins["sandbox.timeout_seconds"] == "environment"


def test_a_deprecated_name_of_an_mcp_server_is_accepted(place: Path) -> None:
    _user_file(place, '[mcp.servers.files]\ncommand = "x"\nseconds = 5\n')
    config = load(project=place / "project", environment=_variables(place))
    assert config.settings.mcp.servers["files"].timeout_seconds == 5
    assert config.deprecated[0].new == "mcp.servers.files.timeout_seconds"
    as_json = _variables(place, APEXBRIDGE_MCP__SERVERS='{"a": {"url": "https://a", "seconds": 4}}')
    config = load(project=place / "project", environment=as_json)
    assert config.settings.mcp.servers["a"].timeout_seconds == 4


def test_the_deprecated_name_of_the_default_embedder_is_accepted(place: Path) -> None:
    flags = {"index": {"embedder": "own"}}
    config = load(project=place / "project", environment=_variables(place), flags=flags)
    assert config.settings.index.embedder == "default"
    assert config.deprecated == (("index.embedder = own", "default", "flag"),)


@pytest.mark.parametrize("key", ["install.blocks_at", "server.rate", "agent.rounds"])
def test_a_project_may_not_set_trust_decisions_by_a_deprecated_name_either(
    place: Path, key: str
) -> None:
    table, _, name = key.partition(".")
    text = f'[{table}]\n{name} = "{_SAMPLES.get(key, "1")}"\n'
    (place / "project/apexbridge.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(project=place / "project", environment=_variables(place))
    assert caught.value.code == "config_not_here"
