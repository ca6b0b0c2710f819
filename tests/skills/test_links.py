"""Symlinks of a folder that is copied: followed inside of the skill, and nowhere else."""

from pathlib import Path

import pytest

from apexbridge.skills.links import copied_entries
from apexbridge.testing import make_skill


def _kinds(root: Path) -> dict[str, str]:
    return {str(entry.path): entry.kind for entry in copied_entries(root)}


def test_links_that_stay_inside_are_what_they_point_to(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf", files={"a/x.txt": "one", "scripts/run.sh": "echo"})
    (root / "b").symlink_to("a")
    (root / "c.txt").symlink_to("a/x.txt")
    (root / "d").symlink_to(root / "c.txt")  # through another link, by an absolute path
    (root / "run").symlink_to("scripts/run.sh")
    entries = {str(entry.path): entry for entry in copied_entries(root)}
    kinds = {path: entry.kind for path, entry in entries.items()}
    assert kinds["b"] == "folder"
    assert {kinds[path] for path in ("b/x.txt", "c.txt", "d", "run")} == {"file"}
    assert (entries["c.txt"].size, entries["run"].executable) == (3, True)


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "../outside.txt", "nowhere", "bad", ".", "..", "../pdf", ".git/config",
     "a/../../outside.txt"],
)  # fmt: skip
def test_links_that_lead_out_in_a_circle_or_nowhere_stay_links(tmp_path: Path, target: str) -> None:
    root = make_skill(tmp_path, "pdf", files={"a/x.txt": "one", ".git/config": "secret"})
    (tmp_path / "outside.txt").write_text("x", encoding="utf-8")
    (root / "bad").symlink_to(target)
    assert _kinds(root)["bad"] == "link"


def test_a_circle_of_two_links_ends(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf", files={"a/x.txt": "one", "b/y.txt": "two"})
    (root / "a/to-b").symlink_to("../b")
    (root / "b/to-a").symlink_to("../a")
    kinds = _kinds(root)
    assert (kinds["a/to-b"], kinds["a/to-b/to-a"]) == ("folder", "link")
    assert (kinds["b/to-a"], kinds["b/to-a/to-b"]) == ("folder", "link")


def test_a_link_to_a_link_that_leads_out_stays_a_link(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf")
    (root / "one").symlink_to("/etc")
    (root / "two").symlink_to("one/passwd")
    assert {_kinds(root)[name] for name in ("one", "two")} == {"link"}
