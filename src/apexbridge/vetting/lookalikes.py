"""Names that are nearly those of others: packages one slip away, hosts that borrow a brand."""

import re
from collections.abc import Iterator

from apexbridge.vetting.nearness import slips
from apexbridge.vetting.patterns import Hit, Setting
from apexbridge.vetting.rulebook import lowered
from apexbridge.vetting.view import View

MAX_NAMES = 2_000
"""How many names of one file are compared."""

_PACKAGES = frozenset(
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
_RESERVED = frozenset({"invalid", "test", "example", "localhost", "local", "internal", "lan"})
"""Nobody can own a name that ends so."""
_OTHERS = frozenset({"google-analytics", "finance", "githubnext", "github-readme-stats"})
_INSTALLS = re.compile(
    r"\b(?:pip3?|uv pip|uv|pipx|poetry|npm|pnpm|yarn|bun)\s+(?:install|add|i)\s+([^\n;&|`#]{2,300})"
    r"|\b(?:npx|uvx|bunx|pnpm dlx)\s+(?:-y\s+|--yes\s+)?([@\w][\w./@-]{1,80})",
    re.IGNORECASE,
)
_INSTALL_WORDS = ("pip", "uv ", "poetry", "npm", "yarn", "bun", "npx", "uvx")
_WRITTEN = re.compile(
    r"(?m)^\s{0,8}[\"']?([a-z0-9][\w.-]{2,40})[\"']?\s{0,2}(?:[=~><!]=|:\s?\"[\^~\d])"
)
_NAME = re.compile(r"@?[a-z0-9][\w.-]{2,40}(?:/[\w.-]{2,40})?", re.IGNORECASE)
_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_LISTS = ("requirements", "package.json", "pyproject.toml", "package.template.json")


def lookalikes(view: View, setting: Setting) -> Iterator[Hit]:
    """Packages and hosts in a file that people may take for others."""
    for line, name in _named(view):
        known = _meant(name)
        if known:
            is_told = view.place_of(line) == "reference" and not _is_list(view)
            steps = int(setting.is_about_security) + int(is_told)
            yield Hit(
                rule="AB013", level=lowered("warn", steps), line=line, matched=f"{name} ~ {known}"
            )
    seen = set[str]()
    for match in _HOST.finditer(view.text):
        host = match[1].lower()
        if host in seen or len(seen) >= MAX_NAMES:
            continue
        seen.add(host)
        if borrows_a_brand(host):
            line = view.line_at(match.start())
            steps = int(setting.is_about_security)
            yield Hit(rule="AB058", level=lowered("warn", steps), line=line, matched=host)


def _named(view: View) -> Iterator[tuple[int, str]]:
    """The packages that a file installs or lists, with their lines."""
    count = 0
    is_installing = any(word in view.lower for word in _INSTALL_WORDS)
    for match in _INSTALLS.finditer(view.text) if is_installing else ():
        line = view.line_at(match.start())
        for name in _NAME.findall(match[1] or match[2]):
            count += 1
            if count > MAX_NAMES:
                return
            yield line, name
    if _is_list(view):
        for match in _WRITTEN.finditer(view.text):
            count += 1
            if count > MAX_NAMES:
                return
            yield view.line_at(match.start(1)), match[1]


def _is_list(view: View) -> bool:
    return any(part in view.path.lower() for part in _LISTS)


def _meant(name: str) -> str | None:
    """The well-known package that a name is one slip away from."""
    plain = name.lower().split("@")[0]
    if (
        len(plain) < 5
        or plain in {"https", "fetch"}
        or plain in _PACKAGES
        or plain.replace("_", "-") in _PACKAGES
    ):
        return None
    for known in _PACKAGES:
        if len(known) >= 5 and abs(len(known) - len(plain)) <= 1 and slips(plain, known) == 1:
            return None if _is_a_version(plain, known) else known
    return None


def _is_a_version(one: str, other: str) -> bool:
    """Say whether two names differ by a digit or a plural only: a relative, not a slip."""
    return re.sub(r"\d", "", one) == re.sub(r"\d", "", other) or one == f"{other}s"


def borrows_a_brand(host: str) -> bool:
    """Say whether a host carries a brand in a name that is not the brand's own."""
    labels = host.split(".")
    own, top = labels[-2], labels[-1]
    if own in _BRANDS or top in _RESERVED or own in _OTHERS:
        return False
    words = own.split("-")
    if len(words) > 1 and not set(words).isdisjoint(_BRANDS):
        return True
    return any(len(brand) > 5 and slips(own, brand) == 1 for brand in _BRANDS) or any(
        f"{brand}-com" in host for brand in _BRANDS
    )
