"""Ask something from a program of your own, and see what happens as it happens.

python examples/embed.py "What is 12*37?"
"""

import sys

import anyio

from apexbridge import Runtime
from apexbridge.events import SkillActivated, TextDelta, ToolFinished, TurnFinished


async def main(question: str) -> None:
    """Ask once, then once more in the same conversation."""
    async with Runtime.open() as runtime:
        for text in (question, "What time is it?"):
            # The same session goes on with a conversation, also on another day.
            async for event in runtime.chat(text, session="embedded"):
                match event:
                    case TextDelta():
                        print(event.text, end="", flush=True)
                    case ToolFinished():
                        print(f"[{event.tool}: {event.seconds:.3f} s]")
                    case SkillActivated():
                        print(f"[skill {event.skill}]")
                    case TurnFinished():
                        print(f"\n[{event.finish}]")
                    case _:
                        pass


if __name__ == "__main__":
    anyio.run(main, " ".join(sys.argv[1:]) or "What is 12*37?")
