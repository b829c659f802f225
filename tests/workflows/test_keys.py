"""Every key that a document may have does something that a test shows: a new one without such a test fails here."""

import ast
import inspect
from functools import cache
from pathlib import Path

from msgspec.structs import fields

from accord.workflows import agent_definition, document
from accord.workflows.notation import DocumentPart
from tests.cases import each

TESTS = Path(__file__).parent.parent

EFFECTS = "workflows/test_effects.py"
SEED = "workflows/test_seed.py"
MEMBERS = "workflows/test_members.py"
DECIDE = "workflows/test_decide.py"
DRIVING = "workflows/test_driving.py"
PATTERNS = "workflows/test_patterns.py"
SERVED = "serve/test_workflows.py"
TRIGGERED = "serve/test_workflow_triggers.py"
CRASH = "crash/test_flow_steps.py"

BUDGETS = f"{EFFECTS}::test_budgets_end_steps_that_exceed_them"
TIMES = f"{EFFECTS}::test_an_agent_has_so_much_time"
TOLD = f"{EFFECTS}::test_command_agents_get_prompt_directory_and_variables"
FORMS = "workflows/test_relay_forms.py"
PERMITTED = f"{FORMS}::test_permissions_are_a_word_or_of_a_step_or_a_file"
CHANGES = f"{EFFECTS}::test_agent_file_permissions_are_checked"
HYBRID = f"{SEED}::test_the_hybrid_example_runs_unchanged"
WIRE = f"{SEED}::test_agent_and_step_fields_reach_the_wire"
STREAMED = f"{SEED}::test_steps_stream_by_default"
PUSHED = f"{SEED}::test_a_step_in_push_mode_parks_the_run_until_a_webhook_ends_it"
MODES = f"{MEMBERS}::test_answers_are_streamed_by_default"
SHARED = f"{SEED}::test_steps_can_share_a_conversation"
CREDENTIALS = f"{MEMBERS}::test_card_requirements_are_met_by_headers_or_credentials"
REMINDED = f"{MEMBERS}::test_silent_agents_are_nudged_and_get_more_time"
IN_TERMINAL = f"{EFFECTS}::test_terminal_agents_end_at_their_marker_with_grace"
DIAGNOSED = f"{EFFECTS}::test_diagnosing_agents_explain_failed_verifications"
RETRIED = f"{EFFECTS}::test_a_step_is_tried_again_after_a_while_that_grows"
LATER = f"{DECIDE}::test_retries_back_off_while_others_continue"
TREES = f"{EFFECTS}::test_worktree_steps_create_their_worktree"
APPROVED = "console/test_flows.py::test_a_run_is_approved_by_another_caller_with_the_role"
WAITED = f"{EFFECTS}::test_a_step_waits_for_a_time"
INNER = f"{EFFECTS}::test_a_workflow_of_the_same_file_or_another_is_a_step"
MAPPED = f"{EFFECTS}::test_a_map_goes_over_a_list_a_few_at_a_time"
LOOPED = f"{EFFECTS}::test_a_loop_is_done_until_it_holds"
ORDERED = f"{EFFECTS}::test_conditions_and_dependencies_decide_starts"
USED = f"{EFFECTS}::test_steps_of_ones_own_are_used"
CHECKED = f"{EFFECTS}::test_a_preflight_decides_whether_a_run_begins"
BARRIER = f"{EFFECTS}::test_a_barrier_waits_for_enough"
KEPT = f"{EFFECTS}::test_values_may_be_for_the_runs_that_follow"
HANDLED = f"{EFFECTS}::test_error_handling_tries_every_step_again"
REPAIRED = f"{EFFECTS}::test_repair_agents_fix_failed_steps"
CHAPTERS = f"{EFFECTS}::test_a_trajectory_has_the_chapters_that_are_wanted"
PLACES = f"{EFFECTS}::test_places_have_names"
NO_PLACE = f"{EFFECTS}::test_missing_directories_name_their_use"
INPUTS = f"{EFFECTS}::test_inputs_are_given_checked_and_have_defaults"
NAMED = f"{EFFECTS}::test_a_file_has_a_version_a_name_and_a_description"
CHANNELS = f"{EFFECTS}::test_posts_go_to_the_channels_that_are_named"
SCHEDULED = f"{TRIGGERED}::test_missed_schedules_run_once"
HOOKED = f"{TRIGGERED}::test_webhook_calls_start_runs_with_their_payload"
TIMED = f"{TRIGGERED}::test_a_signature_is_good_for_its_time_its_address_and_its_kind"
SIGNED = f"{TRIGGERED}::test_webhook_triggers_require_a_signature"

