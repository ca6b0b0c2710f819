"""The shell parser agrees with bash, or refuses to parse."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apexbridge.permissions.shell_parser import MAX_CHARACTERS, parse_shell, simple_commands


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("git status", ["git status"]),
        ("git\tstatus  -s", ["git status -s"]),
        ("a && b || c; d | e |& f & g\nh", list("abcdefgh")),
        ("(a; b) && { c; }", ["a", "b", "c"]),
        ("! a", ["a"]),
        ('echo $(a) `b c` "$(d) `e`"', ["a", "b c", "d", "e", 'echo $(a) `b c` "$(d) `e`"']),
        ('echo "  $x  $(y) "', ["y", 'echo "  $x  $(y) "']),
        ("x=$(a) b", ["a", "x=$(a) b"]),
        ("x=$(a)", ["a"]),
        ("PATH=/evil; git status", ["PATH=/evil", "git status"]),
        ("LANG=x", ["LANG=x"]),
        ("http_proxy=x git pull", ["http_proxy=x git pull"]),
        ("a <(b) >(c)", ["b", "c", "a <(b) >(c)"]),
        ('a <<< "$(b)"', ["b", "a"]),
        ("if a; then b; elif c; then d; else e; fi", list("abcde")),
        ("for x in 1 2; do a $x; done", ["a $x"]),
        ("while a; do b; done; until c; do d; done", list("abcd")),
        ("case $x in a|b) c;; *) d;; esac", ["c", "d"]),
        ("f() { a; }; function g { b; }; f", ["a", "b", "f"]),
        ("cat <<E\nplain $ words\nE\nb".replace("$ ", ""), ["cat", "b"]),
        ("cat <<'E' | b\n$(rm) `rm`\nE\nc", ["cat", "b", "c"]),
        ("cat <<-E\n\thi\n\tE\nb", ["cat", "b"]),
        ("a # and b $(c)\nd", ["a", "d"]),
        ("a \\\n  b", ["a b"]),
        ("a b#c", ["a b#c"]),
        ("r''m x", ["rm x"]),
        ('r"m" x', ["rm x"]),
        ("\\rm x", ["rm x"]),
        ("'git' \"status\"", ["git status"]),
        ("'git status'", ["'git status'"]),
        ("git commit -m 'a; rm b'", ["git commit -m 'a; rm b'"]),
        ('git commit -m "two\nlines"', ["git commit -m 'two\nlines'"]),
        ("echo 中文 “引号”", ["echo 中文 '“引号”'"]),
        ("[ -f x ] && a", ["[ -f x ]", "a"]),
        ('[ "$x" = y ] && a', ['[ "$x" = y ]', "a"]),
        ("test ! -e x", ["test ! -e x"]),
        ("export A=$(b) C", ["b", "export A=$(b) C"]),
        ("set -euo pipefail; a", ["set -euo pipefail", "a"]),
        ("while read -r line; do a; done", ["read -r line", "a"]),
        ("echo $((1 + 2)) {1..3} {a,b} *.c ~/x", ["echo $((1 + 2)) {1..3} {a,b} *.c ~/x"]),
        ("echo $'a\\'b'", ["echo $'a\\'b'"]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_every_command_that_could_run_is_reported(text: str, commands: list[str]) -> None:
    assert simple_commands(text) == tuple(commands)


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("timeout -k 1 5 rm x", ["timeout -k 1 5 rm x", "rm x"]),
        ("nohup nice -n 5 rm x", ["nohup nice -n 5 rm x", "nice -n 5 rm x", "rm x"]),
        ("time rm", ["time rm", "rm"]),
        ("time -p A=1 rm", ["time -p A=1 rm", "A=1 rm"]),
        ("command rm", ["command rm", "rm"]),
        ("exec rm", ["exec rm", "rm"]),
        ("command -v rm", ["command -v rm"]),
        ("env", ["env"]),
        ("env -i A=1 rm", ["env -i A=1 rm", "A=1 rm"]),
        ("sudo -u root -- rm", ["sudo -u root -- rm", "rm"]),
        ("xargs -0 -n 1 rm -r", ["xargs -0 -n 1 rm -r", "rm -r …"]),
        ("bash -c 'a; sh -c \"b\"'", ["bash -c 'a; sh -c \"b\"'", "a", "sh -c b", "b"]),
        ("bash run.sh", ["bash run.sh"]),
        (
            "find . -name '*.py' -exec rm {} \\; -execdir b + ",
            ["find . -name '*.py' -exec rm {} ';' -execdir b +", "rm {}", "b"],
        ),
        ("/usr/bin/env rm", ["/usr/bin/env rm", "rm"]),
        ("make CC=gcc x", ["make CC=gcc x"]),
        ("[ x ] && a", ["[ x ]", "a"]),
    ],
)
def test_what_a_command_starts_is_reported_beside_it(text: str, commands: list[str]) -> None:
    assert simple_commands(text) == tuple(commands)


@pytest.mark.parametrize(
    "text",
    [
        "watch rm",
        "sudo -i",
        "env -S 'rm x'",
        "env - rm",
        "timeout --foreground 5 rm",
        "timeout $x rm",
        'timeout -v "$x" rm',
        "timeout -- $x rm",
        'bash -c "$x"',
        "bash -lc rm",
        "sh -s",
        "find . -delete",
        "find . $x rm {} +",
        "nice -5 rm",
        "nohup $x rm",
        "xargs -a f rm",
    ],
)
def test_a_command_that_hides_what_it_starts_is_opaque(text: str) -> None:
    parsed = parse_shell(text)
    assert parsed is not None
    assert [command.role for command in parsed.commands] == ["opaque"]


@pytest.mark.parametrize(
    "text",
    [
        "$x",
        "${x} y",
        "r$x",
        "r${IFS}m",
        "$'rm' x",
        "`a`",
        '"$(a)"',
        "*/rm",
        "~/x",
        "{rm,x}",
        "eval x",
        ". x",
        "source x",
        "trap 'rm' EXIT",
        "alias a=rm",
        "let x=1",
        "declare x=1",
        "unset x",
        "builtin eval x",
        "command eval x",
        "coproc a",
        "hash -p /x/rm git",
        "enable -f x y",
        "mapfile -C rm",
        "printf -v 'a[$(rm)]' x",
        'printf "$x"',
        "test -v 'a[$(rm)]'",
        "[ -v 'a[$(rm)]' ]",
        '[ "$x" "$y" ]',
        '[ "$x" "$y" z ]',
        "[ $x = y ]",
        "[[ a -eq b ]]",
        "(( x ))",
        "echo $((x))",
        "echo $((a[$(rm)]))",
        "echo ${x:-$(rm)}",
        "echo ${x@P}",
        "echo ${!x}",
        "x[$(rm)]=1",
        "x=(a b)",
        'export "$x"',
        "export 'a[$(rm)]=1'",
        "read 'a[$(rm)]'",
        "read PATH",
        "wait -p x",
        "set -- a",
        "for PATH in a; do b; done",
        "for ((i=0; i<2; i++)); do a; done",
        "select x in a; do b; done",
        "cat <<E\n$(rm)\nE",
        "cat <<E\n`rm`\nE",
        "cat <<E\n\\\nE\nrm\nE",
        "cat <<E <<F\na\nE\nb\nF",
        "cat <<$(rm)\na\n",
        "cat <<E\nno end",
        "a > $x",
        "a > $(b)",
        "a > f b",
        "a > /dev/tcp/1.2.3.4/80",
        "a {fd}> f",
        "a\r\nb",
        "a\x00b",
        "a\x1b[2Kb",
        "a\u00a0b",
        "a\u2028b",
        "r\\\nm x",
        "a &\\\n& b",
        "a 'open",
        'a "open',
        "a $(open",
        "a `b 'c'`",
        "a &&",
        "if a; then",
        "bash -c 'eval x'",
        "find . -exec {} \\;",
        'echo $"a"',
        "time ! rm",
        "PS4='$(rm)'; set -x; a",
        "export PS4='$(rm)'; set -x; a",
        "BASH_ENV=f bash x",
        "f() { [ \"$@\" ]; }; f -v 'a[$(rm)]'",
        "wait \"$x\" 'a[$(rm)]'",
        "\\\\*",
        "echo $",
        "a" * (MAX_CHARACTERS + 1),
        "(" * 200 + "a" + ")" * 200,
        "$(" * 5000,
        "a;" * 5000,
        "cat <<E\n" * 2000,
        "bash -c 'a <<E\nE'",
        "case x in [a]) b;; esac",
        "echo " + "$(echo " * 100 + "a" + ")" * 100,
        "bash -c " * 3 + "\ud800",
    ],
    ids=lambda text: repr(text[:30]).encode("ascii", "replace").decode(),
)
def test_what_only_the_shell_could_tell_is_not_understood(text: str) -> None:
    assert simple_commands(text) is None


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        ("a > f", ["f"], []),
        ("a >> f 2> 'g h' &> k >| l", ["f", "g h", "k", "l"], []),
        ("a < f", [], ["f"]),
        ("a > /dev/null 2>&1 < /dev/null", [], []),
        ("a 2>&-", [], []),
        ("a >& f", ["f"], []),
        ("> f", ["f"], []),
        ("a2>f", ["f"], []),
        ("(a) > f; for x in 1; do b; done > g", ["f", "g"], []),
        ("f() { a; } > g", ["g"], []),
        ("echo $(<f)", [], ["f"]),
        ("bash -c 'a > f'", ["f"], []),
        ("cat <<'E' > f\nhi\nE", ["f"], []),
    ],
)
def test_redirections_tell_what_is_written_and_read(
    text: str, writes: list[str], reads: list[str]
) -> None:
    parsed = parse_shell(text)
    assert parsed is not None
    assert (parsed.writes, parsed.reads) == (tuple(writes), tuple(reads))


@pytest.mark.parametrize(
    ("text", "moves"), [("cd x; a", True), ("bash -c 'cd x'", True), ("a cd", False)]
)
def test_a_change_of_folder_is_reported(text: str, moves: bool) -> None:
    parsed = parse_shell(text)
    assert parsed is not None
    assert parsed.changes_directory is moves


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    parsed = parse_shell(text)
    assert parsed is None or all(c.name or c.assigned for c in parsed.commands)


_PROGRAMS = ("aa", "bb", "rm", "git", "timeout", "nohup", "env", "xargs", "find", "nice", "sudo")
_PIECES = (
    *("aa", "bb x", "git status", "rm -r f", 'r""m', "\\rm", "'rm'", "r\\\nm", " ", "\n", ";"),
    *(" && ", " || ", " | ", " & ", "(", ")", "{ ", "; }", "$(", "`", '"', "'", "$x", "${x}"),
    *("x=", "x=aa ", "X=bb ", ">f", "<f", "2>", "#", " # c\n", "\\", "if ", "; then ", "; fi"),
    *("for x in a b", "; do ", "; done", "case x in x) ", ";; esac", "f() ", "! ", "[ -f x ]"),
    *("cat <<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "\t", "<<<", "<(", ">(", "time ", "nohup "),
    *("timeout 5 ", "env A=1 ", "xargs ", "bash -c ", "sh -c ", "eval ", "command ", "exec "),
    *("$((1+1))", "$((x))", "*", "{a,b}", "~", "$'rm'", "|&", "&>f", "2>&1", "echo ", "test "),
    *("printf ", "-v ", "'a[$(rm)]'", "export ", "中", "else ", "[[ ", " ]]", "((", "))", "$@"),
    *("${x:-$(rm)}", "true", "false", "cd ", "=", "+=", "in ", "x='$(rm)' ", 'echo "$(rm)" '),
)


def _run_in_bash(text: str, place: Path, programs: Path) -> tuple[set[str], set[str]]:
    """The programs that bash really starts, and the files it really makes."""
    work, log = place / "work", place / "log"
    work.mkdir(exist_ok=True)
    log.write_text("", encoding="utf-8")
    child = subprocess.Popen(
        ["/bin/bash", "--norc", "--noprofile", "-c", text],
        env={"PATH": str(programs), "LOG": str(log), "HOME": str(place), "LANG": "C.UTF-8"},
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    made = {path.name for path in work.iterdir()}
    for path in work.iterdir():
        path.unlink()
    return set(log.read_text(encoding="utf-8").split()), made


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    place = tmp_path / "bin"
    place.mkdir()
    for name in _PROGRAMS:
        (place / name).write_text(f'#!/bin/bash\necho {name} >> "$LOG"\n', encoding="utf-8")
        (place / name).chmod(0o755)
    return place


@pytest.mark.needs("bash")
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=9))
def test_bash_starts_nothing_that_was_not_parsed(
    tmp_path: Path, programs: Path, pieces: Sequence[str]
) -> None:
    text = "".join(pieces)
    parsed = parse_shell(text)
    if parsed is None or any(command.role == "opaque" for command in parsed.commands):
        return
    ran, made = _run_in_bash(text, tmp_path, programs)
    assert ran <= {command.name for command in parsed.commands}
    assert made <= {Path(path).name for path in parsed.writes}


@pytest.mark.needs("bash")
def test_the_comparison_with_bash_sees_what_runs(tmp_path: Path, programs: Path) -> None:
    assert _run_in_bash("aa; x=$(rm); git > f", tmp_path, programs) == ({"aa", "rm", "git"}, {"f"})
