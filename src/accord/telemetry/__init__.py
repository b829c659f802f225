"""Metrics, logs and traces of a server. It observes the engine through hooks and wrappers."""
