"""The weights of ApexBridge's own encoder, and what belongs to them; nothing here runs."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where the files lie: the model, its tokenizer, its Chinese words, and how texts are read."""
