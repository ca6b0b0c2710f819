"""Secrets of skills: values encrypted at rest, and grants that bind them to content and hosts."""
