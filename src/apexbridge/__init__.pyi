from apexbridge.errors import ApexBridgeError as ApexBridgeError
from apexbridge.errors import SkillInvalidError as SkillInvalidError
from apexbridge.errors import SkillNotFoundError as SkillNotFoundError
from apexbridge.extensions import Extensions as Extensions
from apexbridge.lifecycle.zip.archive import open_archive as open_archive
from apexbridge.lifecycle.zip.archive import pack_skill as pack
from apexbridge.runtime import Runtime as Runtime
from apexbridge.settings import Settings as Settings
from apexbridge.settings import load as load_settings
from apexbridge.skills.editor import edit_description as edit_description
from apexbridge.skills.model import Origin as Origin
from apexbridge.skills.model import Problem as Problem
from apexbridge.skills.model import Skill as Skill
from apexbridge.skills.model import SkillManifest as SkillManifest
from apexbridge.skills.parser import read_skill as read_skill
from apexbridge.skills.validator import Package as Package
from apexbridge.skills.validator import open_folder as open_folder
from apexbridge.skills.validator import validate as validate
from apexbridge.sources.base import SkillSource as SkillSource
from apexbridge.tools.base import ToolContext as ToolContext
from apexbridge.tools.base import ToolResult as ToolResult
from apexbridge.tools.function import tool as tool

__all__ = [
    "ApexBridgeError",
    "Extensions",
    "Origin",
    "Package",
    "Problem",
    "Runtime",
    "Settings",
    "Skill",
    "SkillInvalidError",
    "SkillManifest",
    "SkillNotFoundError",
    "SkillSource",
    "ToolContext",
    "ToolResult",
    "edit_description",
    "load_settings",
    "open_archive",
    "open_folder",
    "pack",
    "read_skill",
    "tool",
    "validate",
]
