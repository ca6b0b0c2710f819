"""Secrets that a skill declares: every way of writing them, and a problem for each mistake."""

from dataclasses import replace

import pytest

from apexbridge.activation.consent import consent_reasons
from apexbridge.skills.model import Fingerprint, Origin, Provenance, Skill
from apexbridge.skills.parser import ParseResult, parse_skill
from apexbridge.skills.validator import Package, validate
from apexbridge.sources.scan_cache import deserialize, serialize

_FROM = Provenance(origin=Origin.USER, source_id="user", needs_trust=False)


def _parse(lines: str) -> tuple[Skill, list[str]]:
    text = f"---\nname: s\ndescription: d\n{lines}\n---\nbody"
    parsed = parse_skill(text.encode(), folder="s", provenance=_FROM)
    assert parsed.skill is not None
    return parsed.skill, [problem.code for problem in parsed.problems]


@pytest.mark.parametrize(
    "lines",
    [
        "secrets: [A=api.example.org]",
        "secrets: A=api.example.org",
        "secrets:\n  A: api.example.org",
        "secrets:\n  A: [api.example.org]",
        "secrets:\n  A:\n    hosts: [api.example.org]",
        "secrets:\n  - name: A\n    hosts: api.example.org",
        "metadata:\n  secrets: A=api.example.org",
        "metadata:\n  apexbridge.secrets: A=api.example.org",
    ],
)
def test_every_way_to_declare_a_secret(lines: str) -> None:
    skill, problems = _parse(lines)
    (declared,) = skill.manifest.secrets
    assert (declared.name, declared.hosts, declared.required) == ("A", ("api.example.org",), True)
    assert declared.places == ("header",)
    assert problems == []


def test_all_fields_of_a_declaration() -> None:
    skill, problems = _parse(
        "secrets:\n  KEY:\n    hosts: [a.example:8443, b.example]\n    description: why\n"
        "    required: false\n    in: [header, body]\n    prefix: sk-\n  OTHER:"
    )
    key, other = skill.manifest.secrets
    assert (key.required, key.places, key.prefix) == (False, ("header", "body"), "sk-")
    assert (key.description, other.hosts) == ("why", ())
    assert problems == []


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("secrets: [A-B=x.example]", "secret_name_invalid"),
        ("secrets: [LD_PRELOAD=x.example]", "secret_name_invalid"),
        ("secrets: [A, A]", "secret_name_invalid"),
        ("secrets: [A=*.example]", "secret_host_invalid"),
        ("secrets: [A=127.0.0.1]", "secret_host_invalid"),
        ("secrets: [A=https://x.example/]", "secret_host_invalid"),
        ("secrets: [A=x.example:0]", "secret_host_invalid"),
        ("secrets:\n  A:\n    in: [cookie]", "secret_field_invalid"),
        ("secrets:\n  A:\n    prefix: 'a b'", "secret_field_invalid"),
        ("secrets:\n  A:\n    required: perhaps", "field_invalid"),
    ],
)
def test_a_mistake_in_a_declaration_is_a_problem(lines: str, code: str) -> None:
    skill, problems = _parse(lines)
    assert problems == [code]
    assert all(not declared.hosts for declared in skill.manifest.secrets)
    text = f"---\nname: s\ndescription: d\n{lines}\n---\nbody".encode()
    found = [p.code for p in validate(Package(folder="s", skill_md=text)) if p.severity == "error"]
    assert found == [code]


def test_a_skill_that_declares_secrets_is_not_harmless() -> None:
    for lines in ("secrets: [A]", "metadata:\n  secrets: A"):
        assert consent_reasons(_parse(lines)[0], "body") == ("secrets: A",)
    assert consent_reasons(_parse("version: 1")[0], "body") == ()


def test_declarations_survive_the_scan_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    skill, _ = _parse("secrets:\n  A:\n    hosts: [a.example]\n    in: [query]\n    required: no")
    marked = replace(skill, fingerprint=Fingerprint(size=1, files=1, sha256="0" * 64))
    data = serialize(ParseResult(skill=marked))
    assert data is not None
    again = deserialize(data, root=tmp_path_factory.getbasetemp(), provenance=_FROM)
    assert again is not None
    assert again.skill is not None
    assert again.skill.manifest.secrets == skill.manifest.secrets
