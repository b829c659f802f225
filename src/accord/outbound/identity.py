"""What we call ourselves to servers elsewhere, looked up once: that reads files, which no event loop should wait for.

It is no credential, and nobody is asked for it here; `accord.client` and `outbound.session` send it.
"""

from importlib.metadata import version

USER_AGENT = f"accord/{version('accord')}"
