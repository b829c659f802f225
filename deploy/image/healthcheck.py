"""Whether the server in this container answers: `healthcheck.py /healthz`, or `/readyz` for whether it should get work.

The image has no curl. What this needs comes with Python, so that it takes a moment only.
"""

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

SECONDS = 3.0


def main(path: str) -> int:
    """Ask the server, and return 0 if all is well."""
    port = int(os.environ.get("ACCORD_SERVER__PORT", "8000"))
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    if os.environ.get("ACCORD_SERVER__TLS_CERT"):
        # Its certificate is for another name than this one; nothing secret is said.
        context = ssl._create_unverified_context()
        connection = HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
    except (OSError, HTTPException) as error:
        print(error)
        return 1
    print(answer.status, answer.read().decode(errors="replace"))
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
