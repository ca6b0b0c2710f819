"""Package mcp."""
