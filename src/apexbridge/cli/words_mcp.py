"""What `mcp` says: English, Chinese."""

from collections.abc import Mapping

MCP: Mapping[str, tuple[str, str]] = {
    "mcp_waiting": (
        "Waiting for an MCP client on standard input; Ctrl-D ends.",
        "正在标准输入上等待 MCP 客户端；Ctrl-D 结束。",
    ),
}
