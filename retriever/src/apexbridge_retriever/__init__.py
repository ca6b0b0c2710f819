"""The weights of ApexBridge's own encoder, and what belongs to them; nothing here runs."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where the files lie: both models, their words and tokenizer, and how texts are read."""
