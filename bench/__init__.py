"""Benchmarks: what we claim to be fast, measured side by side with others in one run."""
