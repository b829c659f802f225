"""A server: its settings, what it is composed of, and how it is started and checked.

Settings are at the bottom, `composition` puts the layers together, and `http_server` and `doctor` are at the top. It
imports nothing by itself: commands read settings without loading a server.
"""
