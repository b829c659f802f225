"""Checks of a server that may not run yet: `examination` does all of them, each of the others knows one subject."""
