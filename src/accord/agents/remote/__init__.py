"""Agents elsewhere as agents here: any A2A agent, of any dialect, becomes durable by being hosted.

`agent` has the agent itself; nothing is imported here, so that settings can name the terms without loading a client.
"""
