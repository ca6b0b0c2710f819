"""The SkillScript tool: input files, output files, and where they are saved."""

from pathlib import Path
from typing import Any

import pytest

from apexbridge.events import FilesCreated, FilesSkipped
from apexbridge.permissions.engine import Answer
from apexbridge.testing import FixedApprover, make_skill
from tests.agent.agent_fixture import calls, open_agent, says

pytestmark = [pytest.mark.anyio, pytest.mark.needs("sandbox")]

_MAKES = """\
#!/bin/sh
cat "$@"
mkdir -p charts
echo report > report.md
echo chart > charts/one.svg
exit ${CODE:-0}
"""


def _maker(home: Path, script: str = _MAKES) -> None:
    make_skill(home / ".claude/skills", "maker", files={"scripts/main.sh": script})


async def test_files_that_a_script_makes_are_saved_where_it_was_said(home: Path) -> None:
    _maker(home)
    approver = FixedApprover("once")
    async with open_agent(home, approver=approver) as at:
        (at.project / "in.txt").write_text("given\n", encoding="utf-8")
        wanted = {"skill": "maker", "args": ["in.txt"], "files": ["in.txt"], "save_to": "out"}
        await at.ask("Go", calls(("SkillScript", wanted)), says("."))
        (result,) = await at.results()
        assert result.startswith("given")
        assert "Saved:\n- out/charts/one.svg\n- out/report.md" in result
        assert (at.project / "out/report.md").read_text(encoding="utf-8") == "report\n"
        assert (at.project / "out/charts/one.svg").read_text(encoding="utf-8") == "chart\n"
        asked = [(request.tool, request.argument) for request in approver.asked]
        assert asked == [("Write", str(at.project / "out"))]  # one question for all of them


async def test_without_save_to_nothing_is_written_or_requested(home: Path) -> None:
    _maker(home)
    approver = FixedApprover("once")
    async with open_agent(home, approver=approver) as at:
        await at.ask("Go", calls(("SkillScript", {"skill": "maker", "args": []})), says("."))
        (result,) = await at.results()
        head, _, listed = result.partition(":\n")
        assert listed == "- charts/one.svg: 6 bytes\n- report.md: 7 bytes"
        folder = Path(head.removeprefix("Files it made, in "))
        assert (folder / "charts/one.svg").read_text(encoding="utf-8") == "chart\n"
        assert list(at.project.iterdir()) == []
    assert approver.asked == []


@pytest.mark.parametrize(
    ("answer", "code"), [("no", "[person_denied]"), ("once", "")], ids=["no", "yes"]
)
async def test_a_person_decides_before_the_script_runs(
    home: Path, answer: Answer, code: str
) -> None:
    _maker(home)
    async with open_agent(home, approver=FixedApprover(answer)) as at:
        wanted = {"skill": "maker", "save_to": "."}
        await at.ask("Go", calls(("SkillScript", wanted)), says("."))
        assert (await at.results())[0].startswith(code)
        assert (at.project / "report.md").exists() is (answer == "once")


async def test_what_is_there_is_replaced_only_where_it_was_named(home: Path) -> None:
    _maker(home)
    async with open_agent(home, permissions__allow=["Write"]) as at:
        (at.project / "report.md").write_text("mine\n", encoding="utf-8")
        wanted = {"skill": "maker", "save_to": "."}
        await at.ask("Go", calls(("SkillScript", wanted)), says("."))
        (result,) = await at.results()
        assert result.startswith("[tool_failed]")
        assert "there is already: report.md" in result
        assert not (at.project / "charts").exists()  # all of them or none
        assert (at.project / "report.md").read_text(encoding="utf-8") == "mine\n"
        named = {**wanted, "overwrite": ["report.md"]}
        await at.ask("Go", calls(("SkillScript", named)), says("."))
        assert (at.project / "report.md").read_text(encoding="utf-8") == "report\n"


async def test_a_rule_about_one_file_counts_and_nothing_leads_out(home: Path) -> None:
    _maker(home)
    rules: dict[str, Any] = {
        "permissions__allow": ["Write"],
        "permissions__deny": ["Write(out/report.md)"],
    }
    async with open_agent(home, **rules) as at:
        outside = home / "outside"
        outside.mkdir()
        (at.project / "link").symlink_to(outside)
        (at.project / "here").mkdir()
        (at.project / "here/charts").symlink_to(outside)
        for folder in ("out", "..", "link", "here", "/etc"):
            wanted = {"skill": "maker", "save_to": folder}
            await at.ask("Go", calls(("SkillScript", wanted)), says("."))
        codes = [text.partition("]")[0] for text in await at.results()]
        assert codes == ["[rule_denied", *["[path_outside"] * 4]
        assert not (at.project / "out").exists()
        assert list(outside.iterdir()) == []


async def test_a_script_that_fails_saves_nothing(home: Path) -> None:
    _maker(home, _MAKES.replace("${CODE:-0}", "3"))
    async with open_agent(home, permissions__allow=["Write"]) as at:
        await at.ask("Go", calls(("SkillScript", {"skill": "maker", "save_to": "."})), says("."))
        (result,) = await at.results()
        assert "exit code 3" in result
        assert "None of its files was saved." in result
        assert list(at.project.iterdir()) == []


