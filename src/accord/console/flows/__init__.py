"""Workflows over HTTP: their runs, what steps wait for, and the webhooks that begin them."""
