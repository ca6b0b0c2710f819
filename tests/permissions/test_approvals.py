"""The approval store: an `always` is stored as a skill's hash, or as a rule of the project."""

import logging
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from apexbridge.errors import StorageError
from apexbridge.permissions.approvals import ApprovalStore
from apexbridge.permissions.engine import PermissionContext, decide
from apexbridge.permissions.rules import PermissionRequest, Rule, ToolPattern


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "data" / "approvals.json"


def test_a_kept_rule_holds_after_a_restart_in_its_own_project(book: Path, tmp_path: Path) -> None:
    request = PermissionRequest(tool="Bash", argument="ls *.txt")
    kept = ApprovalStore(book, tmp_path)
    assert kept.rules() == ()
    assert kept.store(request, decide(request, []))
    assert kept.store(request, decide(request, []))
    again = ApprovalStore(book, tmp_path)
    assert [str(rule.pattern) for rule in again.rules()] == ["Bash(ls \\*.txt)"]
    assert decide(request, again.rules()).effect == "allow"
    wider = PermissionRequest(tool="Bash", argument="ls / x.txt")
    assert decide(wider, again.rules()).effect == "ask"
    assert ApprovalStore(book, tmp_path / "other").rules() == ()


def test_a_person_may_keep_a_wider_rule(book: Path, tmp_path: Path) -> None:
    request = PermissionRequest(tool="Bash", argument="git push")
    decision = decide(request, [])
    kept = ApprovalStore(book, tmp_path)
    assert kept.store(request, decision, decision.suggestions[1])
    assert decide(PermissionRequest(tool="Bash", argument="git x"), kept.rules()).effect == "allow"


@pytest.mark.promise("G13")
def test_a_skill_that_changed_asks_again(book: Path, tmp_path: Path) -> None:
    old = PermissionRequest(tool="Skill", argument="pdf", sha256="aa")
    new = PermissionRequest(tool="Skill", argument="pdf", sha256="bb")
    ApprovalStore(book, tmp_path).store(old, decide(old, []))
    kept = ApprovalStore(book, tmp_path)
    standing = PermissionContext(approved=kept.approved())
    assert kept.rules() == ()
    assert decide(old, kept.rules(), (), standing).effect == "allow"
    assert decide(new, kept.rules(), (), standing).effect == "ask"


def test_what_cannot_be_stored_returns_false(book: Path, tmp_path: Path) -> None:
    kept = ApprovalStore(book, tmp_path)
    skill = PermissionRequest(tool="Skill", argument="remote")
    assert not kept.store(skill, decide(skill, []))
    request = PermissionRequest(tool="X")
    asks = Rule(effect="ask", pattern=ToolPattern("X"))
    assert not kept.store(request, decide(request, [asks]))
    empty = PermissionRequest(tool="Bash")
    assert not kept.store(empty, decide(empty, []))
    assert not book.exists()


def test_an_approval_can_be_taken_back(book: Path, tmp_path: Path) -> None:
    kept = ApprovalStore(book, tmp_path)
    for request in (
        PermissionRequest(tool="X", argument="y"),
        PermissionRequest(tool="Skill", argument="pdf", sha256="aa"),
    ):
        kept.store(request, decide(request, []))
    assert kept.forget_rule("X(y)")
    assert not kept.forget_rule("X(y)")
    assert kept.forget_skill("aa")
    assert not kept.forget_skill("aa")
    assert (kept.rules(), kept.approved()) == ((), frozenset())


@pytest.mark.parametrize("data", [b"", b"[]", b'{"rules": 3}', b"\xff\xfe"])
def test_a_broken_file_allows_nothing_and_is_left_alone(
    book: Path, tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    book.parent.mkdir()
    book.write_bytes(data)
    kept = ApprovalStore(book, tmp_path)
    with caplog.at_level(logging.WARNING):
        assert (kept.rules(), kept.approved()) == ((), frozenset())
    assert "nothing is approved" in caplog.text
    request = PermissionRequest(tool="X", argument="y")
    with pytest.raises(StorageError):
        kept.store(request, decide(request, []))
    assert book.read_bytes() == data


def test_an_invalid_stored_rule_is_ignored(
    book: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = PermissionRequest(tool="X", argument="y")
    kept = ApprovalStore(book, tmp_path)
    kept.store(request, decide(request, []))
    book.write_text(book.read_text("utf-8").replace("X(y)", "X(y"), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert kept.rules() == ()
    assert "invalid approval" in caplog.text


@pytest.mark.anyio
async def test_concurrent_answers_are_all_stored(book: Path, tmp_path: Path) -> None:
    async def keep(number: int) -> None:
        request = PermissionRequest(tool="X", argument=str(number))
        kept = ApprovalStore(book, tmp_path)
        await anyio.to_thread.run_sync(kept.store, request, decide(request, []))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(keep, number)
    assert len(ApprovalStore(book, tmp_path).rules()) == 12


def test_the_file_is_read_again_whenever_it_is_another_one(
    book: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, other = ApprovalStore(book, tmp_path), ApprovalStore(book, tmp_path)
    first = PermissionRequest(tool="Bash", argument="ls")
    second = PermissionRequest(tool="Skill", argument="pdf", sha256="aa")
    assert (kept.rules(), kept.approved()) == ((), frozenset())
    other.store(first, decide(first, []))
    assert [str(rule.pattern) for rule in kept.rules()] == ["Bash(ls)"]
    other.store(second, decide(second, []))
    assert kept.approved() == {"aa"}
    assert other.forget_rule("Bash(ls)")
    assert kept.rules() == ()
    book.write_text("no JSON", "utf-8")
    with caplog.at_level(logging.WARNING):
        assert [kept.rules(), kept.rules(), kept.approved()] == [(), (), frozenset()]
    assert len(caplog.records) == 1
    book.unlink()
    assert kept.approved() == frozenset()
    book.parent.rename(tmp_path / "moved")
    book.parent.write_text("a file in the way", "utf-8")
    assert [kept.rules(), kept.rules()] == [(), ()]
