"""Chat completions API, compatible with OpenAI clients."""
