"""Write an archive's files into an empty folder: all of them, or none."""

import contextlib
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from apexbridge.errors import StorageError
from apexbridge.lifecycle.plan import PlannedFile

Write = Callable[[bytes], object]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewFiles:
    """Makes files and the folders they need, each anew, and can take all of them back."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._folders = dict[Path, None]()
        self._files = list[Path]()

    @contextmanager
    def new_file(self, file: PlannedFile) -> Generator[Write]:
        """Open a new file; what is at its place already is an error and stays as it is."""
        path = self._into / file.path
        try:
            for parent in reversed(path.relative_to(self._into).parents[:-1]):
                self._make_folder(self._into / parent)
            descriptor = os.open(path, _NEW, stat.S_IRUSR | stat.S_IWUSR)
            self._files.append(path)
            with os.fdopen(descriptor, "wb") as new:
                yield new.write
                os.fchmod(new.fileno(), 0o755 if file.executable else 0o644)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=path) from error

    def _make_folder(self, path: Path) -> None:
        if path not in self._folders:
            path.mkdir(stat.S_IRWXU)
            self._folders[path] = None
            path.chmod(0o755)

    def take_back(self) -> None:
        """Remove what was made, and nothing else."""
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink()
        for path in reversed(self._folders):
            with contextlib.suppress(OSError):
                path.rmdir()


@contextmanager
def writing(into: Path) -> Generator[NewFiles]:
    """Lend a writer to an empty folder; if anything goes wrong, the folder is empty afterwards.

    Raises:
        StorageError: If it is no empty folder, or the disk refuses.
    """
    try:
        if not stat.S_ISDIR(into.lstat().st_mode):
            raise StorageError("it is no folder", path=into)
        if any(into.iterdir()):
            raise StorageError("it is not empty", path=into)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=into) from error
    files = NewFiles(into)
    try:
        yield files
    except BaseException:
        files.take_back()
        raise


@contextmanager
def nowhere(file: PlannedFile | None = None) -> Generator[Write]:
    """Take bytes and keep none."""
    yield len
