"""Authentication and authorization of callers, rate limits and the audit log."""
