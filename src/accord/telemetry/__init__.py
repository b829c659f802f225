"""What those see who watch a server. It observes the core through hooks and wrappers, and nothing depends on it."""
