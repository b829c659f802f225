"""One file per kind of agent; each implements `core.interface.Agent` and knows no other kind."""
