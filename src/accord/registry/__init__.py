"""The registry of published agents."""
