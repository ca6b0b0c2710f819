"""Public test kit: builders for skills and archives, and a double for every seam."""

from apexbridge.retrieval.embedders.hashing import HashEmbedder
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.testing.anthropic_wire import AnthropicServer, overloaded
from apexbridge.testing.builders import make_skill, make_zip, skill_md
from apexbridge.testing.doubles import (
    EventLog,
    FixedApprover,
    MemorySource,
    RecordingSandbox,
    ScriptedModel,
    StaticTool,
)
from apexbridge.testing.wire import (
    BrokenStream,
    RawAnswer,
    ScriptedServer,
    SlowStream,
    busy,
    web_page,
)

__all__ = [
    "AnthropicServer",
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
    "SlowStream",
    "StaticTool",
    "busy",
    "make_skill",
    "make_zip",
    "overloaded",
    "skill_md",
    "web_page",
]
