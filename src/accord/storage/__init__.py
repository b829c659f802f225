"""Durable storage: portable commands, drivers for SQLite and PostgreSQL, and migrations.

Nothing above imports a driver. Nothing here knows what a command is for.
"""
