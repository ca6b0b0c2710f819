"""Redaction: what has the form of a credential is hidden, and nothing else."""

import pytest

from apexbridge.redaction import HIDDEN_CREDENTIAL, redact, redact_credentials

_KIND = "OPENSSH PRIVATE KEY"
KEY = f"-----BEGIN {_KIND}-----\nb3BlbnNzaC1rZXktdjEA\nAAAA\n-----END {_KIND}-----"


@pytest.mark.parametrize(
    "secret",
    [
        "apx_" + "k" * 32,
        "sk-proj-" + "Ab1_" * 12,
        "sk-ant-" + "Ab1-" * 12,
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 60,
        "glpat-" + "a" * 20,
        "xoxb-" + "1234567890-" * 3,
        "AIza" + "a" * 35,
        "AKIA" + "A" * 16,
        "npm_" + "a" * 36,
        "hf_" + "a" * 34,
        KEY,
        KEY.replace("OPENSSH ", ""),
        KEY.replace("OPENSSH", "RSA").split("-----END")[0],
    ],
)
def test_credentials_are_hidden(secret: str) -> None:
    assert redact_credentials(f"before {secret}") == f"before {HIDDEN_CREDENTIAL}"
    assert redact_credentials(f'"{secret}"').startswith(f'"{HIDDEN_CREDENTIAL}')


def test_the_secret_of_a_cloud_account_is_hidden_and_its_name_stays() -> None:
    text = "aws_secret_access_key = " + "aB3/" * 10 + "\nregion = eu"
    assert redact_credentials(text) == f"aws_secret_access_key{HIDDEN_CREDENTIAL}\nregion = eu"


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn and sk-image are packages",
        "password: see the vault",
        "the task-runner ghp_short, hf_model, AKIA",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "sha256:" + "a" * 64,
        "git commit " + "0" * 40,
    ],
)
def test_plain_text_stays(text: str) -> None:
    assert redact_credentials(text) == text


def test_a_long_text_without_credentials_takes_linear_work() -> None:
    text = "-----BEGIN RSA PRIVATE KEY-----\n" * 200 + "sk-" * 20_000
    assert HIDDEN_CREDENTIAL in redact_credentials(text)


def test_logs_are_redacted_more_generously() -> None:
    assert redact("password=hunter2") == "[hidden]"
    assert redact_credentials("password=hunter2") == "password=hunter2"
