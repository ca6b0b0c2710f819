"""A turn as it is seen on a terminal."""

from apexbridge.cli.output import Out, visible
from apexbridge.events import Event, SkillActivated, TextDelta, ToolFinished, TurnFinished


class TurnScreen:
    """The reply goes to stdout, what is done for it to stderr, folded; one turn at a time."""

    def __init__(self, out: Out, session: str) -> None:
        self._out, self._session = out, session
        self.begin()

    def begin(self) -> None:
        """A new turn."""
        self._is_open = self._has_said = False
        self.text = self.finish = self.turn_id = ""
        self.skills, self.tools = list[str](), list[str]()

    def show(self, event: Event) -> None:
        """Show what happened; what children of the conversation say is for it, not for people."""
        out = self._out
        match event:
            case TextDelta(session_id=session, text=text) if session == self._session:
                self._write(text)
            case ToolFinished():
                self.tools.append(event.tool)
                key = "chat_tool_failed" if event.is_error else "chat_tool"
                self._aside(out.word(key, tool=event.tool, seconds=f"{event.seconds:.2f} s"))
            case SkillActivated():
                self.skills.append(event.skill)
                self._aside(out.word("chat_skill", name=event.skill, mode=event.mode))
            case TurnFinished(session_id=session) if session == self._session:
                self._end(event)
            case _:
                pass

    def close(self) -> None:
        """End the line that was begun."""
        if self._is_open:
            print(flush=True)
            self._is_open = False

    def _write(self, text: str) -> None:
        if text and not (self._out.as_json or self._out.is_quiet):
            print("\n".join(map(visible, text.split("\n"))), end="", flush=True)
            self._has_said, self._is_open = True, not text.endswith("\n")

    def _aside(self, text: str) -> None:
        self.close()
        self._out.note(text)

    def _end(self, event: TurnFinished) -> None:
        self.text, self.finish, self.turn_id = event.text, event.finish, event.turn_id
        if not self._has_said:  # what no model wrote comes whole
            self._write(event.text)
        self.close()
        if event.finish not in {"stop", "skill"}:
            self._out.note(self._out.word("chat_finish", finish=event.finish))
