"""Static checks of the console: file size, translations, contrast."""

import itertools
import re
from pathlib import Path

import pytest

CONSOLE = Path(__file__).parents[2] / "src" / "apexbridge" / "server" / "console" / "static"
SCRIPTS = sorted(CONSOLE.glob("js/*.js"))
_MAX_LINES = 400
_MAX_WIDTH = 120
_MAX_FUNCTION_LINES = 60
_FUNCTION = re.compile(r"^\s*(export )?(async )?function\*? .*\{$|^  (async )?#?\w+\(.*\) \{$")
_TOKEN = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
_WORD = re.compile(r'^  "([^"]+)": "(.*)",$', re.MULTILINE)


def _read(name: str) -> str:
    return (CONSOLE / name).read_text(encoding="utf-8")


def _ids(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=_ids)
def test_a_script_is_small_documented_and_never_sets_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= _MAX_LINES
    assert text.startswith("/* ")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert not re.search(forbidden, text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[a-z]", text)
    assert max(map(len, text.splitlines())) <= _MAX_WIDTH or "locale_" in path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=_ids)
def test_a_function_is_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [n for n, line in enumerate(lines) if _FUNCTION.match(line)]
    for start in starts:
        indent = len(lines[start]) - len(lines[start].lstrip())
        ends = (n for n, line in enumerate(lines[start:]) if line == " " * indent + "}")
        assert next(ends) < _MAX_FUNCTION_LINES, lines[start]


def test_the_page_has_no_inline_script_or_style() -> None:
    page = _read("index.html")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script>", page)
    assert not re.search(r'(src|href)="(https?:|//|/)', page)
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(named) > 5
    assert all((CONSOLE / name).is_file() for name in named)


def test_styles_fetch_nothing() -> None:
    for path in CONSOLE.glob("css/*.css"):
        assert not re.search(r"url\(|@import|@font-face", path.read_text(encoding="utf-8")), path


def _words(name: str) -> dict[str, str]:
    return dict(_WORD.findall(_read(f"js/{name}")))


def test_both_locales_have_the_same_keys_and_placeholders() -> None:
    english, chinese = _words("locale_en.js"), _words("locale_zh.js")
    assert list(english) == list(chinese)
    assert len(english) > 200
    for key, words in english.items():
        assert set(re.findall(r"\{\w+\}", words)) == set(re.findall(r"\{\w+\}", chinese[key])), key
        assert words, key
        assert chinese[key], key


def test_every_used_message_exists_and_every_message_is_used() -> None:
    english = _words("locale_en.js")
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in SCRIPTS if "locale_" not in path.name
    )
    asked = set(re.findall(r'\bt\("([a-z0-9_.]+)"', code))
    assert asked <= set(english)
    counted = set(re.findall(r'\bmany\("([a-z0-9_.]+)"', code))
    assert counted | {f"{key}.one" for key in counted} <= set(english)
    groups = set(re.findall(r'tOf\("([a-z]+)"', code)) | set(re.findall(r"t\(`([a-z.]+)\.\$", code))
    for key in english:
        is_named = f'"{key}"' in code or key.removesuffix(".one") in counted
        is_grouped = any(key.startswith(f"{group}.") for group in groups)
        assert is_named or is_grouped, key


def _luminance(colour: str) -> float:
    def channel(value: float) -> float:
        return value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (channel(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


_GROUNDS = ("page", "surface", "sunken")
_PAIRS = (
    *itertools.product(("text", "muted"), (*_GROUNDS, "accent-soft")),
    *itertools.product(("accent",), ("page", "surface", "accent-soft")),
    ("on-accent", "accent"),
    *((kind, f"{kind}-soft") for kind in ("ok", "warn", "bad")),
    *itertools.product(("ok", "warn", "bad"), ("page", "surface")),
    ("surface", "text"),
)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_pair_of_colours_can_be_read(theme: str) -> None:
    found = _TOKEN.findall(_read("css/tokens.css"))
    colours = {name: light if theme == "light" else dark for name, light, dark in found}
    assert len(colours) > 15
    for words, ground in _PAIRS:
        assert _contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
    bars = [name for name in colours if name.startswith("span-")]
    for shape, ground in itertools.product(("edge", *bars), ("page", "surface")):
        assert _contrast(colours[shape], colours[ground]) >= 3, (shape, ground)
