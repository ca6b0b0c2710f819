"""Text tool calls (ReAct style) for models without native tool calling."""