async def test_saved_files_wake_the_skills_they_concern(home: Path) -> None:
    _maker(home)
    make_skill(home / ".claude/skills", "charts", paths=["**/*.svg"])
    async with open_agent(home, permissions__allow=["Write"]) as at:
        await at.ask("Go", calls(("SkillScript", {"skill": "maker", "save_to": "."})), says("."))
        assert at.record()["woken"] == ["charts"]


async def test_two_files_of_one_name_are_not_mixed_up(home: Path) -> None:
    files = {"scripts/main.sh": 'cat "$@"'}
    make_skill(home / ".claude/skills", "reader", files=files)
    async with open_agent(home) as at:
        for folder in ("a", "b"):
            (at.project / folder).mkdir()
            (at.project / folder / "x.txt").write_text(f"from {folder}\n", encoding="utf-8")
        names = ["a/x.txt", "b/x.txt"]
        wanted = {"skill": "reader", "files": names, "arguments": names}
        await at.ask("Go", calls(("SkillScript", wanted)), says("."))
        assert (await at.results())[-1] == "from a\nfrom b"
        twice = {"skill": "reader", "files": ["a/x.txt", "./a/x.txt"]}
        await at.ask("Go", calls(("SkillScript", twice)), says("."))
        assert "'a/x.txt': there are two files of that name" in (await at.results())[-1]


async def test_what_a_script_made_can_be_read_and_given_to_another(home: Path) -> None:
    _maker(home)
    make_skill(home / ".claude/skills", "reader", files={"scripts/main.sh": 'cat "$@"'})
    async with open_agent(home) as at:
        await at.ask("Go", calls(("SkillScript", {"skill": "maker"})), says("."))
        (created,) = [event for event in at.events if isinstance(event, FilesCreated)]
        assert (created.skill, created.files) == ("maker", {"charts/one.svg": 6, "report.md": 7})
        made = f"{created.folder}/report.md"
        read = calls(("Read", {"file_path": made}))
        passed = calls(("SkillScript", {"skill": "reader", "files": [made], "args": ["report.md"]}))
        await at.ask("Go on", read, passed, says("."))
        assert "report" in (await at.results())[1]
        assert (await at.results())[2] == "report"
        other = Path(created.folder).parent / "owner.json"
        await at.ask("And", calls(("Read", {"file_path": str(other)})), says("."))
        assert (await at.results())[3].startswith("[path_outside]")


async def test_a_folder_is_given_without_what_rules_and_gitignore_exclude(home: Path) -> None:
    listing = "find . -type f | sort"
    make_skill(home / ".claude/skills", "lister", files={"scripts/main.sh": listing})
    async with open_agent(home, permissions__deny=["Read(secret.env)"]) as at:
        for path in ("data/a.csv", "data/deep/b.csv", "data/secret.env", "data/log.tmp"):
            (at.project / path).parent.mkdir(parents=True, exist_ok=True)
            (at.project / path).write_text("x", encoding="utf-8")
        (at.project / "data/.gitignore").write_text("*.tmp\n", encoding="utf-8")
        (at.project / "data/out").symlink_to("/etc")
        wanted = {"skill": "lister", "files": ["data"]}
        await at.ask("Go", calls(("SkillScript", wanted)), says("."))
        (result,) = await at.results()
        listed, _, note = result.partition("\n\n")
        assert listed == "./data/.gitignore\n./data/a.csv\n./data/deep/b.csv"
        assert "data/secret.env (a rule denies it)" in note
        assert "data/out (it is a symlink, not a regular file)" in note
        assert "data/ (1 that .gitignore names)" in note


async def test_files_that_are_left_out_are_named(home: Path) -> None:
    _maker(home, "ln -s /etc/passwd link; mkfifo pipe; echo x > report.md")
    async with open_agent(home) as at:
        await at.ask("Go", calls(("SkillScript", {"skill": "maker"})), says("."))
        (result,) = await at.results()
        assert "left out: link (a link), pipe (not a plain file)." in result
        (event,) = [event for event in at.events if isinstance(event, FilesSkipped)]
        assert event.files == {"link": "a link", "pipe": "not a plain file"}


async def test_a_persons_own_skill_may_have_its_script_run_once_it_was_invoked(home: Path) -> None:
    files = {"scripts/main.sh": "#!/bin/sh\necho ran\n"}
    make_skill(home / ".claude/skills", "mine", files=files, disable_model_invocation=True)
    run = calls(("SkillScript", {"skill": "MINE"}))
    async with open_agent(home) as at:
        await at.ask("Go", run, says("."))
        assert (await at.results())[0].startswith("[skill_for_users_only]")
        await at.ask("/mine", run, says("."))
        assert (await at.results())[1] == "ran"


async def test_a_script_without_its_permission_is_reported(home: Path) -> None:
    root = make_skill(home / ".claude/skills", "mine", files={"scripts/main.sh": "echo"})
    (root / "scripts/program").write_bytes(b"\x7fELF")
    async with open_agent(home) as at:
        script = {"skill": "mine", "script": "program"}
        await at.ask("Go", calls(("SkillScript", script)), says("."))
        assert (await at.results())[0].startswith("[permission_denied] The program is not exec")
