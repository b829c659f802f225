"""Cancelling the workflows of tasks that have ended here.

A task that is cancelled, or too late, has ended at once; that its workflow is to end as well is noted in the same
transaction and done from here, by whichever node comes first. It decides nothing about the task.
"""

import asyncio
import logging

from temporalio.client import WorkflowExecutionStatus

from accord.agents.temporal.content import ANSWER
from accord.agents.temporal.service import NO_ANSWER, Service, may_pass
from accord.storage.commands import remotes
from accord.storage.commands.remotes import Cancel
from accord.storage.store import Store, StoreUnavailable

POLL_SECONDS = 0.3
"""How late a cancel may be passed on; one look is for all tasks."""

AT_ONCE = 16

MOST = 8
"""How often it is tried, each time after twice the time: for an hour, if the grace is half a minute."""

REASON = "The A2A task has ended"

log = logging.getLogger("accord.temporal")


class Cancels:
    """Passes cancels on to one Temporal."""

    def __init__(self, store: Store, service: Service, grace_seconds: float) -> None:
        """Cancel workflows of `service`, and terminate what has not ended after a grace."""
        self._store = store
        self._service = service
        self._grace_ms = round(grace_seconds * 1000)

    async def keep(self) -> None:
        """Pass on what there is, for ever."""
        while True:
            try:
                while found := await self._store.do(remotes.take_cancels, self._service.name, AT_ONCE, self._grace_ms):
                    await asyncio.gather(*(self._pass_on(cancel) for cancel in found))
            except StoreUnavailable as error:
                log.warning("store unavailable", extra={"reason": str(error)})
            except Exception:  # the node must go on; what went wrong is in the log
                log.exception("cancels were not passed on", extra={"service": self._service.name})
            await asyncio.sleep(POLL_SECONDS)

    async def _pass_on(self, cancel: Cancel) -> None:
        """Do it; what is not done is due again after the grace."""
        about = {"task_id": cancel.link.task_id, "service": self._service.name}
        try:
            is_done = await self._cancelled(cancel.link.task_id)
        except NO_ANSWER as error:  # a workflow that is not there may be on its way
            log.warning("cancel was not passed on", extra=about | {"reason": str(error)})
            is_done = cancel.cancels + 1 >= MOST or (cancel.cancels > 0 and not may_pass(error))
        if is_done:
            await self._store.do(remotes.told, cancel.tenant, cancel.link.task_id)

    async def _cancelled(self, workflow_id: str) -> bool:
        """Cancel a workflow, or end one that was asked to and has not; true if nothing is left to do."""
        handle = (await self._service.client()).get_workflow_handle(workflow_id)
        seen = await handle.describe(rpc_timeout=ANSWER)
        if seen.status is not WorkflowExecutionStatus.RUNNING:
            return True
        about = {"task_id": workflow_id, "service": self._service.name}
        if not seen.raw_description.workflow_extended_info.cancel_requested:
            await handle.cancel(reason=REASON, rpc_timeout=ANSWER)
            log.info("workflow cancelled", extra=about)
            return False
        await handle.terminate(reason=REASON, rpc_timeout=ANSWER)
        log.warning("workflow terminated: it did not end when it was cancelled", extra=about)
        return True
