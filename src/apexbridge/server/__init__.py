"""HTTP server: OpenAI-compatible chat, the skills API, administration and the web console."""
