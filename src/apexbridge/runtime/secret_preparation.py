"""Prepare the secrets of one run: resolve and audit them, and build the interceptor.

Imported by the runs that have secrets, and by no other: it loads the library for cryptography.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from apexbridge.activation.scripts import ScriptCall
from apexbridge.audit import AuditLog
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.runtime.script_secrets import RedactedOutput, ScriptSecrets
from apexbridge.sandbox.placeholders import RunSecret
from apexbridge.sandbox.redaction import Redactor
from apexbridge.sandbox.tls_interception import TlsInterceptor
from apexbridge.secrets.encryption_key import EncryptionKeys
from apexbridge.secrets.run_secrets import resolve_secrets
from apexbridge.secrets.sealed_file import SealedFile
from apexbridge.secrets.store import SecretStore
from apexbridge.settings import Config
from apexbridge.skills.model import Skill
from apexbridge.state_files import StateFile

log = logging.getLogger(__name__)

_MAX_REPORTS = 20
"""Refusals of one run that are audited: a script must not fill the disk with them."""


def open_secret_store(config: Config) -> SecretStore:
    """Open the secret store of the data folder."""
    uses_keyring = not config.settings.sandbox.secret_key_file
    keys = EncryptionKeys(file=config.secret_key_file, uses_keyring=uses_keyring)
    return SecretStore(config.data / "secrets.json", keys)


def check_secrets(config: Config) -> StorageError | None:
    """Decrypt the secrets, and return what prevents it; blocks.

    A key in the system keyring is left alone: it might ask a person for a password.
    """
    path = config.data / "secrets.json"
    try:
        sealed = StateFile(path, SealedFile).read_if_exists()
        if sealed is not None and sealed.key == "file":
            open_secret_store(config).read()
    except StorageError as error:
        return error
    return None


def prepare_secrets(call: ScriptCall, config: Config, audit: AuditLog) -> ScriptSecrets | None:
    """Resolve the secrets of a run, and audit them; None if it gets none. Blocks.

    Raises:
        PermissionDeniedError: If a required secret was not given, or not granted to this content.
        StorageError: If the store cannot be read, or the use cannot be audited.
    """
    store = open_secret_store(config)
    found = resolve_secrets(call.skill, store)
    if not found:
        return None
    hosts = sorted({str(rule) for secret in found for rule in secret.hosts})
    names = ", ".join(secret.name for secret in found)
    mark = call.skill.fingerprint
    audit.record(
        "secrets_used",
        skill=call.skill.name,
        sha256=mark.sha256 if mark else "",
        secrets=names,
        hosts=", ".join(hosts),
    )
    is_granted = partial(_is_still_granted, call.skill, store, found)
    interceptor = TlsInterceptor(found, _Reporter(call.skill.name, audit), is_granted)
    redactor = Redactor(found)
    output = RedactedOutput(redactor, call.on_output) if call.on_output else None
    prepared = replace(
        call,
        env={**call.env, **_placeholders(found)},
        hosts=(*call.hosts, *hosts),
        interceptor=interceptor,
        on_output=output,
    )
    return ScriptSecrets(call=prepared, redactor=redactor, output=output)


def _is_still_granted(skill: Skill, store: SecretStore, found: Sequence[RunSecret]) -> bool:
    """Return whether the grants of a run still hold: not revoked, and the skill not changed."""
    try:
        present = {secret.name: secret for secret in resolve_secrets(skill, store)}
    except (PermissionDeniedError, StorageError):
        return False
    return all(
        (now := present.get(secret.name)) is not None
        and (now.hosts, now.places) == (secret.hosts, secret.places)
        for secret in found
    )


def _placeholders(found: Sequence[RunSecret]) -> dict[str, str]:
    return {secret.name: secret.placeholder for secret in found}


class _Reporter:
    """Audit refused requests of one run; called from the proxy's threads."""

    def __init__(self, skill: str, audit: AuditLog) -> None:
        self._skill, self._audit = skill, audit
        self._left, self._lock = _MAX_REPORTS, threading.Lock()

    def __call__(self, host: str, reason: str) -> None:
        with self._lock:
            self._left -= 1
            if self._left < 0:
                return
        try:
            self._audit.record("secret_refused", skill=self._skill, host=host, reason=reason)
        except StorageError:
            log.exception("A refused request of %s was not audited", self._skill)
