"""Flows behind a webhook as agents: n8n, and whatever else takes a POST and answers, streams, or calls back.

`agent` has the kind; nothing is imported here.
"""
