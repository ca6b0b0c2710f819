"""Resolve the secrets of one run: what the skill declares, what was granted, what is missing."""

from collections.abc import Iterator
from typing import get_args

from apexbridge.errors import PermissionDeniedError
from apexbridge.sandbox.host_rule import HostRule
from apexbridge.sandbox.placeholders import Place, RunSecret, create_placeholder
from apexbridge.secrets.store import SecretState, SecretStore
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint, Skill
from apexbridge.skills.secret_declarations import SecretDeclaration


def current_sha256(skill: Skill) -> str:
    """Hash the files of a skill as they are now; empty if they cannot be hashed."""
    if skill.root is None:
        return skill.fingerprint.sha256 if skill.fingerprint else ""
    found = tree.fingerprint(skill.root, is_ours=not skill.provenance.needs_trust)
    return found.sha256 if isinstance(found, Fingerprint) else ""


def resolve_secrets(skill: Skill, store: SecretStore) -> tuple[RunSecret, ...]:
    """Resolve the secrets that a run of a skill gets, each with a new placeholder. Blocks.

    Raises:
        PermissionDeniedError: If a required secret has no value, no grant, or a grant for other
            content; `secrets grant SKILL` does all that is missing.
        StorageError: If the store cannot be read.
    """
    state, sha256 = store.read(), current_sha256(skill)
    return tuple(_resolve_all(skill, state, sha256))


def _resolve_all(skill: Skill, state: SecretState, sha256: str) -> Iterator[RunSecret]:
    grants = state.grants_of(skill.name)
    for declared in skill.manifest.secrets:
        grant = grants.get(declared.name)
        is_current = grant is not None and grant.sha256 == sha256 and sha256 != ""
        entry = state.values.get(declared.name)
        if grant is not None and is_current and entry is not None:
            yield RunSecret(
                name=declared.name,
                placeholder=create_placeholder(declared.prefix),
                value=entry.value,
                hosts=tuple(HostRule.parse(host, allows_wildcard=False) for host in grant.hosts),
                places=parse_places(grant.places),
            )
        elif declared.required:
            code = "secret_unset" if entry is None else "secret_not_granted"
            if entry is not None and grant is not None:
                code = "secret_grant_outdated"
            raise PermissionDeniedError(code=code, secret=declared.name, name=skill.name)


def parse_places(words: tuple[str, ...]) -> frozenset[Place]:
    """Parse the parts of a request that a grant names; unknown ones grant nothing."""
    known: tuple[Place, ...] = get_args(Place)
    return frozenset(place for place in known if place in words)


def missing_secrets(skill: Skill, state: SecretState) -> tuple[SecretDeclaration, ...]:
    """Return the declared secrets that have no value yet."""
    return tuple(d for d in skill.manifest.secrets if d.name not in state.values)
