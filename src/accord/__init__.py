"""Accord: a durable home for agents that talk to each other over A2A."""

__version__ = "0.1.0"
