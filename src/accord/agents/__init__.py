"""Agent types; each implements `core.interface.Agent` and knows no other type."""
