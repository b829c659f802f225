"""Durable storage: portable commands, drivers for SQLite and PostgreSQL, and migrations.

Layers above never import a driver. Drivers run commands without knowledge of their purpose.
"""
