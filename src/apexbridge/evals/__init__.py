"""How well skills are found: measured on queries, without any model call."""
