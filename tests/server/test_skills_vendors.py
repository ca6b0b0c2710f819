"""OpenAI's and Anthropic's SDKs, unmodified, against the skills API."""

import io
import zipfile
from collections.abc import Generator

import anthropic
import openai
import pytest

from apexbridge.testing import skill_md
from tests.server.skills_server import (
    SkillsServer,
    make_config,
    skill_zip,
    skills_server,
    zip_names,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    with skills_server(make_config(tmp_path_factory.mktemp("vendors"))) as running:
        yield running


@pytest.fixture(scope="module")
def theirs(server: SkillsServer) -> Generator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key=server.serving.key, max_retries=0
    ) as client:
        yield client


@pytest.fixture(scope="module")
def others(server: SkillsServer) -> Generator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=server.url, api_key=server.serving.key, max_retries=0
    ) as client:
        yield client


def _refuse_gaps(shown: openai.BaseModel | anthropic.BaseModel) -> None:
    """Every field that the client's own model asks for is there, and of its kind."""
    type(shown).model_validate(shown.model_dump(), strict=True)
    assert all(
        getattr(shown, name) is not None
        for name, field in type(shown).model_fields.items()
        if field.is_required()
    )


def test_openai_takes_a_skill_from_a_zip_through_its_whole_life(theirs: openai.OpenAI) -> None:
    made = theirs.skills.create(files=("garden.zip", skill_zip("garden", version="1.0")))
    _refuse_gaps(made)
    assert (made.name, made.object) == ("garden", "skill")
    assert made.default_version == made.latest_version
    got = theirs.skills.retrieve(made.id)
    assert got.id == made.id
    assert got.created_at > 1_700_000_000
    assert theirs.skills.retrieve("garden") == got

    second = theirs.skills.versions.create(
        made.id,
        files=("g.zip", skill_zip("garden", "Grows pumpkins.", version="2.0")),
        default=False,
    )
    _refuse_gaps(second)
    beside = theirs.skills.retrieve(made.id)
    assert beside.default_version == made.default_version
    assert beside.latest_version == second.version != made.default_version
    assert beside.description == "Grows tomatoes."

    moved = theirs.skills.update(made.id, default_version=second.version)
    assert (moved.default_version, moved.description) == (second.version, "Grows pumpkins.")
    assert moved.created_at == made.created_at
    listed = list(theirs.skills.versions.list(made.id))
    assert [version.version for version in listed] == [second.version, made.latest_version]
    for version in listed:
        _refuse_gaps(version)
    upwards = theirs.skills.versions.list(made.id, order="asc", limit=1)
    assert [version.id for version in upwards] == [version.id for version in reversed(listed)]
    first = theirs.skills.versions.retrieve(made.latest_version, skill_id=made.id)
    assert (first.description, first.skill_id) == ("Grows tomatoes.", made.id)

    assert zip_names(theirs.skills.content.retrieve(made.id).read()) == ["garden/SKILL.md"]
    old = theirs.skills.versions.content.retrieve(made.latest_version, skill_id=made.id).read()
    assert b"Grows tomatoes." in _skill_md(old, "garden")
    with pytest.raises(openai.ConflictError, match="in use"):
        theirs.skills.versions.delete(second.version, skill_id=made.id)
    gone = theirs.skills.versions.delete(made.latest_version, skill_id=made.id)
    _refuse_gaps(gone)
    assert (gone.deleted, gone.version) == (True, made.latest_version)
    assert [version.id for version in theirs.skills.versions.list(made.id)] == [second.id]
    deleted = theirs.skills.delete(made.id)
    _refuse_gaps(deleted)
    assert (deleted.id, deleted.deleted) == (made.id, True)
    with pytest.raises(openai.NotFoundError):
        theirs.skills.retrieve(made.id)


