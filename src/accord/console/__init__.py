"""The HTTP API beside A2A: what people and their tools ask a server about, under `/api`.

It knows HTTP and the shapes of its answers; what they mean is decided in `core`. `app` puts it behind its paths.
"""
