"""Skills of MCP servers: prompts, the skills extension, and the connection to a server."""
