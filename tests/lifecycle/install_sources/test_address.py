"""Addresses: every form people write, and those that could run a program or inject an option."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import SourceError
from apexbridge.lifecycle.install_sources.address import (
    Address,
    checked_commit,
    parse_address,
    recorded_address,
    split_ref,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _github(
    location: str = "o/r", ref: str = "", path: str = "", *, may_be_skill: bool = False
) -> Address:
    return Address(
        kind="github", location=location, ref=ref, path=path, ref_may_be_skill=may_be_skill
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("o/r", _github()),
        ("o/r@main", _github(ref="main", may_be_skill=True)),
        ("o/r@v1.2", _github(ref="v1.2", may_be_skill=True)),
        ("o/r#main", _github(ref="main")),
        ("o/r@main/skills/pdf", _github(ref="main/skills/pdf")),
        ("o/r/skills/pdf", _github(path="skills/pdf")),
        ("o/r/skills/pdf/", _github(path="skills/pdf")),
        ("github:o/r@main", _github(ref="main", may_be_skill=True)),
        ("vercel-labs/agent-skills", _github("vercel-labs/agent-skills")),
        ("o/my.repo_x", _github("o/my.repo_x")),
        ("https://github.com/o/r", _github()),
        ("github.com/o/r", _github()),
        ("github.com/o/r/tree/main/skills/pdf", _github(ref="main/skills/pdf")),
        ("gitlab.com/g/s/r", Address(kind="gitlab", location="g/s/r")),
        ("git.example.org/o/r.git", Address(kind="git", location="https://git.example.org/o/r.git")),
        ("https://github.com/o/r/", _github()),
        ("https://github.com/o/r.git", _github()),
        ("git+https://github.com/o/r.git#v1", _github(ref="v1")),
        ("https://www.github.com/o/r", _github()),
        ("https://github.com/o/r/tree/main", _github(ref="main")),
        ("https://github.com/o/r/tree/main/skills/pdf", _github(ref="main/skills/pdf")),
        ("https://github.com/o/r/blob/main/skills/pdf/SKILL.md", _github(ref="main/skills/pdf")),
        ("gitlab:o/r", Address(kind="gitlab", location="o/r")),
        ("gitlab:g/s/r@main/x", Address(kind="gitlab", location="g/s/r", ref="main/x")),
        ("https://gitlab.com/g/s/r", Address(kind="gitlab", location="g/s/r")),
        (
            "https://gitlab.com/g/s/r/-/tree/main/x",
            Address(kind="gitlab", location="g/s/r", ref="main/x"),
        ),
        ("codeberg:o/r", Address(kind="codeberg", location="o/r")),
        (
            "https://codeberg.org/o/r/src/branch/main/x",
            Address(kind="codeberg", location="o/r", ref="main/x"),
        ),
        ("https://git.example.org/o/r.git", Address(kind="git", location="https://git.example.org/o/r.git")),
        (
            "https://git.example.org/o/r.git#main:skills/pdf",
            Address(
                kind="git",
                location="https://git.example.org/o/r.git",
                ref="main",
                path="skills/pdf",
            ),
        ),
        ("git@example.org:o/r.git", Address(kind="git", location="git@example.org:o/r.git")),
        ("ssh://git@example.org/o/r.git", Address(kind="git", location="ssh://git@example.org/o/r.git")),
        ("file:///srv/r.git#v1", Address(kind="git", location="file:///srv/r.git", ref="v1")),
        ("https://example.org/a.zip", Address(kind="archive", location="https://example.org/a.zip")),
        ("https://example.org/a.tgz", Address(kind="archive", location="https://example.org/a.tgz")),
        (
            "https://github.com/o/r/archive/refs/heads/main.tar.gz",
            Address(
                kind="archive", location="https://github.com/o/r/archive/refs/heads/main.tar.gz"
            ),
        ),
        ("./skills", Address(kind="local", location="./skills")),
        ("~/skills", Address(kind="local", location="~/skills")),
        ("..", Address(kind="local", location="..")),
        ("skills/a.zip", Address(kind="local", location="skills/a.zip")),
        ("pdf", Address(kind="local", location="pdf")),
    ],
)  # fmt: skip
def test_every_form_that_people_write(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.promise("R04")
@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c 'touch x'",
        "ext::sh",
        "fd::17",
        "-oProxyCommand=x",
        "--upload-pack=x",
        "ssh://-oProxyCommand=x/y",
        "ssh://git@-oProxyCommand=x/y",
        "ssh://-x@example.org/y",
        "ssh://git@example.org/-x",
        "-x@example.org:y",
        "git@-oProxyCommand=x:y",
        "git@example.org:-x",
        "ftp://example.org/r.git",
        "gopher://example.org/r.git",
        "git://example.org/r.git",
        "javascript://x/r.git",
        "https://user:secret@example.org/r.git",
        "https://token@example.org/r.git",
        "ssh://git:secret@example.org/r.git",
        "https://example.org\\@localhost/r.git",
    ],
)
def test_r04_other_schemes_and_injected_options_are_refused(text: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_address(text)
    assert caught.value.code in {"source_refused", "remote_refused"}
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "o/",
        "/r/../x@"[1:],
        "o/..",
        "o/r@",
        "o/r/../x",
        "o/r@a..b",
        "o/r@-x",
        "o/r@main/../x",
        "o/r@a b",
        "github:o",
        "gitlab:o",
        "github:o/r/a\\b",
        "https://github.com/o",
        "https://github.com/o/r/issues/1",
        "https://example.org/page",
        "file://host/x",
        "o/r\x1b[2J",
        "o" * 3000,
    ],
)
def test_what_is_no_address_is_a_clear_error(text: str) -> None:
    if text == "o/r@":  # an empty ref is the default branch
        assert parse_address(text) == _github()
        return
    with pytest.raises(SourceError) as caught:
        parse_address(text)
    assert caught.value.code in {"source_address_invalid", "source_refused"}


def test_an_existing_path_is_a_path_whatever_it_looks_like() -> None:
    assert parse_address("o/r", is_local=True).kind == "local"


def test_a_recorded_source_parses_to_the_same_place() -> None:
    for text in ("o/r@main", "gitlab:g/s/r", "git@example.org:o/r.git", "https://x.org/a.zip"):
        address = parse_address(text)
        again = recorded_address(address.source, ref=address.ref, path="a/b", revision=COMMIT)
        assert (again.kind, again.location) == (address.kind, address.location)
        assert (again.ref, again.path, again.revision) == (address.ref, "a/b", COMMIT)


def test_ref_and_path_may_stand_in_the_source_of_an_entry_written_by_hand() -> None:
    written = recorded_address("o/r@v1/skills/pdf")
    assert (written.location, written.ref, written.path) == ("o/r", "v1/skills/pdf", "")
    page = recorded_address("https://git.example.org/o/r.git#v1:skills/pdf")
    assert (page.ref, page.path) == ("v1", "skills/pdf")
    both = recorded_address("o/r@v1", ref="v2", path="skills/pdf")
    assert (both.ref, both.path, both.ref_may_be_skill) == ("v2", "skills/pdf", False)


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "ext::sh"},
        {"source": "o/r", "ref": "--upload-pack=x"},
        {"source": "o/r", "path": "../x"},
    ],
)
def test_a_lock_file_of_somebody_else_is_checked_like_what_is_typed(fields: dict[str, str]) -> None:
    with pytest.raises(SourceError):
        recorded_address(**fields)


def test_a_revision_that_is_no_commit_never_reaches_git() -> None:
    with pytest.raises(SourceError, match="not a commit"):
        checked_commit(recorded_address("o/r", revision="--upload-pack=x"))


def test_a_ref_with_slashes_is_separated_from_the_path_by_the_refs_there_are() -> None:
    names = frozenset({"main", "feature", "feature/x", "v1"})
    for written, ref, path in (
        ("feature/x/skills/pdf", "feature/x", "skills/pdf"),
        ("feature/y", "feature", "y"),
        ("v1", "v1", ""),
        (f"{COMMIT}/skills", COMMIT, "skills"),
    ):
        found = split_ref(parse_address(f"o/r@{written}"), names)
        assert found is not None
        assert (found.ref, found.path) == (ref, path)
    assert split_ref(parse_address("o/r@other/x"), names) is None


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_source_error(text: str) -> None:
    try:
        address = parse_address(text)
    except SourceError:
        return
    assert not address.location.startswith("-") or address.kind == "local"
    assert ".." not in address.path.split("/")
    if address.kind != "local":
        again = parse_address(address.source)
        assert (again.kind, again.location) == (address.kind, address.location)
