"""A whole server with its console, a model that says what was written down, and a browser."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request

from apexbridge.models.openai import OpenAiModel
from apexbridge.models.retry import Timeouts
from apexbridge.server.routes import ROUTES
from apexbridge.settings import load
from apexbridge.testing import ScriptedServer, make_skill
from tests.server.live_server import Serving, serving

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
PATIENCE_MS = 10_000
GARDEN = """# Garden

Plans a bed with **care**: look at the *soil*, then choose.

1. Read `beds.csv`.
2. Run the script:

```sh
python scripts/main.py --check
```

| plant | when | space |
|---|---|--:|
| peas | March | 5 cm |
| beans | May | 15 cm |

> Water in the morning. See [the almanac](https://example.org/almanac).
"""
_Running = tuple[Serving, ScriptedServer]


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A running server, and the model behind it."""

    serving: Serving
    script: ScriptedServer
    portal: BlockingPortal
    home: Path

    @property
    def url(self) -> str:
        """Where the console is."""
        return f"{self.serving.url}/console/"

    def token(self) -> str:
        """What opens it, once."""
        return self.portal.call(self.serving.house.sessions.issue_token)


@asynccontextmanager
async def _running(home: Path, settings: Mapping[str, Any]) -> AsyncGenerator[_Running]:
    async with ScriptedServer() as script:
        environment = {
            "HOME": str(home),
            "APEXBRIDGE_DATA_DIR": str(home / "data"),
            "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        }
        model = {"base_url": script.base_url, "name": "scripted", "tools": "native"}
        flags = {"model": model, **settings}
        loaded = load(project=home / "project", environment=environment, flags=flags)
        async with serving(loaded, ROUTES) as served:
            chatting = served.house.runtime.chat_service
            hurry = Timeouts(retry_seconds=0.1, first_byte_seconds=20, idle_seconds=20)
            client = OpenAiModel(script.base_url, timeouts=hurry)
            chatting.model = replace(chatting.model, client=client)
            try:
                yield served, script
            finally:
                await client.close()


@contextmanager
def house(home: Path, **settings: Any) -> Generator[House]:
    """Serve for the length of the block, in a thread of its own."""
    (home / "project").mkdir(parents=True, exist_ok=True)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_running(home, settings)) as (served, script),
    ):
        yield House(serving=served, script=script, portal=portal, home=home)


def furnish(home: Path) -> None:
    """A few skills in a home."""
    skills = home / ".claude" / "skills"
    make_skill(
        skills,
        "garden",
        description="Plans a vegetable garden by season, soil and space.",
        files={"scripts/main.py": "print('dry: peas, beans')\n"},
        body=GARDEN,
    )
    make_skill(skills, "tables", description="Reads tables out of PDF files. 从 PDF 中读取表格。")


@dataclass(slots=True, kw_only=True)
class Visit:
    """A browser at the console, and everything it should not have done."""

    page: Page
    context: BrowserContext
    house: House
    outside: list[str] = field(default_factory=list[str])
    blocked: list[str] = field(default_factory=list[str])
    """What of it the page's own policy kept from being sent."""
    faults: list[str] = field(default_factory=list[str])

    def go(self, screen: str) -> None:
        """Open a screen by its address."""
        self.page.goto(f"{self.house.url}#/{screen}")

    def enter(self, screen: str = "") -> None:
        """Sign in with a fresh token, as the link that the server prints does."""
        self.page.goto(f"{self.house.url}#token={self.house.token()}")
        self.page.wait_for_selector("nav.nav")
        if screen:
            self.go(screen)

    def check(self) -> None:
        """Nothing was asked of anybody else, and the policy was never broken."""
        violations: list[str] = self.page.evaluate("window.violations ?? []")
        assert (self.outside, violations, self.faults) == ([], [], [])


def launch(playwright: Playwright) -> Browser:
    """The system's Chromium."""
    return playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))


@contextmanager
def visit(browser: Browser, at: House, **options: Any) -> Generator[Visit]:
    """A visitor of one's own: no cookie, no memory; `check` is made when it leaves."""
    given: dict[str, Any] = {
        "base_url": at.serving.url,
        "viewport": {"width": 1280, "height": 800},
        "reduced_motion": "reduce",
        **options,
    }
    context = browser.new_context(**given)
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        made = Visit(page=page, context=context, house=at)
        page.add_init_script(_WATCH)
        own = urlsplit(at.url).netloc
        context.on("request", lambda r: _note(made.outside, r.url, own))
        context.on("requestfailed", lambda r: _blocked(made.blocked, r))
        page.on("pageerror", lambda error: made.faults.append(str(error)))
        page.on("console", lambda m: _complain(made.faults, m.type, m.text))
        yield made
        made.check()
    finally:
        context.close()


def _note(outside: list[str], url: str, own: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"data", "blob", "about"} and parts.netloc != own:
        outside.append(url)


def _blocked(blocked: list[str], request: Request) -> None:
    if request.failure == "csp":
        blocked.append(request.url)


def _complain(faults: list[str], kind: str, text: str) -> None:
    """A refusal of the server is no fault of the page; whatever else it complains of is."""
    if kind == "error" and not text.startswith("Failed to load resource"):
        faults.append(text)
