"""Security scanner: match a skill against rules for prompt injection, exfiltration and malware.

A static analysis that gives advice, never a guarantee. The rules are the files in `rules/`.
"""
