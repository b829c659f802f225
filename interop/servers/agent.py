"""What the agent of every server does, and how a server's process says where it is.

A message is one word. `chunks` is answered in pieces, `hold` never, `ask` with a question, anything else with itself.
`echo` is for servers whose answers can be messages: the answer is a message with the same text and no artifact.
The scripts beside this file put that into the terms of one implementation each; they run as modules, in environments
that have little in common.
"""

import json
import socket
from typing import Any

NAME = "Parrot"
DESCRIPTION = "Repeats what it is told"
CHUNKS = ("one ", "two ", "three")
QUESTION = "Which colour?"
ECHO = "echo"


def pieces(text: str) -> tuple[str, ...]:
    """Return what is to be said in answer to a text that is neither `hold` nor `ask`."""
    return CHUNKS if text == "chunks" else (f"You said {text}",)


def listening() -> tuple[socket.socket, str]:
    """Return a socket that connections can already wait at, and its address; AgentVault wants it by this name."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"http://localhost:{listener.getsockname()[1]}"


def serve(app: Any, listener: socket.socket, url: str) -> None:
    """Say where the server is and run it until it is stopped."""
    import uvicorn

    print(json.dumps({"url": url}), flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
