"""What every test shares: how hard Hypothesis tries, and other implementations to judge what we write."""

import os

import pytest
from hypothesis import HealthCheck, settings

# What gRPC does in a process that was just forked may kill it before it becomes the program that a test starts.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

pytest.register_assert_rewrite("tests.conformance")  # its scenarios are not in modules that pytest collects

# Timings on shared machines are noise, so no example has a deadline; `thorough` is for a night.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
