"""Semantics of A2A's operations, and the agents of a process."""
