"""Agents as people get to know them: cards and what is to be said about them, and asking them by hand."""
