"""XSS: text of skills, models and tools stays text."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from apexbridge.testing import make_skill
from tests.console.console_server import ConsoleServer, browser_session
from tests.server.chat_server import text_reply, tool_reply

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.unmeasured]
HOSTILE = """# Nice <script>window.taken = 1</script> title

<script>window.taken = 2</script>
<meta http-equiv="refresh" content="0; url=https://evil.example/">
<base href="https://evil.example/">
<svg onload="window.taken = 3"><circle r="9"/><script>window.taken = 4</script></svg>
<img src=x onerror="window.taken = 5">
<iframe srcdoc="<script>parent.taken = 6</script>"></iframe>
<style>body { display: none }</style>
<form action="https://evil.example/"><input name=a><button>send</button></form>

[press](javascript:window.taken=7) [press](JaVaScRiPt:window.taken=8)
[press](data:text/html,<script>window.taken=9</script>) [press](vbscript:x)
[press](//evil.example/x)
[press](java\tscript:window.taken=10) <javascript:window.taken=11> [press](&#106;avascript:taken)
![picture](https://evil.example/pixel.png) ![x](data:image/svg+xml,<svg/onload=alert(1)>)
[mail](mailto:a@example.org) [good](https://example.org/page "title") https://example.org/bare

| a <img src=x onerror="window.taken=12"> | b |
|---|---|
| <script>window.taken = 13</script> | `<b>` |

```html"><script>window.taken=14</script>
<script>window.taken = 15</script>
```

- [ ] <b onclick="window.taken=16">item</b>
"""


def _is_inert(page: Page, place: str) -> None:
    expect(page.locator(f"{place} h3").first).to_contain_text("<script>window.taken = 1</script>")
    for link in page.locator(f"{place} a").all():
        address = link.get_attribute("href") or ""
        assert address.startswith(("https://", "http://", "mailto:")), address
        assert "noopener" in (link.get_attribute("rel") or "")
    for text in page.locator(f"{place} .dead-link").all():
        text.click()
    made = page.evaluate(
        """(place) => [...document.querySelectorAll(`${place} *`)].map((node) => node.tagName)""",
        place,
    )
    allowed = {
        "H3", "P", "A", "SPAN", "CODE", "PRE", "EM", "STRONG", "S", "BR", "UL", "OL", "LI", "HR",
        "BLOCKQUOTE", "DIV", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD",
    }  # fmt: skip
    assert set(made) <= allowed
    assert page.evaluate("window.taken === undefined")
    shown = page.locator(place).inner_text()
    assert "onerror=" in shown
    assert "http-equiv" in shown
    assert "(example.org)" in shown  # where a link leads is said beside it
    assert page.evaluate("getComputedStyle(document.body).display") == "block"


@pytest.mark.promise("S15")
def test_markup_of_a_skill_is_shown_and_does_nothing(browser: Browser, at: ConsoleServer) -> None:
    skills = Path(at.home / ".claude" / "skills")
    description = "<img src=x onerror='window.taken=20'> [x](javascript:window.taken=21)"
    make_skill(skills, "trap", description=description, body=HOSTILE)
    at.portal.call(at.serving.state.runtime.catalog.refresh)
    with browser_session(browser, at) as here:
        here.enter("skills/trap")
        expect(here.page.locator(".skill .lead")).to_have_text(description)
        _is_inert(here.page, ".skill .prose")
        address = here.page.url
        here.page.click("role=tab[name='Source']")
        expect(here.page.locator("pre.source")).to_contain_text("http-equiv")
        assert here.page.url == address
        assert here.page.evaluate("window.taken === undefined")


@pytest.mark.promise("S15")
def test_markup_of_an_answer_and_of_a_tool_is_shown_and_does_nothing(
    browser: Browser, at: ConsoleServer
) -> None:
    at.script.play(
        tool_reply(("Calculate", '{"expression": "<img src=x onerror=taken=1>"}')),
        text_reply(HOSTILE),
    )
    with browser_session(browser, at) as here:
        here.enter("chat/new")
        page = here.page
        page.fill(".composer textarea", "<script>window.taken = 30</script>")
        page.keyboard.press("Control+Enter")
        expect(page.locator(".said")).to_have_text("<script>window.taken = 30</script>")
        expect(page.locator(".turn-foot")).to_contain_text("rounds")
        page.locator("details.call summary").click()
        expect(page.locator("details.call pre").first).to_contain_text("onerror")
        _is_inert(page, ".turn .prose")
        expect(page.locator(".sessions .list-title").first).to_contain_text("<script>")


@pytest.mark.promise("S15")
def test_markup_that_got_into_the_page_all_the_same_would_do_nothing(
    browser: Browser, at: ConsoleServer
) -> None:
    with browser_session(browser, at) as here:
        here.enter("doctor")
        expect(here.page.locator("h1")).to_be_visible()
        kept = [line for line in HOSTILE.splitlines() if "http-equiv" not in line]
        here.page.evaluate(_INJECT, "\n".join(kept))  # no policy keeps a page from being left
        expect(here.page.locator("#injected iframe")).to_have_count(1)
        here.page.wait_for_function("window.violations.length >= 5")
        assert here.page.evaluate("window.taken === undefined")
        assert here.page.evaluate("getComputedStyle(document.body).display") == "block"
        assert here.page.url.startswith(at.url)
        broken = " ".join(here.page.evaluate("window.violations.splice(0)"))
        for rule in ("script-src", "style-src", "img-src", "connect-src"):
            assert rule in broken
        assert here.faults  # the browser complains of what it was kept from
        assert here.outside == here.blocked
        here.faults.clear()
        here.outside.clear()


_INJECT = """async (markup) => {
  const place = document.createElement("div");
  place.id = "injected";
  document.body.append(place);
  place.innerHTML = markup;
  for (const inert of place.querySelectorAll("script")) {
    const script = document.createElement("script");
    script.textContent = inert.textContent;
    place.append(script);
  }
  await fetch("https://evil.example/").catch(() => {});
  const picture = new Image();
  picture.src = "https://evil.example/pixel.png";
  place.querySelector("img").dispatchEvent(new Event("error"));
}"""


def test_unseen_signs_in_a_question_are_spelled_out(browser: Browser, at: ConsoleServer) -> None:
    command = "echo safe \u202e # rm -rf \u200b~ \x1b[8m"
    at.script.play(tool_reply(("Bash", f'{{"command": {_quoted(command)}}}')), text_reply("Well."))
    with browser_session(browser, at) as here:
        here.enter("chat/new")
        here.page.fill(".composer textarea", "Do it")
        here.page.keyboard.press("Control+Enter")
        shown = here.page.locator(".question pre")
        expect(shown).to_contain_text("\\u{202e}")
        expect(shown).to_contain_text("\\u{200b}")
        expect(shown).to_contain_text("\\u{1b}")
        here.page.click("[data-answer=no]")
        expect(here.page.locator(".turn .prose")).to_contain_text("Well.")


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\u{ord(sign):04x}" for sign in text) + '"'


_DEEP = {
    "quotes": ">" * 5_000 + " x",
    "lists": "\n".join("  " * depth + "- x" for depth in range(400)),
    "stars": "*" * 20_000 + "x",
    "brackets": "[" * 20_000 + "](" * 5_000,
    "ticks": "`" * 9_999 + "x`",
    "words": "a_b *c " * 3_000,
    "pipes": "|x" + "|" * 5_000 + "\n" + "|-" * 2_500,
    "lines": "x\n" * 20_000,
}


def test_texts_made_to_take_long_are_drawn_soon(browser: Browser, at: ConsoleServer) -> None:
    with browser_session(browser, at) as here:
        here.page.goto(at.url)
        expect(here.page.locator("#token")).to_be_visible()
        draw = """async (texts) => {
          const { markdown } = await import("/console/js/markdown.js");
          const made = {};
          for (const [name, text] of Object.entries(texts)) {
            const began = performance.now();
            const whole = document.createElement("div");
            whole.append(...markdown(text));
            made[name] = { took: performance.now() - began, length: whole.textContent.length };
          }
          return made;
        }"""
        made = here.page.evaluate(draw, _DEEP)
        slow = {name: each["took"] for name, each in made.items() if each["took"] > 5_000}
        assert slow == {}
        assert [name for name, each in made.items() if not each["length"]] == []


def test_a_page_cannot_be_given_events_or_styles_by_name(
    browser: Browser, at: ConsoleServer
) -> None:
    with browser_session(browser, at) as here:
        here.page.goto(at.url)
        refused = here.page.evaluate(
            """async () => {
              const { h } = await import("/console/js/dom.js");
              const tried = ["onclick", "srcdoc", "style", "ONLOAD"];
              return tried.filter((name) => {
                try { h("div", { [name]: "x" }); return false; } catch { return true; }
              });
            }"""
        )
        assert refused == ["onclick", "srcdoc", "style", "ONLOAD"]
