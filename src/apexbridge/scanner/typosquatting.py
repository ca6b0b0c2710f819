"""How far two names are apart."""

import re
from collections.abc import Iterator

from apexbridge.scanner.pattern_matcher import Hit, SkillContext
from apexbridge.scanner.rules import lower_level
from apexbridge.scanner.scan_input import TextFile


def edit_distance(one: str, other: str) -> int:
    """How many letters were changed, left out, put in or swapped; more than one counts as two."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    a, b = one[start:], other[start:]
    if a == b:
        return 0
    if a[1:] == b[1:] or a[1:] == b or a == b[1:]:
        return 1
    return 1 if a[:2] == b[:2][::-1] and a[2:] == b[2:] else 2


MIN_WORD_LENGTH = 6
"""Letters below which two words are easily alike by chance."""

_POPULAR_WORDS = frozenset(
    {"airtable", "amazon", "analytics", "angular", "ansible", "anthropic", "assistant",
     "atlassian", "backup", "binance", "bitcoin", "browser", "calculator", "calendar",
     "chatgpt", "cloudflare", "coinbase", "confluence", "converter", "crypto", "dashboard",
     "database", "databricks", "datadog", "deployment", "discord", "docker", "document",
     "dropbox", "elasticsearch", "ethereum", "evernote", "facebook", "figma", "finance",
     "firebase", "formatter", "gemini", "generator", "github", "gitlab", "google", "grafana",
     "helper", "heroku", "hubspot", "huggingface", "instagram", "invoice", "javascript",
     "jenkins", "kubernetes", "lambda", "langchain", "linear", "linkedin", "mailchimp",
     "manager", "markdown", "metamask", "mongodb", "monitor", "netlify", "notification",
     "notion", "obsidian", "openai", "outlook", "pandas", "payment", "paypal", "playwright",
     "polymarket", "postgres", "postgresql", "powerpoint", "presentation", "prometheus",
     "puppeteer", "python", "pytorch", "reddit", "redis", "research", "salesforce", "scanner",
     "scheduler", "security", "selenium", "sendgrid", "sentry", "shopify", "slack",
     "snowflake", "solana", "spotify", "spreadsheet", "stripe", "summarizer", "supabase",
     "telegram", "tensorflow", "terraform", "todoist", "translator", "trello", "twilio",
     "twitter", "typescript", "vercel", "wallet", "weather", "whatsapp", "wikipedia",
     "youtube", "zendesk"}
)  # fmt: skip
_REAL_WORDS = frozenset(
    {"analytic", "angularj", "bowser", "browse", "browserx", "datalog", "docked", "fiance",
     "linearis", "manage", "managed", "openapi", "openpi", "openui", "postgrest", "posture",
     "schedule", "scheduled", "stride", "strike", "striped", "strive", "summarise",
     "summariser", "summarize", "todolist", "translate", "translated", "trelli", "walled"}
)  # fmt: skip
"""Words that are near a known one and mean something else."""
_POPULAR_STEMS = {word.rstrip("s"): word for word in sorted(_POPULAR_WORDS)}
_NAME_WORD = re.compile(r"[a-z0-9]+")


def misspelled_words(name: str) -> Iterator[tuple[str, str]]:
    """The words of a name that are one slip away from a well-known one, with that one."""
    for whole in _NAME_WORD.findall(name.lower())[:20]:
        word = whole.rstrip("0123456789s")  # several of them, or another version
        if len(word) < MIN_WORD_LENGTH or word in _REAL_WORDS or word in _POPULAR_STEMS:
            continue
        for bare, known in _POPULAR_STEMS.items():
            if (
                len(bare) >= MIN_WORD_LENGTH
                and word[0] == bare[0]
                and edit_distance(word, bare) == 1
            ):
                yield whole, known
                break


MAX_NAMES = 2_000
"""How many names of one file are compared."""

_POPULAR_PACKAGES = frozenset(
    {"requests", "urllib3", "numpy", "pandas", "scipy", "matplotlib", "django", "flask",
     "fastapi", "pydantic", "sqlalchemy", "boto3", "botocore", "cryptography", "pyyaml",
     "pillow", "setuptools", "tensorflow", "pytorch", "torchvision", "transformers",
     "langchain", "openai", "anthropic", "selenium", "playwright", "beautifulsoup4", "scrapy",
     "celery", "redis", "psycopg2", "pymongo", "jinja2", "werkzeug", "gunicorn", "uvicorn",
     "pytest", "certifi", "chardet", "colorama", "tqdm", "httpx", "aiohttp", "paramiko",
     "opencv-python", "scikit-learn", "python-dateutil", "python-dotenv", "typing-extensions",
     "discord.py", "telethon", "web3", "streamlit", "gradio", "pdfplumber", "reportlab",
     "openpyxl", "react", "react-dom", "lodash", "express", "axios", "chalk", "commander",
     "webpack", "typescript", "eslint", "prettier", "moment", "underscore", "jquery", "next",
     "nodemon", "mongoose", "socket.io", "jsonwebtoken", "bcrypt", "dotenv", "puppeteer",
     "cheerio", "sequelize", "electron", "angular", "svelte", "tailwindcss", "postcss",
     "rollup", "esbuild", "cross-env", "node-fetch", "discord.js", "ethers", "mocha", "jest",
     "babel", "zod", "prisma"}
)  # fmt: skip
_BRANDS = (
    "anthropic", "openai", "github", "google", "googleapis", "microsoft", "paypal", "amazon",
    "cloudflare", "dropbox", "facebook", "instagram", "linkedin", "netflix", "pypi", "npmjs",
    "huggingface", "telegram", "coinbase", "binance", "metamask", "stripe", "docker", "gitlab",
    "atlassian", "bitbucket", "icloud", "office365", "outlook", "whatsapp", "youtube",
)  # fmt: skip
_RESERVED_TLDS = frozenset({"invalid", "test", "example", "localhost", "local", "internal", "lan"})
"""Nobody can own a name that ends so."""
_UNRELATED_DOMAINS = frozenset({"google-analytics", "finance", "githubnext", "github-readme-stats"})
_INSTALL_COMMAND = re.compile(
    r"\b(?:pip3?|uv pip|uv|pipx|poetry|npm|pnpm|yarn|bun)\s+(?:install|add|i)\s+([^\n;&|`#]{2,300})"
    r"|\b(?:npx|uvx|bunx|pnpm dlx)\s+(?:-y\s+|--yes\s+)?([@\w][\w./@-]{1,80})",
    re.IGNORECASE,
)
_INSTALL_WORDS = ("pip", "uv ", "poetry", "npm", "yarn", "bun", "npx", "uvx")
_DEPENDENCY_LINE = re.compile(
    r"(?m)^\s{0,8}[\"']?([a-z0-9][\w.-]{2,40})[\"']?\s{0,2}(?:[=~><!]=|:\s?\"[\^~\d])"
)
_PACKAGE_NAME = re.compile(r"@?[a-z0-9][\w.-]{2,40}(?:/[\w.-]{2,40})?", re.IGNORECASE)
_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_DEPENDENCY_FILES = ("requirements", "package.json", "pyproject.toml", "package.template.json")


def typosquatted_names(view: TextFile, setting: SkillContext) -> Iterator[Hit]:
    """Packages and hosts in a file that people may take for others."""
    for line, name in _package_names(view):
        known = _typosquatted_package(name)
        if known:
            is_told = view.place_of(line) == "reference" and not _is_dependency_file(view)
            steps = int(setting.is_about_security) + int(is_told)
            yield Hit(
                rule="AB013",
                level=lower_level("warn", steps),
                line=line,
                matched=f"{name} ~ {known}",
            )
    seen = set[str]()
    for match in _HOST.finditer(view.text):
        host = match[1].lower()
        if host in seen or len(seen) >= MAX_NAMES:
            continue
        seen.add(host)
        if impersonates_brand(host):
            line = view.line_at(match.start())
            steps = int(setting.is_about_security)
            yield Hit(rule="AB058", level=lower_level("warn", steps), line=line, matched=host)


def _package_names(view: TextFile) -> Iterator[tuple[int, str]]:
    """The packages that a file installs or lists, with their lines."""
    count = 0
    is_installing = any(word in view.lower for word in _INSTALL_WORDS)
    for match in _INSTALL_COMMAND.finditer(view.text) if is_installing else ():
        line = view.line_at(match.start())
        for name in _PACKAGE_NAME.findall(match[1] or match[2]):
            count += 1
            if count > MAX_NAMES:
                return
            yield line, name
    if _is_dependency_file(view):
        for match in _DEPENDENCY_LINE.finditer(view.text):
            count += 1
            if count > MAX_NAMES:
                return
            yield view.line_at(match.start(1)), match[1]


def _is_dependency_file(view: TextFile) -> bool:
    return any(part in view.path.lower() for part in _DEPENDENCY_FILES)


def _typosquatted_package(name: str) -> str | None:
    """The well-known package that a name is one slip away from."""
    plain = name.lower().split("@")[0]
    if (
        len(plain) < 5
        or plain in {"https", "fetch"}
        or plain in _POPULAR_PACKAGES
        or plain.replace("_", "-") in _POPULAR_PACKAGES
    ):
        return None
    for known in _POPULAR_PACKAGES:
        if (
            len(known) >= 5
            and abs(len(known) - len(plain)) <= 1
            and edit_distance(plain, known) == 1
        ):
            return None if _is_version_variant(plain, known) else known
    return None


def _is_version_variant(one: str, other: str) -> bool:
    """Say whether two names differ by a digit or a plural only: a relative, not a slip."""
    return re.sub(r"\d", "", one) == re.sub(r"\d", "", other) or one == f"{other}s"


def impersonates_brand(host: str) -> bool:
    """Say whether a host carries a brand in a name that is not the brand's own."""
    labels = host.split(".")
    own, top = labels[-2], labels[-1]
    if own in _BRANDS or top in _RESERVED_TLDS or own in _UNRELATED_DOMAINS:
        return False
    words = own.split("-")
    if len(words) > 1 and not set(words).isdisjoint(_BRANDS):
        return True
    return any(len(brand) > 5 and edit_distance(own, brand) == 1 for brand in _BRANDS) or any(
        f"{brand}-com" in host for brand in _BRANDS
    )
