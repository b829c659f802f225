"""Agent types; each implements `engine.agent.Agent` and knows no other type."""
