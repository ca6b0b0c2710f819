"""Public test kit: builders for skills and archives, and a double for every seam."""

from apexbridge.testing.builders import make_skill, make_zip, skill_md
from apexbridge.testing.doubles import (
    EventLog,
    FixedApprover,
    HashEmbedder,
    MemorySource,
    MemoryStore,
    RecordingSandbox,
    ScriptedModel,
    StaticTool,
)

__all__ = [
    "EventLog",
    "FixedApprover",
    "HashEmbedder",
    "MemorySource",
    "MemoryStore",
    "RecordingSandbox",
    "ScriptedModel",
    "StaticTool",
    "make_skill",
    "make_zip",
    "skill_md",
]
