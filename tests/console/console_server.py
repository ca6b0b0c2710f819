"""Server with its console, a scripted model, and a browser."""

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
from tests.server.live_server import LiveServer, live_server

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
TIMEOUT_MS = 10_000
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
_Running = tuple[LiveServer, ScriptedServer]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleServer:
    """Running server, and its scripted model."""

    serving: LiveServer
    script: ScriptedServer
    portal: BlockingPortal
    home: Path

    @property
    def url(self) -> str:
        """URL of the console."""
        return f"{self.serving.url}/console/"

    def token(self) -> str:
        """Issue a one-time sign-in token."""
        return self.portal.call(self.serving.state.sessions.issue_token)


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
        async with live_server(loaded, ROUTES) as served:
            chatting = served.state.runtime.chat_service
            hurry = Timeouts(retry_seconds=0.1, first_byte_seconds=20, idle_seconds=20)
            client = OpenAiModel(script.base_url, timeouts=hurry)
            chatting.model = replace(chatting.model, client=client)
            try:
                yield served, script
            finally:
                await client.close()


@contextmanager
def console_server(home: Path, **settings: Any) -> Generator[ConsoleServer]:
    """Serve in a background thread for the duration of the block."""
    (home / "project").mkdir(parents=True, exist_ok=True)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_running(home, settings)) as (served, script),
    ):
        yield ConsoleServer(serving=served, script=script, portal=portal, home=home)


def add_sample_skills(home: Path) -> None:
    """Add sample skills to a home folder."""
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
class BrowserSession:
    """Browser page on the console, with its recorded violations."""

    page: Page
    context: BrowserContext
    server: ConsoleServer
    outside: list[str] = field(default_factory=list[str])
    blocked: list[str] = field(default_factory=list[str])
    """Requests that the Content-Security-Policy blocked."""
    faults: list[str] = field(default_factory=list[str])

    def go(self, screen: str) -> None:
        """Open a screen by URL."""
        self.page.goto(f"{self.server.url}#/{screen}")

    def enter(self, screen: str = "") -> None:
        """Sign in with a fresh token, as the link that the server prints does."""
        self.page.goto(f"{self.server.url}#token={self.server.token()}")
        self.page.wait_for_selector("nav.nav")
        if screen:
            self.go(screen)

    def check(self) -> None:
        """Assert that no other host was contacted and no policy violated."""
        violations: list[str] = self.page.evaluate("window.violations ?? []")
        assert (self.outside, violations, self.faults) == ([], [], [])


def launch(playwright: Playwright) -> Browser:
    """Launch the system's Chromium."""
    return playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))


@contextmanager
def browser_session(
    browser: Browser, at: ConsoleServer, **options: Any
) -> Generator[BrowserSession]:
    """New browser context without cookies; `check` runs at its end."""
    given: dict[str, Any] = {
        "base_url": at.serving.url,
        "viewport": {"width": 1280, "height": 800},
        "reduced_motion": "reduce",
        **options,
    }
    context = browser.new_context(**given)
    try:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        made = BrowserSession(page=page, context=context, server=at)
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
    """Record console errors, except failed requests that the server refused."""
    if kind == "error" and not text.startswith("Failed to load resource"):
        faults.append(text)
