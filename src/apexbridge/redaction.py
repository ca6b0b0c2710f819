"""Redaction: API keys, tokens, passwords and private keys in texts, and folders in error messages.

Logs are redacted generously: a word too many costs nothing there. What a tool returns to a model is
redacted strictly, by the forms that providers give to their keys, since a model works with it.
"""

import re

REDACTED = "[hidden]"
HIDDEN_CREDENTIAL = "[hidden credential]"
"""Stands for a credential in the result of a tool; no tool writes a text that has it."""
_SECRET_PATTERN = re.compile(
    r"""
      \b(?:apx_|sk-|sk_|rk_|pk-|ghp_|gho_|github_pat_|glpat-|xox[abprs]-|hf_|AIza|AKIA)
        [A-Za-z0-9_\-]{6,}
    | (?i:(?<=bearer\ )|(?<=basic\ ))[^\s"',;]{8,}
    | (?<=://)[^/\s:@"']+:[^/\s@"']+(?=@)
    | (?i:(?<=[?&\#])(?:api[_-]?key|key|token|access_token|secret|password|sig|signature)=)[^&\s"']+
    | (?i:\b(?:x-api-key|api[_-]?key|apexbridge_session|password|secret)["']?\s*[:=]\s*["']?)
        [^\s"',;&]+
    """,
    re.VERBOSE,
)


def redact(text: str) -> str:
    """Replace API keys, passwords and tokens in a text.

    >>> redact("Incorrect API key provided: sk-proj-0123456789.")
    'Incorrect API key provided: [hidden].'
    """
    return _SECRET_PATTERN.sub(REDACTED, text)


_CREDENTIAL = re.compile(
    r"""
      -----BEGIN\ (?:[A-Z0-9]+\ ){0,3}PRIVATE\ KEY(?:\ BLOCK)?-----
        [\s\S]{0,20000}?(?:-----END[^-\n]{1,40}-----|\Z)
    | \b(?:apx_[\w-]{16,80}|sk-(?:ant-|proj-|or-)?[\w-]{32,180}|sk_live_\w{20,80}
        |gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40,90}|glpat-[\w-]{20}|xox[abprs]-[\w-]{20,80}
        |AIza[\w-]{35}|AKIA[0-9A-Z]{16}|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,40}
        |pypi-[\w-]{50,220}|SG\.[\w-]{20,24}\.[\w-]{40,46})(?!\w)
    | (?i:(?<=aws_secret_access_key)["']?\s{0,4}[:=]\s{0,4}["']?)[A-Za-z0-9/+=]{40}
    """,
    re.VERBOSE,
)


def redact_credentials(text: str) -> str:
    """Replace what has the form of a key, a token or a private key.

    >>> redact_credentials("token: ghp_" + "a" * 36 + ", the rest stays")
    'token: [hidden credential], the rest stays'
    """
    return _CREDENTIAL.sub(HIDDEN_CREDENTIAL, text)