SHOWN_BY = {
    "Constraints": {
        "model": f"{MEMBERS}::test_commands_are_called_as_documented",
        "maxTokens": BUDGETS,
        "maxCost": BUDGETS,
        "timeout": TIMES,
        "retries": f"{EFFECTS}::test_agents_have_their_retry_count",
        "idleThreshold": f"{MEMBERS}::test_an_agent_that_falls_silent_without_evidence_has_failed",
    },
    "Files": {"read": CHANGES, "write": CHANGES, "deny": CHANGES},
    "Permissions": {
        "profile": CHANGES,
        "access": CHANGES,
        "inherit": f"{EFFECTS}::test_ignore_files_restrict_agents_unless_disabled",
        "files": CHANGES,
        "description": TOLD,
        "why": TOLD,
    },
    "AgentDef": {
        "allowInterpreter": f"{EFFECTS}::test_an_interpreter_gets_the_task_as_an_argument_only_if_allowed",
        "name": HYBRID,
        "runtime": HYBRID,
        "cli": HYBRID,
        "command": TOLD,
        "role": TOLD,
        "task": f"{EFFECTS}::test_an_agent_without_a_step_is_one_by_its_task",
        "channels": CHANNELS,
        "interactive": HYBRID,
        "preset": TOLD,
        "constraints": BUDGETS,
        "cwd": TOLD,
        "workdir": PLACES,
        "additionalPaths": TOLD,
        "env": TOLD,
        "permissions": CHANGES,
        "skills": TOLD,
        "done": IN_TERMINAL,
        "url": HYBRID,
        "headers": WIRE,
        "credentials": CREDENTIALS,
        "timeout": TIMES,
        "streaming": WIRE,
        "mode": MODES,
        "shareContext": SHARED,
    },
    "Verification": {
        "argv": "workflows/test_verification.py::test_a_check_of_ones_own_may_be_a_program",
        "allowOptions": "workflows/test_verification.py::test_a_check_of_ones_own_may_be_a_program",
        "allowInterpreter": "workflows/test_plan.py::test_a_verification_takes_values_by_the_same_rules",
        "type": f"{SEED}::test_missing_output_tokens_fail_the_step",
        "value": f"{SEED}::test_missing_output_tokens_fail_the_step",
        "description": DIAGNOSED,
        "timeout": f"{EFFECTS}::test_a_check_of_ones_own_may_take_only_so_long",
        "diagnosticAgent": DIAGNOSED,
        "diagnosticTimeout": DIAGNOSED,
    },
    "Step": {
        "argv": "workflows/test_shell.py::test_argv_runs_a_program_without_a_shell",
        "allowOptions": "workflows/test_shell.py::test_a_value_that_is_an_option_needs_to_be_allowed",
        "allowInterpreter": "workflows/test_shell_corpus.py::test_interpreters_get_values_only_if_allowed",
        "name": HYBRID,
        "type": HYBRID,
        "use": USED,
        "with": USED,
        "description": f"{EFFECTS}::test_dry_runs_show_step_descriptions",
        "dependsOn": ORDERED,
        "if": ORDERED,
        "timeout": TIMES,
        "retries": RETRIED,
        "retryDelay": LATER,
        "backoff": LATER,
        "onError": f"{EFFECTS}::test_on_error_decides_the_run",
        "onCrash": f"{CRASH}::test_interrupted_commands_follow_their_crash_policy",
        "verification": DIAGNOSED,
        "maxIterations": LOOPED,
        "permissions": PERMITTED,
        "cwd": TREES,
        "workdir": PLACES,
        "env": "workflows/test_injection.py::test_agent_output_reaches_commands_unchanged",
        "set": f"{EFFECTS}::test_values_are_set_for_steps_that_follow",
        "agent": HYBRID,
        "task": HYBRID,
        "allowEmpty": f"{EFFECTS}::test_an_empty_answer_is_a_failure_unless_allowed",
        "command": HYBRID,
        "failOnError": f"{EFFECTS}::test_a_command_may_fail_and_need_not_be_kept",
        "captureOutput": f"{EFFECTS}::test_a_command_may_fail_and_need_not_be_kept",
        "branch": TREES,
        "baseBranch": TREES,
        "path": TREES,
        "createBranch": TREES,
        "url": STREAMED,
        "headers": WIRE,
        "credentials": CREDENTIALS,
        "streaming": STREAMED,
        "mode": PUSHED,
        "shareContext": f"{MEMBERS}::test_steps_of_one_agent_may_share_a_conversation",
        "onReject": f"{DRIVING}::test_approvals_can_be_given_on_any_node",
        "approvers": APPROVED,
        "notByStarter": APPROVED,
        "for": WAITED,
        "until": WAITED,
        "event": f"{DRIVING}::test_event_waits_return_the_signal",
        "workflow": INNER,
        "file": INNER,
        "input": INNER,
        "vars": INNER,
        "over": MAPPED,
        "as": MAPPED,
        "concurrency": MAPPED,
        "step": MAPPED,
    },
    "Preflight": {"command": CHECKED, "failIf": CHECKED, "successIf": CHECKED, "description": CHECKED},
    "Workflow": {
        "name": f"{SERVED}::test_a_workflow_is_an_agent_with_a_skill_for_each_workflow",
        "steps": HYBRID,
        "description": NAMED,
        "onError": f"{EFFECTS}::test_on_error_decides_the_run",
        "preflight": CHECKED,
        "output": SHARED,
    },
    "FilePermissions": {"profiles": PERMITTED, "default": PERMITTED},
    "IdleNudge": {"nudgeAfter": REMINDED, "escalateAfter": REMINDED, "maxNudges": REMINDED},
    "Swarm": {
        "pattern": f"{PATTERNS}::test_documented_examples_expand_as_described",
        "maxConcurrency": f"{EFFECTS}::test_not_more_steps_than_allowed_are_under_way",
        "timeout": f"{EFFECTS}::test_a_run_has_so_much_time",
        "tokenBudget": BUDGETS,
        "costBudget": BUDGETS,
        "channel": CHANNELS,
        "idleNudge": f"{EFFECTS}::test_silent_agents_are_nudged_as_configured",
        "completionGracePeriod": IN_TERMINAL,
    },
    "Barrier": {
        "name": BARRIER,
        "waitFor": BARRIER,
        "timeout": f"{EFFECTS}::test_a_barrier_waits_only_so_long",
        "mode": BARRIER,
    },
    "Coordination": {
        "barriers": BARRIER,
        "votingThreshold": f"{PATTERNS}::test_votes_are_counted_by_the_strategy",
        "consensusStrategy": f"{PATTERNS}::test_votes_are_counted_by_the_strategy",
    },
    "SharedState": {"backend": KEPT, "ttl": KEPT, "namespace": KEPT},
    "ErrorHandling": {
        "strategy": f"{EFFECTS}::test_error_strategies_decide_other_steps",
        "maxRetries": HANDLED,
        "retryDelay": "workflows/test_plan.py::test_how_often_a_step_is_tried_again",
        "backoff": "workflows/test_plan.py::test_how_often_a_step_is_tried_again",
        "notifyChannel": CHANNELS,
        "repairAgent": REPAIRED,
        "repairRetries": REPAIRED,
    },
    "Trajectories": dict.fromkeys(("enabled", "reflectOnBarriers", "reflectOnConverge", "autoDecisions"), CHAPTERS),
    "Path": {"name": PLACES, "path": PLACES, "description": NO_PLACE, "required": NO_PLACE},
    "Input": {
        "type": INPUTS,
        "description": NAMED,
        "default": INPUTS,
        "required": INPUTS,
        "enum": INPUTS,
    },
    "Param": dict.fromkeys(("name", "required", "default", "description"), USED),
    "CustomStep": {"params": USED, "step": USED},
    "Schedule": {
        "cron": SCHEDULED,
        "timezone": "workflows/test_schedules.py::test_the_next_times_of_a_schedule",
        "input": SCHEDULED,
        "vars": "workflows/test_schedules.py::test_each_time_begins_one_run_however_many_nodes_there_are",
    },
    "Hook": {"path": HOOKED, "secret": SIGNED, "signature": TIMED, "input": HOOKED},
    "Triggers": {"schedule": SCHEDULED, "webhook": HOOKED},
    "Document": {
        "version": NAMED,
        "name": NAMED,
        "description": NAMED,
        "swarm": HYBRID,
        "on": HOOKED,
        "inputs": INPUTS,
        "vars": INPUTS,
        "env": f"{EFFECTS}::test_commands_get_the_variables_that_the_file_names",
        "paths": PLACES,
        "permission_profiles": CHANGES,
        "permissions": PERMITTED,
        "agents": HYBRID,
        "steps": USED,
        "workflows": HYBRID,
        "coordination": BARRIER,
        "state": KEPT,
        "errorHandling": HANDLED,
        "trajectories": CHAPTERS,
    },
}
"""Part of a document -> key -> the test that shows what it does."""

PARTS = {
    name: part
    for name, part in (vars(document) | vars(agent_definition)).items()
    if inspect.isclass(part) and issubclass(part, DocumentPart) and part is not DocumentPart
}


@cache
def written_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, functions) and node.name.startswith("test_"))


def test_every_key_has_a_test_and_nothing_else_has_one() -> None:
    expected = {name: {field.encode_name for field in fields(part)} for name, part in PARTS.items()}
    assert {name: set(keys) for name, keys in SHOWN_BY.items()} == expected


@each("shown", sorted({test for keys in SHOWN_BY.values() for test in keys.values()}))
def test_the_tests_are_there(shown: str) -> None:
    file, _, name = shown.partition("::")
    assert name in written_in(TESTS / file)
