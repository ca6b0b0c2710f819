"""`audit`: the record of every attempted change."""

from apexbridge.audit import AuditLog
from apexbridge.cli.output import Out


def _log(out: Out) -> AuditLog:
    return AuditLog(out.loaded.data / "audit.jsonl")


def ls(out: Out, limit: int) -> None:
    """The latest records, the newest last."""
    records = _log(out).latest(limit)

    def render() -> None:
        heads = [out.word("when"), out.word("what"), out.word("facts")]
        rows = [
            (r.at, r.action, " ".join(f"{key}={value}" for key, value in r.facts.items()))
            for r in records
        ]
        if rows:
            out.table(heads, rows)
        else:
            out.line(out.word("audit_empty"))

    data = [{"at": r.at, "action": r.action, "facts": dict(r.facts)} for r in records]
    out.finish({"records": data}, render)


def verify(out: Out) -> None:
    """Say whether the chain holds."""
    count = _log(out).verify()
    line = out.word("audit_sound", count=count)
    out.finish({"records": count}, lambda: out.line(line))
