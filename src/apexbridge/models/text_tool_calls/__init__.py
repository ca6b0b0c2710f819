"""Package text_tool_calls."""
