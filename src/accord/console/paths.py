"""Where what is beside A2A is found: what paths begin with.

Only words: whoever routes requests needs them before it is known whether anything is there.
"""

API = "/api/v1/"
"""Below it the registry is."""

HOOKS = "/hooks/"
"""Below it runs of workflows begin."""

RUNS = "/api/runs/"
"""Below it runs of workflows are."""

PAGES = "/console/"
"""Below it the console's own pages are."""

CONSOLE = "/api/"
"""Below it is what those pages ask, where nothing else is."""

EVENTS = "/api/events"
"""Where pages hear of news."""

SESSIONS = "/api/session"
"""Where people sign in."""

SIGNIN = "/signin"
"""The page for that, below the others."""

PREFIXES = (API, HOOKS, RUNS, PAGES, CONSOLE)
"""The more exact ones first."""
