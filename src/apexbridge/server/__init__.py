"""The HTTP door: chat, skills, records and the console, for clients that people already use."""
