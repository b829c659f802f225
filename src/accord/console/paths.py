"""Where what is beside A2A is found: what paths begin with.

Only words: whoever routes requests needs them before it is known whether anything is there.
"""

API = "/api/v1/"
"""Below it the registry is."""

HOOKS = "/hooks/"
"""Below it runs of workflows begin."""

RUNS = "/api/runs/"
"""Below it runs of workflows are."""

PREFIXES = (API, HOOKS, RUNS)
