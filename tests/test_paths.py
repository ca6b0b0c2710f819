"""Path traversal guard and atomic file system changes."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apexbridge import paths
from apexbridge.errors import StorageError, UnsafePathError
from apexbridge.paths import commit_dir, create_bytes, replace_bytes, safe_join, staging_dir
from apexbridge.tree_removal import remove_tree


def test_a_path_below_the_root_is_joined(tmp_path: Path) -> None:
    assert safe_join(tmp_path, "a/./b.md") == tmp_path.resolve() / "a/b.md"
    assert safe_join(tmp_path, "a/../b.md") == tmp_path.resolve() / "b.md"
    assert safe_join(tmp_path, "文件.md").name == "文件.md"


@pytest.mark.parametrize(
    "relative",
    ["", "..", "../x", "a/../../x", "/etc/passwd", "~/x", "a\0b", "..\\x", "C:/x", "out/x", "out"],
)
def test_a_path_that_leaves_is_refused(tmp_path: Path, relative: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(UnsafePathError):
        safe_join(root, relative)


def test_staging_is_private_beside_the_data_and_gone_afterwards(tmp_path: Path) -> None:
    with staging_dir(tmp_path) as place:
        assert place.parent == tmp_path / ".staging"
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        (place / "deep/er").mkdir(parents=True)
        (place / "deep/er/file").write_bytes(b"x")
        (place / "deep/er").chmod(0)
        (place / "link").symlink_to(tmp_path)
    assert list((tmp_path / ".staging").iterdir()) == []
    assert tmp_path.exists()


def test_removing_what_is_gone_is_fine(tmp_path: Path) -> None:
    remove_tree(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


@pytest.fixture(params=["kernel", "portable"])
def rename(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of moving without replacing."""
    if request.param == "portable":
        monkeypatch.setattr(paths, "_renameat2", lambda: None)
    return request.param


@pytest.mark.usefixtures("rename")
def test_a_folder_is_moved_into_place(tmp_path: Path) -> None:
    (tmp_path / "new/sub").mkdir(parents=True)
    (tmp_path / "new/sub/file").write_bytes(b"x")
    (tmp_path / "new/link").symlink_to("nowhere")
    commit_dir(tmp_path / "new", tmp_path / "there")
    assert (tmp_path / "there/sub/file").read_bytes() == b"x"
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("rename")
@pytest.mark.parametrize("kind", ["empty", "full", "file", "link"])
def test_nothing_that_exists_is_replaced(tmp_path: Path, kind: str) -> None:
    (tmp_path / "new").mkdir()
    target = tmp_path / "there"
    if kind == "file":
        target.write_bytes(b"old")
    elif kind == "link":
        target.symlink_to("nowhere")
    else:
        target.mkdir()
        if kind == "full":
            (target / "old").write_bytes(b"old")
    with pytest.raises(StorageError) as caught:
        commit_dir(tmp_path / "new", target)
    assert caught.value.code == "path_exists"
    assert (tmp_path / "new").exists()
    assert target.exists() or target.is_symlink()


@pytest.mark.usefixtures("rename")
def test_of_many_that_want_one_name_exactly_one_wins(tmp_path: Path) -> None:
    def attempt(number: int) -> str:
        source = tmp_path / f"new{number}"
        source.mkdir()
        (source / "who").write_text(str(number), encoding="utf-8")
        try:
            commit_dir(source, tmp_path / "there")
        except StorageError as error:
            return error.code
        return "won"

    with ThreadPoolExecutor(16) as pool:
        ends = list(pool.map(attempt, range(50)))
    assert sorted(ends) == ["path_exists"] * 49 + ["won"]
    assert (tmp_path / "there/who").read_text(encoding="utf-8") == str(ends.index("won"))


@pytest.mark.usefixtures("rename")
def test_a_move_that_the_disk_refuses_leaves_both_sides(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(StorageError) as caught:
        commit_dir(tmp_path / "new", tmp_path / "no/such/folder")
    assert caught.value.code == "storage_failed"
    assert (tmp_path / "new").exists()


def test_a_file_system_without_the_call_takes_the_portable_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> int:
        paths.ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(paths, "_renameat2", lambda: unsupported)
    (tmp_path / "new").mkdir()
    commit_dir(tmp_path / "new", tmp_path / "there")
    assert (tmp_path / "there").is_dir()


def test_the_portable_way_gives_its_claim_back_when_the_move_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "_renameat2", lambda: None)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    (tmp_path / "new").mkdir()
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StorageError, match="broken disk"):
        commit_dir(tmp_path / "new", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_the_portable_way_loses_to_someone_who_fills_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "_renameat2", lambda: None)

    def occupied(*_: object) -> None:
        raise OSError(errno.ENOTEMPTY, "not empty")

    (tmp_path / "new").mkdir()
    monkeypatch.setattr(Path, "rename", occupied)
    with pytest.raises(StorageError) as caught:
        commit_dir(tmp_path / "new", tmp_path / "there")
    assert caught.value.code == "path_exists"


