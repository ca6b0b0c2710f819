"""A tool of your own: a typed function, which the model then can call.

python examples/custom_tool.py

A package that is installed beside ApexBridge names its module under the entry-point group
`apexbridge` instead; the hook is the same.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio

from apexbridge import Extensions, Runtime, tool
from apexbridge.extensions import hook
from apexbridge.tools.base import Tool

STOCK = {"apples": 12, "pears": 0}


# Without `permission` a person would be asked first; `read_only` lets calls go side by side.
@tool(read_only=True, permission="harmless")
def stock(item: str) -> str:
    """Tell how many pieces of an item are in stock.

    Args:
        item: The item's name, in the plural.
    """
    if item not in STOCK:
        raise ValueError(f"there are no {item}; there are {', '.join(STOCK)}")
    return f"{STOCK[item]} {item}"


class Shop:
    """The extension."""

    @hook
    def apexbridge_tools(self, project: Path) -> Sequence[Tool]:
        """Give the tools for a project."""
        return [stock]


async def main() -> None:
    """Show that the tool is there, and that it is still a function."""
    extensions = Extensions.installed()
    extensions.add(Shop(), "shop")
    async with Runtime.open(extensions=extensions) as runtime:
        for found in runtime.chat_service.registry:
            if found.spec.name == "stock":
                print(found.spec.description)
                print(found.spec.input_schema["properties"]["item"])
    print(stock("apples"))


if __name__ == "__main__":
    anyio.run(main)
