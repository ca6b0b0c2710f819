"""What the addresses of skills take as JSON."""

from pydantic import BaseModel, ConfigDict, Field


class EditBody(BaseModel):
    """What of a skill can be changed in its place."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    description: str


class DefaultBody(BaseModel):
    """Which version is to be used."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    default_version: str = Field(min_length=1, max_length=200)
    """A version, its id, its hash or the beginning of that, or `latest`."""


class VersionBody(BaseModel):
    """Which version is meant."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    version: str = Field(default="", max_length=200)
    """Empty for the one that is most likely meant: see the route."""


class RunBody(BaseModel):
    """What to run."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    script: str = Field(default="", max_length=1_000)
    """Its path in the skill; empty for the only one, or the main one."""
    arguments: list[str] = Field(default_factory=list[str], max_length=10_000)
    stdin: str = ""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds; more than the settings allow is no more than that."""
