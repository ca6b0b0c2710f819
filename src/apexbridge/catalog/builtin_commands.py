"""Built-in slash commands of the terminal chat.

They are no skills: they are neither listed to the model nor indexed, and the Skill tool refuses
them. A skill of the same name has precedence, except over those that end the chat.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinCommand:
    """A command; its description is the text `command_NAME` of the locales."""

    name: str
    argument: str = ""
    """Hint of its argument, as `[name]`."""
    is_final: bool = False
    """It ends the chat: no skill can take its name."""


BUILTIN_COMMANDS = (
    BuiltinCommand(name="help"),
    BuiltinCommand(name="skills"),
    BuiltinCommand(name="model", argument="[name]"),
    BuiltinCommand(name="compact"),
    BuiltinCommand(name="new"),
    BuiltinCommand(name="exit", is_final=True),
    BuiltinCommand(name="quit", is_final=True),
)

_BY_NAME = {command.name: command for command in BUILTIN_COMMANDS}


def builtin_command(name: str) -> BuiltinCommand | None:
    """Return the built-in command of a name, without its `/`."""
    return _BY_NAME.get(name.strip().casefold())
