"""Names of skills in which a well-known word is misspelt, as in names made to be mistaken."""

import re
from collections.abc import Iterator

from apexbridge.vetting.nearness import slips

SHORTEST = 6
"""Letters below which two words are easily alike by chance."""

_KNOWN = frozenset(
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
_WORDS_OF_THEIR_OWN = frozenset(
    {"analytic", "angularj", "bowser", "browse", "browserx", "datalog", "docked", "fiance",
     "linearis", "manage", "managed", "openapi", "openpi", "openui", "postgrest", "posture",
     "schedule", "scheduled", "stride", "strike", "striped", "strive", "summarise",
     "summariser", "summarize", "todolist", "translate", "translated", "trelli", "walled"}
)  # fmt: skip
"""Words that are near a known one and mean something else."""
_BARE = {word.rstrip("s"): word for word in sorted(_KNOWN)}
_WORD = re.compile(r"[a-z0-9]+")


def misspelt(name: str) -> Iterator[tuple[str, str]]:
    """The words of a name that are one slip away from a well-known one, with that one."""
    for whole in _WORD.findall(name.lower())[:20]:
        word = whole.rstrip("0123456789s")  # several of them, or another version
        if len(word) < SHORTEST or word in _WORDS_OF_THEIR_OWN or word in _BARE:
            continue
        for bare, known in _BARE.items():
            if len(bare) >= SHORTEST and word[0] == bare[0] and slips(word, bare) == 1:
                yield whole, known
                break
