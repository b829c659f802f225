"""A Temporal workflow as an agent: `accord serve examples/agents/temporal_agent.py:orders`.

The workflow is in temporal_orders.py, and `temporal server start-dev` is a Temporal to try it with.
"""

import os

from accord.agents.temporal import workflow_agent

orders = workflow_agent(
    "Order",  # the name of the workflow, wherever it runs and whatever it is written in
    "orders",  # the task queue of its workers
    name="orders",
    description="Orders things",
    status="status",  # the query that says how it stands
    address=os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"),
)
