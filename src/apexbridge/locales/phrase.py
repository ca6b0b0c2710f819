"""A sentence for people and, where one helps, what to do next."""

from typing import NamedTuple


class LocalizedText(NamedTuple):
    """What happened, and a hint on how to mend it (empty where there is none)."""

    message: str
    hint: str = ""