def test_only_linux_has_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths.sys, "platform", "darwin")
    assert paths._renameat2() is None  # pyright: ignore[reportPrivateUsage]


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o755)
    replace_bytes(file, b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_was_not_there_is_made(tmp_path: Path) -> None:
    replace_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="not a regular file"):
        replace_bytes(tmp_path / "pipe", b"new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("write", [replace_bytes, create_bytes])
def test_a_path_that_cannot_hold_a_file_is_one_clear_error(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file/x", tmp_path / ("y" * 300), Path(), tmp_path / "no/x"):
        with pytest.raises(StorageError):
            write(path, b"new")
    write(tmp_path / ("z" * 250), b"new")
    assert sorted(path.name[:1] for path in tmp_path.iterdir()) == ["f", "z"]


def test_a_tree_that_does_not_want_to_go_goes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open(b"odd\n\xff", os.O_CREAT | os.O_WRONLY, 0, dir_fd=here))
    os.symlink("/", "link", dir_fd=here)
    os.close(here)
    (root / "d").chmod(0)
    root.chmod(0)
    remove_tree(root)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    with pytest.raises(StorageError, match="not a regular file"):
        replace_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"old"


@pytest.mark.parametrize("write", [replace_bytes, create_bytes])
def test_a_full_disk_leaves_the_old_bytes_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    old = tmp_path / "old"
    old.write_bytes(b"old")
    target = old if write is replace_bytes else tmp_path / "new"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write(target, b"new")
    assert (old.read_bytes(), [path.name for path in tmp_path.iterdir()]) == (b"old", ["old"])


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    create_bytes(tmp_path / "file", b"first", mode=0o600)
    with pytest.raises(StorageError) as caught:
        create_bytes(tmp_path / "file", b"second")
    assert caught.value.code == "path_exists"
    assert (tmp_path / "file").read_bytes() == b"first"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_tree_is_removed_where_nothing_can_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "rename", refuse)
    (tmp_path / "root/a/b/c").mkdir(parents=True)
    (tmp_path / "root/a/d").mkdir()
    (tmp_path / "root/a/b/file").touch()
    remove_tree(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_removed_goes_also_if_a_part_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if path == "stuck":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    for name in ("a/stuck", "a/other", "b/c/more", "last"):
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).touch()
    with pytest.raises(PermissionError):
        remove_tree(tmp_path / "root")
    assert sorted(path.name for path in (tmp_path / "root").rglob("*")) == ["a", "stuck"]


def test_a_file_that_is_being_written_is_not_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, sync = list[bool](), os.fsync

    def look(descriptor: int) -> None:
        removed.extend(map(paths.remove_abandoned, tmp_path.glob(".*.new")))
        sync(descriptor)

    monkeypatch.setattr("os.fsync", look)
    paths.replace_bytes(tmp_path / "a", b"x")
    assert removed == [False]
    assert (tmp_path / "a").read_bytes() == b"x"
    left = tmp_path / f".{'0a' * 16}.new"
    left.write_bytes(b"")
    assert paths.remove_abandoned(left)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert not paths.remove_abandoned(left)


def test_a_file_that_was_removed_as_abandoned_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lock = list[Path](), fcntl.flock

    def late(descriptor: int, how: int) -> None:
        if not made:
            made.extend(tmp_path.glob(".*.new"))
            made[0].unlink()
        lock(descriptor, how)

    monkeypatch.setattr("fcntl.flock", late)
    paths.create_bytes(tmp_path / "a", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_is_set_aside_under_a_free_name(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "a.db").write_bytes(b"%d" % number)
        (tmp_path / "a.db-wal").write_bytes(b"log %d" % number)
        moved = paths.rename_free(tmp_path / "a.db", "damaged", ("-wal", "-shm"))
        assert moved.name == f"a.db.damaged-{number}"
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {
        "a.db.damaged-1": b"1",
        "a.db.damaged-1-wal": b"log 1",
        "a.db.damaged-2": b"2",
        "a.db.damaged-2-wal": b"log 2",
    }
