"""Commands and programs that send data to a host of which the skill does not speak."""

import re
from collections.abc import Iterator

from apexbridge.vetting.patterns import Hit, Setting
from apexbridge.vetting.units import SENDS, WAYS_OUT
from apexbridge.vetting.view import View

NEAR = 6
"""In how many lines before sending the address may stand."""

MAX_SENDS = 200

_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_PLACEHOLDERS = re.compile(r"example|localhost|your|placeholder|\.local$|\.test$|\.internal$")
_KNOWN = re.compile(
    r"github|gitlab|google|openai|anthropic|slack|microsoft|amazonaws|azure|telegram|discord|"
    r"notion|stripe|huggingface|cloudflare|atlassian|linear\.app|figma|twitter|x\.com|linkedin|"
    r"facebook|graph\.|paypal|squareup|twilio|sendgrid|mailgun|resend|hubapi|digitalocean|"
    r"jsonplaceholder|httpbin|brave\.com|feishu|dingtalk|aliyun|qq\.com|weixin|baidu"
)
_COMMON = frozenset({"api", "www", "com", "app", "dev", "cloud", "org", "net", "hooks", "data"})


def unnamed_hosts(view: View, setting: Setting) -> Iterator[Hit]:
    """Where data is sent to an address whose owner is not what the skill is about."""
    seen = set[str]()
    for unit in view.units:
        if unit.place not in {"command", "script"}:
            continue
        for line in _sending(view, unit.first, unit.last):
            around = view.lines[max(unit.first, line - NEAR) - 1 : line + 2]
            for match in _HOST.finditer("\n".join(row[:2_000] for row in around)):
                host = match[1].lower()
                if host in seen or len(seen) >= MAX_SENDS or is_spoken_of(host, setting):
                    continue
                seen.add(host)
                yield Hit(rule="AB065", level="review", line=line, matched=host)


def _sending(view: View, first: int, last: int) -> Iterator[int]:
    count = 0
    for number in range(first, last + 1):
        line = view.lines[number - 1][:2_000]
        small = line.lower()
        if count < MAX_SENDS and any(word in small for word in WAYS_OUT) and SENDS.search(line):
            count += 1
            yield number


def is_spoken_of(host: str, setting: Setting) -> bool:
    """Say whether a host is well known, made up, or one of whose words the skill tells."""
    if _PLACEHOLDERS.search(host) or _KNOWN.search(host):
        return True
    words = set(re.split(r"[.-]", host)[:-1]) - _COMMON
    return any(len(word) > 2 and word in setting.subject for word in words)
