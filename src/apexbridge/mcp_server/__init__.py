"""The MCP door: skills as tools, prompts and resources, over standard streams and HTTP."""
