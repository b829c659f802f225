"""Signing in: who a browser belongs to, and that a request is its own."""
