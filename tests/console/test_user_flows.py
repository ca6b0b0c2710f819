"""User flows of the console in a browser, with a real server."""

import base64
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from apexbridge.models.base import ModelDelta
from apexbridge.testing import BrokenStream, make_skill, make_zip, skill_md
from tests.console.console_server import BrowserSession, ConsoleServer, browser_session
from tests.server.chat_server import text_reply, tool_reply

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.unmeasured]
_BASH = ("Bash", '{"command": "echo hello from the shell"}')


def _say(page: Page, text: str) -> None:
    # The keys send nothing while a response is running, and its text is there before its end.
    expect(page.locator(".turn.running")).to_have_count(0)
    page.fill(".composer textarea", text)
    page.keyboard.press("Control+Enter")


def test_a_printed_link_signs_in_once_and_leaves_the_address(
    browser: Browser, at: ConsoleServer
) -> None:
    token = at.token()
    with browser_session(browser, at) as here:
        here.page.goto(f"{at.url}#token={token}")
        expect(here.page.locator("nav.nav a")).to_have_count(7)
        assert "token" not in here.page.url
        assert token not in here.page.evaluate("JSON.stringify([history.state, localStorage])")
        here.page.reload()
        expect(here.page.locator("nav.nav")).to_be_visible()
        here.page.click("button.leave")
        expect(here.page.locator("#token")).to_be_focused()
        here.page.reload()
        expect(here.page.locator("#token")).to_be_visible()
    with browser_session(browser, at) as other:
        other.page.goto(f"{at.url}#token={token}")
        expect(other.page.locator(".problem")).to_be_visible()
        other.page.fill("#token", at.token())
        other.page.keyboard.press("Enter")
        expect(other.page.locator("nav.nav")).to_be_visible()


def test_a_key_that_may_little_sees_little(browser: Browser, at: ConsoleServer) -> None:
    key = at.serving.key_for("skills:read")
    with browser_session(browser, at) as here:
        here.page.goto(f"{at.url}#token={key}")
        expect(here.page.locator("nav.nav a")).to_have_text(["Skills", "Playground"])
        here.go("skills/garden")
        expect(here.page.locator(".skill h2")).to_have_text("garden")
        expect(here.page.locator(".skill .actions button")).to_have_count(0)
        here.go("doctor")
        expect(here.page.locator(".problem")).to_contain_text("admin")


def test_a_key_session_continues_the_keys_conversations(
    browser: Browser, at: ConsoleServer
) -> None:
    key = at.serving.key_for("chat")
    at.script.play(text_reply("First."), text_reply("Second."))
    with browser_session(browser, at) as here:
        page = here.page
        page.goto(f"{at.url}#token={key}")
        _say(page, "One")
        expect(page.locator(".prose")).to_have_text("First.")
        expect(page.locator(".sessions a[aria-current]")).to_have_count(1)
        page.reload()
        expect(page.locator(".prose")).to_have_text("First.")
        _say(page, "Two")
        expect(page.locator(".prose").last).to_have_text("Second.")
        expect(page.locator(".sessions a")).to_have_count(1)
    with browser_session(browser, at) as owner:
        owner.enter("chat")
        owner.page.locator(".sessions a", has_text="One").click()
        expect(owner.page.locator(".prose").first).to_have_text("First.")
        expect(owner.page.locator(".composer textarea")).to_be_disabled()


def test_a_response_streams_with_its_tools_and_can_be_continued(
    browser: Browser, at: ConsoleServer
) -> None:
    at.script.play(tool_reply(_BASH, text="Let me look."), text_reply("It says **hello**."))
    with browser_session(browser, at) as here:
        here.enter("chat")
        page = here.page
        _say(page, "What does the shell say?")
        question = page.locator(".question")
        expect(question).to_contain_text("echo hello from the shell")
        expect(question.locator(".left")).to_contain_text("s left")
        expect(page.locator(".nav .count")).to_contain_text("1")
        question.locator("[data-answer=once]").click()
        expect(question).to_contain_text("Allowed once")
        expect(page.locator(".prose strong")).to_have_text("hello")
        call = page.locator("details.call")
        expect(call).to_have_attribute("data-state", "done")
        call.locator("summary").click()
        expect(call).to_contain_text("hello from the shell")
        expect(page.locator(".turn-foot")).to_contain_text("2 rounds")
        expect(page.locator(".nav .count")).to_be_hidden()
        page.locator(".found summary").click()
        expect(page.locator(".found .chip").first).to_be_visible()
        expect(page.locator(".sessions a[aria-current]")).to_contain_text("What does the shell")
        session = page.url
        page.reload()
        expect(page.locator(".said")).to_have_text("What does the shell say?")
        expect(page.locator(".prose strong")).to_have_text("hello")
        at.script.play(text_reply("Again: hello."))
        _say(page, "And again?")
        expect(page.locator(".turn").last).to_contain_text("Again: hello.")
        assert page.url == session
        asked = at.script.requests[-1]["messages"]
        assert any("It says **hello**." in str(message) for message in asked)
        page.click(".turn:last-of-type >> text=Show trace")
        expect(page.locator(".timeline .row").first).to_be_visible()


