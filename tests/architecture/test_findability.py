"""A newcomer finds a behaviour by its usual term, and the architecture page names what exists."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "apexbridge"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

# Each term, and a module of the feature it stands for.
TERMS = {
    "SSRF": "ssrf.py",
    "path traversal": "lifecycle/zip",
    "zip slip": "lifecycle/zip",
    "zip bomb": "lifecycle/zip",
    "prompt injection": "scanner",
    "typosquatting": "scanner",
    "homoglyph": "scanner",
    "backoff": "models/retry.py",
    "jitter": "models/retry.py",
    "Retry-After": "models/retry.py",
    "rate limit": "server",
    "middleware": "server",
    "slowloris": "server",
    "progressive disclosure": "catalog",
    "human in the loop": "agent",
    "ReDoS": "tools/builtin",
    "BM25": "retrieval",
    "warm pool": "sandbox",
}


def _text(place: Path) -> str:
    files = (
        [place] if place.is_file() else sorted(place.rglob("*.py")) + sorted(place.rglob("*.toml"))
    )
    return "\n".join(path.read_text(encoding="utf-8") for path in files).lower()


@pytest.mark.parametrize("term", TERMS)
def test_the_source_of_a_feature_has_its_usual_term(term: str) -> None:
    text = _text(SOURCE / TERMS[term])
    spellings = {term.lower(), term.lower().replace(" ", "-"), term.lower().replace(" ", "_")}
    assert any(spelling in text for spelling in spellings), f"{term} not in {TERMS[term]}"


def _modules_of_the_page() -> list[str]:
    diagrams = re.findall(r"participant \w+ as (\S+)", PAGE)
    table = re.findall(r"^\| `[\w-]+` \| (.+?) \|", PAGE, re.MULTILINE)
    quoted = [name for row in table for name in re.findall(r"`([a-z_.]+)`", row)]
    return sorted({name for name in (*diagrams, *quoted) if name not in {"client", "uvicorn"}})


@pytest.mark.parametrize("name", _modules_of_the_page())
def test_a_module_that_the_page_names_exists(name: str) -> None:
    module, _, last = name.rpartition(".")
    if last[:1].isupper():
        assert hasattr(importlib.import_module(f"apexbridge.{module}"), last)
    else:
        assert importlib.util.find_spec(f"apexbridge.{name}") is not None


@pytest.mark.parametrize("path", re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py|\.toml))`", PAGE))
def test_a_path_that_the_page_names_exists(path: str) -> None:
    if not path.startswith(("tests/", "retriever/")):
        assert (SOURCE / path).exists()
