"""Metrics, logs and traces of a server. They observe the engine through hooks and wrappers."""