def test_a_running_answer_can_be_stopped_and_the_next_one_works(
    browser: Browser, at: ConsoleServer
) -> None:
    at.script.play(BrokenStream(deltas=[ModelDelta(text="It begins")], then="hang"))
    with browser_session(browser, at) as here:
        here.enter("chat/new")
        page = here.page
        _say(page, "Begin")
        expect(page.locator(".prose")).to_contain_text("It begins")
        page.click("button[aria-label=Stop]")
        expect(page.locator(".turn-foot")).to_contain_text("Stopped")
        at.script.play(text_reply("Done."))
        _say(page, "Go on")
        expect(page.locator(".turn").last).to_contain_text("Done.")


def test_a_failed_response_shows_its_error_and_a_denial_is_reported(
    browser: Browser, at: ConsoleServer
) -> None:
    at.script.play(tool_reply(_BASH), text_reply("Then not."))
    with browser_session(browser, at) as here:
        here.enter("chat/new")
        page = here.page
        _say(page, "Try the shell")
        expect(page.locator(".question [data-answer=no]")).to_be_visible()
        here.go("approvals")
        expect(page.locator(".question")).to_contain_text("echo hello from the shell")
        page.click("[data-answer=no]")
        expect(page.locator(".question")).to_contain_text("Denied")
        page.go_back()
        expect(page.locator(".prose")).to_contain_text("Then not.")
        expect(page.locator(".question")).to_contain_text("Denied")
        _say(page, "Once more")  # the script has no more replies
        expect(page.locator(".turn .problem")).to_be_visible()


def test_a_skill_can_be_allowed_by_its_exact_rule_or_by_its_prefix(
    browser: Browser, at: ConsoleServer
) -> None:
    make_skill(at.home / ".claude/skills", "review", context="fork")
    at.portal.call(at.serving.state.runtime.refresh)
    wanted = ("Skill", '{"skill": "review"}')
    at.script.play(tool_reply(wanted), text_reply("Child."), text_reply("Reviewed."))
    with browser_session(browser, at) as here:
        here.enter("chat/new")
        page = here.page
        _say(page, "Review it")
        exact = page.locator(".question [data-answer=always]")
        prefix = page.locator(".question [data-answer=always_prefix]")
        expect(exact).to_have_attribute("title", "Adds the rule: Skill(review)")
        expect(prefix).to_have_text("Always allow Skill(review *)")
        prefix.click()
        expect(page.locator(".question")).to_contain_text("Always allowed, with the names below it")
        expect(page.locator(".prose").last).to_contain_text("Reviewed.")


def test_a_conversation_can_be_deleted(browser: Browser, at: ConsoleServer) -> None:
    at.script.play(text_reply("Forget me."))
    with browser_session(browser, at) as here:
        here.enter("chat/new")
        page = here.page
        _say(page, "A secret")
        line = page.locator(".sessions li", has_text="A secret")
        expect(line.locator("a")).to_have_attribute("aria-current", "true")
        line.hover()
        line.locator("button").click()
        expect(page.locator(".sessions li", has_text="A secret")).to_have_count(0)
        expect(page.locator(".said")).to_have_count(0)


def _zip(place: Path, version: str, description: str) -> Path:
    files = {
        "beds/SKILL.md": skill_md("beds", description, body="# Beds\n", version=version),
        "beds/scripts/main.py": b"import os\nprint('beds', os.getpid())\n",
    }
    return make_zip(place / f"beds-{version}.zip", files)


_DROP = """async ([selector, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "application/zip" }));
  const target = document.querySelector(selector);
  for (const kind of ["dragover", "drop"]) {
    const given = { dataTransfer: transfer, bubbles: true, cancelable: true };
    target.dispatchEvent(new DragEvent(kind, given));
  }
}"""


def test_a_skill_is_installed_edited_switched_rolled_back_and_brought_back(
    browser: Browser, at: ConsoleServer, tmp_path: Path
) -> None:
    with browser_session(browser, at) as here:
        here.enter("skills")
        _install(here.page, _zip(tmp_path, "1", "Draws flower beds."))
        _edit(here.page)
        _update_by_drop(here, _zip(tmp_path, "2", "Draws raised beds."))
        _roll_back(here.page)
        _switch_and_pin(here.page)
        _remove_and_undo(here.page)


