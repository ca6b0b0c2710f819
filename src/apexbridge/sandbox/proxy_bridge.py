"""Proxy bridge inside the sandbox: forward a loopback TCP port to the egress proxy's Unix socket.

Run as a program (`python -I -S proxy_bridge.py SOCKET COMMAND…`): it listens, forks a child that
relays bytes, and execs the command with the proxy's address in its environment.
"""

import contextlib
import os
import socket
import sys
import threading


def relay(source: socket.socket, target: socket.socket) -> None:
    """Relay bytes in one direction until EOF."""
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def serve(listener: socket.socket, path: str) -> None:
    """Connect each client to the proxy."""
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
    """Listen, fork the relay, then exec the command."""
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
    os.environ["NODE_USE_ENV_PROXY"] = "1"  # Node.js reads the others only then
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
