"""`python -m accord.demo.orchestrator`: the orchestrator on port 9999 of this machine."""

import argparse

import uvicorn

from accord.demo.orchestrator.app import App


def main() -> None:
    """Serve until a signal comes."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=9999)
    options.add_argument("--seconds", type=float, default=1.0, help="how long each job takes")
    given = options.parse_args()
    app = App(f"http://localhost:{given.port}", seconds=given.seconds)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
