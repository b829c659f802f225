"""Where everything is kept: commands written once, drivers for SQLite and PostgreSQL, and migrations.

Nothing above may import a driver; nothing here knows what a command is for. `model` and `errors` are below, `core` is
above.
"""
