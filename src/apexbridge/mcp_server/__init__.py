"""MCP server: skills as tools, prompts and resources, over stdio and streamable HTTP."""
