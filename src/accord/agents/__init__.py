"""Agent types; each implements `engine.agent.Agent` and is independent of the others."""