def _install(page: Page, package: Path) -> None:
    page.click("text=Install")
    page.set_input_files("input[type=file]", str(package))
    report = page.locator(".report")
    expect(report).to_contain_text("Draws flower beds.")
    expect(report).to_contain_text("scripts/main.py")
    page.click("text=Install beds")
    expect(page.locator(".skill h2")).to_have_text("beds")
    expect(page.locator(".toast")).to_contain_text("beds is installed")
    expect(page.locator(".list a[data-id=beds]")).to_have_attribute("aria-current", "true")


def _edit(page: Page) -> None:
    page.click("text=Edit description")
    field = page.locator(".editor textarea")
    field.fill("Draws flower beds and herb spirals for small gardens.")
    expect(page.locator(".preview .ranks tbody tr").first).to_be_visible()
    page.click("text=Save")
    expect(page.locator(".skill .lead")).to_contain_text("herb spirals")


def _update_by_drop(here: BrowserSession, package: Path) -> None:
    page = here.page
    data = package.read_bytes()
    page.evaluate(_DROP, [".split", package.name, _base64(data)])
    page.click("text=Update beds")
    expect(page.locator(".skill .lead")).to_have_text("Draws raised beds.")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _roll_back(page: Page) -> None:
    page.click("role=tab[name=Versions]")
    rows = page.locator(".versions tbody tr")
    expect(rows).to_have_count(2)
    rows.locator("button").click()
    expect(page.locator(".skill .lead")).to_contain_text("herb spirals")


def _switch_and_pin(page: Page) -> None:
    page.click(".skill >> text=Disable")
    expect(page.locator(".badges")).to_contain_text("disabled")
    page.click(".skill >> text=Enable")
    expect(page.locator(".badges")).to_contain_text("enabled")
    page.click(".actions >> text=Pin")
    expect(page.locator(".badges")).to_contain_text("pinned")
    page.click(".actions >> text=Unpin")
    expect(page.locator(".badges")).not_to_contain_text("pinned")


def _remove_and_undo(page: Page) -> None:
    page.click(".skill >> text=Remove")
    expect(page.locator(".list a[data-id=beds]")).to_have_count(0)
    page.select_option(".filters select", "trash")
    expect(page.locator(".list-title", has_text="beds")).to_be_visible()
    page.select_option(".filters select", "")
    page.click(".toast >> text=Undo")
    expect(page.locator(".list a[data-id=beds]")).to_have_count(1)
    expect(page.locator(".skill h2")).to_have_text("beds")


def test_searching_finds_by_name_and_by_meaning_as_one_types(
    browser: Browser, at: ConsoleServer
) -> None:
    with browser_session(browser, at) as here:
        here.enter("skills")
        page = here.page
        page.fill("[data-search]", "vegetable")
        expect(page.locator(".list").first.locator("a")).to_have_text([re.compile("^garden")])
        page.fill("[data-search]", "zzzz qqqq")
        expect(page.locator(".skill-list .list a .badge").first).to_have_text("weak match")
        here.go("playground?query=zzzz%20qqqq")
        expect(page.locator(".hit .score").first).to_have_text("weak match")
        expect(page.locator(".confidence")).to_contain_text("Weak matches only")
        expect(page.locator(".confidence")).not_to_contain_text("%")
        here.go("playground")
        page.fill("[data-search]", "plan a vegetable garden")
        first = page.locator(".hit").first
        expect(first.locator("header a")).to_have_text("garden")
        expect(first.locator(".part")).to_have_count(6)
        expect(first.locator(".word").first).to_be_visible()
        expect(page.locator(".confidence")).to_contain_text("%")
        assert "query=plan" in page.url


def test_what_cannot_be_installed_says_why(
    browser: Browser, at: ConsoleServer, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"this is no zip")
    with browser_session(browser, at) as here:
        here.enter("skills")
        here.page.click("text=Install")
        here.page.set_input_files("input[type=file]", str(broken))
        expect(here.page.locator("dialog .problem")).to_be_visible()
        here.page.keyboard.press("Escape")
        expect(here.page.locator("dialog")).to_have_count(0)


def test_an_unreachable_server_is_reported_and_retried(browser: Browser, at: ConsoleServer) -> None:
    with browser_session(browser, at) as here:
        here.enter("doctor")
        page = here.page
        expect(page.locator(".checks li").first).to_be_visible()
        page.route("**/v1/turns*", lambda route: route.abort())
        here.go("traces")
        expect(page.locator(".problem")).to_contain_text("apexbridge serve")
        page.unroute("**/v1/turns*")
        page.click("text=Try again")
        expect(page.locator(".problem")).to_have_count(0)
