"""A server: its settings, composition, start and checks.

Settings are at the bottom, `composition` connects the layers, and `http_server` and `doctor` are at the top. This
module imports nothing, so commands read settings without loading a server.
"""