def _skill_md(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(f"{name}/SKILL.md")


def test_openai_sends_a_folder_and_pages_through_the_list(theirs: openai.OpenAI) -> None:
    for name in ("one", "two", "three"):
        made = theirs.skills.create(
            files=[
                (f"{name}/SKILL.md", skill_md(name, f"Counts {name}.")),
                (f"{name}/scripts/count.py", b"print(1)\n"),
            ]
        )
        assert made.name == name
        assert zip_names(theirs.skills.content.retrieve(name).read()) == [
            f"{name}/SKILL.md",
            f"{name}/scripts/count.py",
        ]
    for order in ("asc", "desc"):
        names = [skill.name for skill in theirs.skills.list(limit=1, order=order)]
        assert names == sorted(names, reverse=order == "desc")
        assert {"one", "two", "three"} <= set(names)
    for skill in theirs.skills.list(limit=2):
        _refuse_gaps(skill)
    for name in ("one", "two", "three"):
        theirs.skills.delete(name)


def test_openai_meets_its_own_error_classes(theirs: openai.OpenAI, server: SkillsServer) -> None:
    theirs.skills.create(files=("g.zip", skill_zip("errors")))
    with pytest.raises(openai.ConflictError) as exists:
        theirs.skills.create(files=("g.zip", skill_zip("errors")))
    assert (exists.value.code, exists.value.status_code) == ("skill_exists", 409)
    with pytest.raises(openai.UnprocessableEntityError) as broken:
        theirs.skills.create(files=("g.zip", b"no zip at all"))
    assert broken.value.code == "zip_invalid"
    with pytest.raises(openai.APIStatusError) as empty:
        theirs.skills.create()
    assert empty.value.status_code == 415
    with pytest.raises(openai.NotFoundError):
        theirs.skills.update("errors", default_version="nothing")
    with pytest.raises(openai.AuthenticationError):
        theirs.with_options(api_key="apx_unknown").skills.list()
    reader = theirs.with_options(api_key=server.serving.key_for("skills:read"))
    assert reader.skills.retrieve("errors").name == "errors"
    with pytest.raises(openai.PermissionDeniedError) as refused:
        reader.skills.delete("errors")
    assert refused.value.code == "scope_missing"
    theirs.skills.delete("errors")


def test_anthropic_takes_a_skill_through_its_whole_life(others: anthropic.Anthropic) -> None:
    made = others.beta.skills.create(
        files=[
            ("roses/SKILL.md", skill_md("roses", "Grows roses.")),
            ("roses/references/soil.md", b"Loam.\n"),
        ]
    )
    _refuse_gaps(made)
    assert (made.type, made.display_name, made.source.type) == ("skill", "roses", "custom")
    got = others.beta.skills.retrieve(made.id)
    assert (got.id, got.latest_version_id) == (made.id, made.latest_version_id)
    assert got.updated_at >= got.created_at

    version = others.beta.skills.versions.create(
        made.id, files=[("roses.zip", skill_zip("roses", "Grows white roses."))]
    )
    _refuse_gaps(version)
    assert (version.type, version.skill_id) == ("skill_version", made.id)
    assert others.beta.skills.retrieve("roses").latest_version_id == version.id
    listed = list(others.beta.skills.versions.list(made.id, limit=1))
    assert [each.id for each in listed] == [version.id, made.latest_version_id]
    first = others.beta.skills.versions.retrieve(made.latest_version_id, skill_id=made.id)
    assert first.description == "Grows roses."
    packed = others.beta.skills.versions.download(first.id, skill_id=made.id).read()
    assert zip_names(packed) == ["roses/SKILL.md", "roses/references/soil.md"]
    gone = others.beta.skills.versions.delete(first.id, skill_id=made.id)
    _refuse_gaps(gone)
    assert (gone.id, gone.type) == (first.id, "skill_version_deleted")
    deleted = others.beta.skills.delete(made.id)
    _refuse_gaps(deleted)
    assert deleted.type == "skill_deleted"
    with pytest.raises(anthropic.NotFoundError):
        others.beta.skills.retrieve(made.id)


def test_anthropic_pages_and_asks_by_source(others: anthropic.Anthropic) -> None:
    for name in ("ant", "bee", "cat"):
        others.beta.skills.create(files=[("a.zip", skill_zip(name))])
    names = [skill.display_name for skill in others.beta.skills.list(limit=1, source="custom")]
    assert names == sorted(names)
    assert {"ant", "bee", "cat"} <= set(names)
    assert list(others.beta.skills.list(source="anthropic")) == []
    for name in ("ant", "bee", "cat"):
        others.beta.skills.delete(name)


def test_anthropic_meets_its_own_error_classes(
    others: anthropic.Anthropic, server: SkillsServer
) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        others.beta.skills.retrieve("nowhere")
    assert "nowhere" in unknown.value.message
    others.beta.skills.create(files=[("a.zip", skill_zip("taken"))])
    with pytest.raises(anthropic.ConflictError):
        others.beta.skills.create(files=[("a.zip", skill_zip("taken"))])
    with pytest.raises(anthropic.UnprocessableEntityError):
        others.beta.skills.versions.create("taken", files=[("a.zip", skill_zip("else"))])
    with pytest.raises(anthropic.AuthenticationError):
        others.with_options(api_key="apx_unknown").beta.skills.list()
    reader = others.with_options(api_key=server.serving.key_for("skills:read"))
    with pytest.raises(anthropic.PermissionDeniedError):
        reader.beta.skills.delete("taken")
    others.beta.skills.delete("taken")
