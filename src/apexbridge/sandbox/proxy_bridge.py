"""Inside the sandbox: a port on its own loopback that leads to the proxy's socket outside.

Run as a program of its own (`python -I -S doorkeeper.py SOCKET COMMAND…`): it listens, forks a
child that passes bytes on, and turns into the command with the proxy's address in its environment.
"""

import contextlib
import os
import socket
import sys
import threading


def relay(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes one way until they end."""
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def serve(listener: socket.socket, path: str) -> None:
    """Join each connection with one of the proxy's."""
    while True:
        client, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(path)
        except OSError:
            client.close()
            continue
        for pair in ((client, server), (server, client)):
            threading.Thread(target=relay, args=pair, daemon=True).start()


def main() -> None:
    """Open the door, then become the command."""
    path, *command = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    if os.fork() == 0:
        for stream in (0, 1, 2):  # the command's output must not wait for us
            os.close(stream)
        serve(listener, path)
    listener.close()
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        os.environ[name] = address
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
