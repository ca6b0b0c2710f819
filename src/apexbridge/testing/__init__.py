"""Public test kit: builders for skills and archives, and a double for every seam."""

from apexbridge.retrieval.embedders.hashing import HashEmbedder
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.testing.builders import make_skill, make_zip, skill_md
from apexbridge.testing.doubles import (
    EventLog,
    FixedApprover,
    MemorySource,
    RecordingSandbox,
    ScriptedModel,
    StaticTool,
)
from apexbridge.testing.wire import BrokenStream, RawAnswer, ScriptedServer

__all__ = [
    "BrokenStream",
    "EventLog",
    "FixedApprover",
    "HashEmbedder",
    "MemorySource",
    "MemoryStore",
    "RawAnswer",
    "RecordingSandbox",
    "ScriptedModel",
    "ScriptedServer",
    "StaticTool",
    "make_skill",
    "make_zip",
    "skill_md",
]
