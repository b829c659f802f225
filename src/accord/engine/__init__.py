"""Durable execution of tasks: nodes, executions, event logs, subscriptions and webhooks."""
