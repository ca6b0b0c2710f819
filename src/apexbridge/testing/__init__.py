"""Public test kit: builders for skills and archives, and test doubles for every protocol."""

from apexbridge.retrieval.embedders.hashing import HashEmbedder
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.testing.anthropic_server import AnthropicServer, overloaded
from apexbridge.testing.builders import make_skill, make_zip, skill_md
from apexbridge.testing.doubles import (
    EventLog,
    FixedApprover,
    MemorySource,
    RecordingSandbox,
    ScriptedModel,
    StaticTool,
)
from apexbridge.testing.model_server import (
    BrokenStream,
    RawResponse,
    ScriptedServer,
    SlowStream,
    html_page,
    rate_limited,
)

__all__ = [
    "AnthropicServer",
    "BrokenStream",
    "EventLog",
    "FixedApprover",
    "HashEmbedder",
    "MemorySource",
    "MemoryStore",
    "RawResponse",
    "RecordingSandbox",
    "ScriptedModel",
    "ScriptedServer",
    "SlowStream",
    "StaticTool",
    "html_page",
    "make_skill",
    "make_zip",
    "overloaded",
    "rate_limited",
    "skill_md",
]
