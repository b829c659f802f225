"""Settings: what can be set, and where values come from."""
