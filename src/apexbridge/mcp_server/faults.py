"""Our errors as the protocol's: the code first, then what happened and how to mend it. Pure."""

from mcp import MCPError, types

from apexbridge import wording
from apexbridge.errors import ApexBridgeError


def as_fault(error: ApexBridgeError, language: wording.Language) -> MCPError:
    """The error of a request that is no call of a tool."""
    said = error.said(language)
    hint = f"\n{said.hint}" if said.hint else ""
    data = {"code": error.code, "hint": said.hint}
    return MCPError(types.INVALID_PARAMS, f"[{error.code}] {said.message}{hint}", data)
