"""Error responses: status of a full disk, and no path of the server in any text."""

import errno
import os
import sqlite3
import string
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from apexbridge import locales
from apexbridge.errors import ApexBridgeError, SkillInvalidError, StorageError
from apexbridge.runtime.hidden_paths import HIDDEN_PATHS, HiddenPaths, hide_paths
from apexbridge.server.error_responses import error_body, http_status, to_apexbridge_error
from apexbridge.skills.model import Problem

DATA, HOME, TEMPORARY = Path("/srv/keeper/.data"), Path("/srv/keeper"), Path("/var/scratch")


@pytest.fixture
def _hidden() -> Generator[None]:
    named = ((TEMPORARY, "<tmp>"), (HOME, "~"), (DATA, "<data>"))
    token = HIDDEN_PATHS.set(HiddenPaths(named))
    yield
    HIDDEN_PATHS.reset(token)


def _chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def _sqlite_full() -> sqlite3.Error:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 2")
    connection.execute("CREATE TABLE t (a)")
    with pytest.raises(sqlite3.OperationalError) as full:
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.close()
    return full.value


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/srv/keeper/.data/x"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        _sqlite_full(),
        _chained(StorageError("full", path=DATA), _sqlite_full()),
        _chained(StorageError("full", path=DATA), OSError(errno.ENOSPC, "full")),
        _chained(
            StorageError("full", path=DATA), _chained(ValueError(), OSError(errno.ENOSPC, "full"))
        ),
        _chained(RuntimeError(), _sqlite_full()),
    ],
)
def test_a_full_disk_is_507_wherever_it_was_met(error: Exception) -> None:
    known = to_apexbridge_error(error, {"type": "http"})
    assert (http_status(known), known.code) == (507, "storage_failed")


def test_another_failure_of_the_disk_is_500() -> None:
    error = _chained(StorageError("broken", path=DATA), OSError(errno.EIO, "broken"))
    assert http_status(to_apexbridge_error(error, {"type": "http"})) == 500
    assert to_apexbridge_error(OSError(errno.EIO, "broken"), {"type": "http"}).code == (
        "server_failed"
    )


def _placeholders(text: locales.LocalizedText) -> set[str]:
    parsed = (*string.Formatter().parse(text.message), *string.Formatter().parse(text.hint))
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in parsed if name}


@pytest.mark.usefixtures("_hidden")
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("folder", [DATA, HOME, TEMPORARY])
def test_no_error_of_the_catalogue_shows_a_path_of_the_server(
    folder: Path, language: locales.Language
) -> None:
    catalogue: Mapping[str, locales.LocalizedText] = locales.error_texts(language)
    assert len(catalogue) > 300
    for code, template in catalogue.items():
        names = _placeholders(template)
        for value in (folder / "sub/x.json", str(folder), f"[Errno 2] missing: '{folder}/a b'"):
            details = dict[str, object](dict.fromkeys(names, value))
            details["detail"] = f" {value}"  # some texts join it to a word
            error = ApexBridgeError(code=code)
            error.details = details
            problem = Problem(code=code, where=str(value), details=details)
            for shown in (error, SkillInvalidError("x", [problem])):
                body = str(error_body(shown, language))
                assert str(folder) not in body, code


@pytest.mark.usefixtures("_hidden")
def test_a_path_keeps_what_tells_one_file_from_another() -> None:
    text = f"{DATA}/skills/x and {HOME}/notes and {HOME}ful/a and x{HOME}/b，请看{HOME}。In {DATA}."
    expected = f"<data>/skills/x and ~/notes and {HOME}ful/a and x{HOME}/b，请看~。In <data>."
    assert hide_paths(text) == expected


def test_without_a_server_a_path_is_shown() -> None:
    assert hide_paths(str(DATA)) == str(DATA)


def test_the_root_of_the_file_system_is_no_secret(tmp_path: Path) -> None:
    hidden = HiddenPaths(((Path("/"), "~"),))
    assert hidden.hide("/etc/x") == "/etc/x"
    (tmp_path / "link").symlink_to(tmp_path)
    linked = HiddenPaths(((tmp_path / "link", "<data>"),))
    assert linked.hide(f"{tmp_path}/a {tmp_path}/link/b") == "<data>/a <data>/b"
    assert os.fspath(tmp_path) not in linked.hide(str(tmp_path))
