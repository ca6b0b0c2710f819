"""Chinese documentation: each page in docs/zh matches its English original in structure."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ZH = DOCS / "zh"
ZH_PAGES = sorted(ZH.glob("*.md"))
ZH_README = ROOT / "README.zh-CN.md"

# Pages outside docs/ that the Chinese README may link to although they are in English.
ENGLISH_ONLY = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md"}
# English folders of docs/: generated pages, and decision records. A link to them says so.
ENGLISH_FOLDERS = (DOCS / "reference", DOCS / "decisions")
# Diagrams and annotated layouts hold prose, which is translated; all other blocks are code.
PROSE_BLOCKS = {"text", "mermaid"}

Block = tuple[str, str]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)(（英文）)?")
_CODE_SPAN = re.compile(r"`([^`]+)`")
_IDENTIFIER = re.compile(r"\w+(?:[._/]\w+)+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def _split(path: Path) -> tuple[str, list[Block]]:
    """Split a page into the text outside of fenced blocks and the (language, content) blocks."""
    text = path.read_text(encoding="utf-8")
    return _FENCE.sub("", text), _FENCE.findall(text)


def _original(page: Path) -> Path:
    return DOCS / page.name


def _anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.+)$", _split(path)[0], re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def _relative_links(path: Path) -> list[tuple[Path, str, bool]]:
    """Return the target file, the anchor and the mark "in English" of every relative link."""
    links: list[tuple[Path, str, bool]] = []
    for target, mark in _LINK.findall(_split(path)[0]):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            links.append(((path.parent / name).resolve() if name else path, anchor, bool(mark)))
    return links


pages = pytest.mark.parametrize("page", ZH_PAGES, ids=lambda page: page.stem)


def test_every_page_is_translated() -> None:
    assert {page.name for page in ZH_PAGES} == {page.name for page in DOCS.glob("*.md")}


@pages
def test_translation_and_original_link_to_each_other(page: Path) -> None:
    assert _original(page).is_file()
    zh, en = (path.read_text(encoding="utf-8").splitlines() for path in (page, _original(page)))
    assert zh[2] == f"[English](../{page.name})"
    assert en[2] == f"[中文](zh/{page.name})"


@pages
def test_translation_is_chinese(page: Path) -> None:
    text = _split(page)[0]
    for heading in re.findall(r"^## (.+)$", text, re.MULTILINE):
        # Names of protocols have no translation.
        assert re.search(r"[\u4e00-\u9fff]", heading) or heading in {"stdio", "Streamable HTTP"}
    assert len(re.findall(r"[\u4e00-\u9fff]", text)) > 300


@pages
def test_headings_paragraphs_and_tables_match(page: Path) -> None:
    zh, en = _split(page)[0], _split(_original(page))[0]
    for pattern in (r"^(#+) ", r"^(-|\d+\.) ", r"^\|"):
        counts = [Counter(re.findall(pattern, text, re.MULTILINE)) for text in (zh, en)]
        assert counts[0] == counts[1], pattern
    paragraphs = [len(re.split(r"\n\n+", text.strip())) for text in (zh, en)]
    assert paragraphs[0] == paragraphs[1]
    rows = [re.findall(r"^\|.*", text, re.MULTILINE) for text in (zh, en)]
    assert [row.count("|") for row in rows[0]] == [row.count("|") for row in rows[1]]


@pages
def test_fenced_blocks_match(page: Path) -> None:
    zh, en = _split(page)[1], _split(_original(page))[1]
    assert [language for language, _ in zh] == [language for language, _ in en]
    for (language, translated), (_, original) in zip(zh, en, strict=True):
        if language in PROSE_BLOCKS:
            assert len(translated.splitlines()) == len(original.splitlines())
            assert _IDENTIFIER.findall(translated) == _IDENTIFIER.findall(original)
        else:
            assert translated == original


@pages
def test_code_spans_match(page: Path) -> None:
    """A renamed command, setting or error code is renamed in both languages."""
    texts = (_split(path)[0] for path in (page, _original(page)))
    # An English line may end within a code span; a Chinese paragraph is one line.
    zh, en = ({" ".join(span.split()) for span in _CODE_SPAN.findall(text)} for text in texts)
    assert zh == en


@pages
def test_figures_match(page: Path) -> None:
    """A new measurement or limit is written in both languages."""
    zh, en = (set(_NUMBER.findall(_split(path)[0])) for path in (page, _original(page)))
    assert zh == en


@pages
def test_links_lead_somewhere_and_prefer_chinese(page: Path) -> None:
    for target, anchor, marked in _relative_links(page)[1:]:
        assert target.exists(), target
        assert not anchor or anchor in _anchors(target), (target, anchor)
        assert not (target.parent == DOCS and (ZH / target.name).exists()), target
        assert marked or target.parent != DOCS / "reference", target
    linked = [{target.name for target, _, _ in _relative_links(p)} for p in (page, _original(page))]
    assert linked[0] == linked[1]


def test_chinese_readme_links_to_chinese_pages() -> None:
    for target, _, marked in _relative_links(ZH_README):
        assert target.exists(), target
        if target.suffix != ".md":
            continue
        if target.parent in ENGLISH_FOLDERS:
            assert marked, f"say that {target.name} is in English"
        else:
            assert target.parent == ZH or target.name in ENGLISH_ONLY, target
