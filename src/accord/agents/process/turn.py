"""One turn of a task with a command.

A turn may take several executions and several processes. A question ends the execution, and the answer starts another.
That execution continues with the process if it is parked here, or with its session if it has one. The task's notes
contain the state that this needs. Only a parked process outlives an execution.
"""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct, structs

from accord.agents import subprocesses
from accord.agents.messages import answer_id, prompt
from accord.agents.process import workspace
from accord.agents.process.formats import (
    CommandActivity,
    CommandFailure,
    Observation,
    ObservedQuestion,
    ResultValue,
    SessionName,
    TextOutput,
    UsageReport,
)
from accord.agents.process.options import (
    CommandCall,
    CommandMode,
    Preset,
    ProcessOptions,
    PromptInput,
    build_argv,
    is_session,
)
from accord.agents.process.output import text_tail
from accord.agents.process.running_commands import EXPIRED, ParkedCommands, RunningCommand
from accord.agents.process.workspace import Workspace
from accord.agents.safe_regexes import compile_regex
from accord.agents.turns import external_context
from accord.api import APPROVAL, YES, Context, Crash, Failed, Suspended

CONTINUE = "You were interrupted. Go on where you stopped, and do not repeat what is done."
GRANTED = "You are now allowed to do this: {grants}. Go on."
REFUSED = "You are not allowed to do this: {grants}. {comment}Go on without it, or say why that is impossible."
ANSWERED = "You asked:\n{question}\n\nThe answer is: {answer}"


NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected", "false", "0"})


class CommandQuestion(Struct, frozen=True):
    """A question of a command; with `grants`, a request for permissions.

    `waits` is true if it waits in its terminal.
    """

    text: str
    grants: tuple[str, ...] = ()
    waits: bool = False


class CommandReply(Struct, frozen=True):
    """An answer, with the decision if the question was a request for permissions."""

    question: CommandQuestion
    text: str
    is_granted: bool = False

    @property
    def grants(self) -> tuple[str, ...]:
        """Permissions granted by this answer."""
        return self.question.grants if self.is_granted else ()

    def text_for_command(self) -> str:
        """Return the answer as a prompt for a command that is started again."""
        if not self.question.grants:
            return ANSWERED.format(question=self.question.text, answer=self.text)
        comment = f"{self.text}\n" if self.text else ""
        wording = GRANTED if self.is_granted else REFUSED
        return wording.format(grants=", ".join(self.question.grants), comment=comment)


def parse_reply(question: CommandQuestion, text: str, data: Any) -> CommandReply:
    """Return an answer parsed from data, as consoles send a decision, or from text."""
    if isinstance(data, dict) and "approved" in data:
        is_granted = data["approved"] is True
        comment = str(data.get("comment") or "")
        return CommandReply(question, comment if question.grants else "yes" if is_granted else "no", is_granted)
    if not question.grants:
        return CommandReply(question, text)
    word, _, remainder = text.strip().partition(" ")
    word = word.strip(".,!").lower()
    return CommandReply(question, remainder.strip() if word in YES | NO else text.strip(), word in YES)


SESSION = "process/session"
"""Key of the command's own session id."""

MAX_ARGUMENT = 120_000
"""Maximum size of one argument in bytes; Linux accepts 128 KiB."""

TAIL = 1500
"""Maximum length of the command's last output in an error for callers, in characters."""


class TurnResources(Struct, frozen=True, kw_only=True):
    """Resources that an agent shares with its turns; `secrets` are never shown to callers."""

    name: str
    options: ProcessOptions
    preset: Preset
    mode: CommandMode
    crash: Crash
    env: Mapping[str, str]
    secrets: frozenset[str]
    parked: ParkedCommands


class CommandTurn:
    """One execution of a turn."""

    def __init__(self, ctx: Context, resources: TurnResources, place: Workspace) -> None:
        self._ctx = ctx
        self._resources = resources
        self._place = place
        self._turn = answer_id(ctx)
        self._replies: list[CommandReply] = []
        self._asked: ObservedQuestion | None = None
        self._failure: str | None = None
        self._process: subprocesses.Subprocess | None = None
        self._session_name: str | None = None
        self._has_begun = False
        self.fell_silent = False

    async def run(self) -> None:
        """Run the command until the turn is done; suspends the task while a question is open."""
        while (question := self._question(len(self._replies) + 1)) is not None:
            self._replies.append(await self._answer(question))
        try:
            live = await self._resume()
            while (observed := await self._observe(live)) is not None:
                reply = await self._request_answer(observed, live)
                self._replies.append(reply)
                self._has_begun = False
                live = await self._continue(live, reply)
        finally:
            await self._stop_process()
        self.fell_silent = live.fell_silent
        await self._ctx.finish(self._artifact)

    # --- questions ------------------------------------------------------------------------------------------------

    def _question(self, number: int) -> CommandQuestion | None:
        """Return a question that was asked in this turn, possibly in an earlier execution, or None."""
        stored = self._ctx.kept(f"{self._turn}/asked-{number}")
        return None if stored is None else msgspec.json.decode(stored, type=CommandQuestion)

    async def _request_answer(self, observed: ObservedQuestion, live: RunningCommand) -> CommandReply:
        """Ask the caller; a process that waits in its terminal is parked meanwhile."""
        ctx, resources, number = self._ctx, self._resources, len(self._replies) + 1
        question = CommandQuestion(observed.question, observed.grants, live.process.terminal is not None)
        await ctx.finish(self._artifact)
        await ctx.keep(f"{self._turn}/asked-{number}", msgspec.json.encode(question).decode())
        if not question.waits:
            return await self._answer(question)
        key = (ctx.tenant, ctx.task_id)
        expires = None if resources.mode.resume else self._key(number)  # a session can be resumed at any time
        resources.parked.park(key, live, resources.options.answer_timeout, expires)
        self._process = None
        try:
            return await self._answer(question)
        except Suspended:
            raise  # the process is parked for this case
        except BaseException:
            self._process = None if resources.parked.unpark(key) is None else live.process
            raise

    async def _answer(self, question: CommandQuestion) -> CommandReply:
        key = self._key(len(self._replies) + 1)
        reply = await self._ctx.ask(question.text, key=key, metadata={APPROVAL: True} if question.grants else None)
        if self._ctx.handed_in(key) == EXPIRED:
            raise Failed("The question was not answered in time")
        return parse_reply(question, reply.text, reply.data)

    def _key(self, number: int) -> str:
        return f"{self._turn}/answer-{number}"

    # --- processes ------------------------------------------------------------------------------------------------

    async def _resume(self) -> RunningCommand:
        if self._replies and (parked_command := self._resume_parked()) is not None:
            return await self._type(parked_command, self._replies[-1])
        session = await self._session()
        if session is not None and self._ctx.kept(self._begun) is not None:
            return await self._start(CONTINUE, session)
        if self._replies:
            return await self._restart(self._replies[-1])
        return await self._start(await self._prompt(), session)

    async def _continue(self, live: RunningCommand, reply: CommandReply) -> RunningCommand:
        """Pass an answer to the same process, or to a new process that resumes its session."""
        if reply.question.waits and self._resume_parked() is live:
            return await self._type(live, reply)
        return await self._restart(reply)

    async def _type(self, live: RunningCommand, reply: CommandReply) -> RunningCommand:
        await live.answer(reply.text)
        return live

    def _resume_parked(self) -> RunningCommand | None:
        """Take over the process that was parked for this task."""
        live = self._resources.parked.unpark((self._ctx.tenant, self._ctx.task_id))
        self._process = None if live is None else live.process
        return live

    async def _restart(self, reply: CommandReply) -> RunningCommand:
        """Start a process for an answer, because the process that asked has ended."""
        session = await self._session()
        if session is not None:
            return await self._start(reply.text_for_command(), session)
        if reply.question.waits and self._resources.crash is Crash.FAIL:
            raise Failed("The process that asked has ended")
        return await self._start(await self._prompt(), None)

    async def _start_over(self) -> RunningCommand:
        """Start a new session, because the old one is lost."""
        await self._ctx.status("The command has lost the earlier session: a new one starts")
        await self._keep_session("")
        return await self._start(await self._prompt(), None)

    async def _session(self) -> str | None:
        if self._session_name is None:
            self._session_name = (await self._ctx.recall_context(SESSION) or "") if self._resources.mode.resume else ""
        return self._session_name or None

    async def _keep_session(self, name: str) -> None:
        if name != await self._session():
            await self._ctx.remember_context(SESSION, name)
            self._session_name = name

    async def _prompt(self) -> str:
        """Return the prompt: the caller's message with its files, and the questions and answers since."""
        options, parts = self._resources.options, self._ctx.message.parts
        raw = [part for part in parts if part.raw is not None]
        written = await asyncio.to_thread(
            workspace.write_inbox, self._place.boxes, raw, options.max_files, options.max_file_bytes
        )
        texts = [prompt(part for part in parts if part.raw is None)]
        if written:
            texts.append("Files that came with this:\n" + "\n".join(f"- {path}" for path in written))
        texts += [reply.text_for_command() for reply in self._replies]
        if options.preset is not None:
            texts.append(f"Put files for the caller into {self._place.boxes.outbox}")
        return "\n\n".join(text for text in texts if text)

    async def _start(self, prompt_text: str, session: str | None) -> RunningCommand:
        """Start a process in the given session, or in a new one."""
        await self._stop_process()
        resources, mode, resumes = self._resources, self._resources.mode, session is not None
        if session is None and mode.begins:
            session = str(uuid4())
            await self._keep_session(session)
        prompt_text = prompt_text.replace("\0", "")
        if mode.prompt_input is PromptInput.ARGUMENT and len(prompt_text.encode(errors="replace")) > MAX_ARGUMENT:
            raise Failed(f"The prompt is too long for {resources.name}, which takes it as an argument")
        grants = tuple(dict.fromkeys(grant for reply in self._replies for grant in reply.grants))
        call = CommandCall(prompt=prompt_text, session=session, resumes=resumes, grants=grants)
        command = subprocesses.SubprocessCommand(
            argv=build_argv(resources.preset.binary, mode, resources.options.args, call),
            directory=self._place.directory,
            env=self._environment(),
            grace=resources.options.grace,
            has_terminal=resources.options.mode == "pty",
        )
        try:
            process = await subprocesses.start(command)
        except subprocesses.SubprocessNotStarted as error:
            raise Failed(f"{resources.name} could not be started: {error}") from error
        self._process = process
        live = RunningCommand(process, resources.preset, mode, resources.options, is_resumed=resumes)
        await live.send_prompt(prompt_text, mode.prompt_input)
        return live

    async def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    def _environment(self) -> dict[str, str]:
        return {
            **self._resources.env,
            **self._place.env,
            "TASK_ID": self._ctx.task_id,
            "CONTEXT_ID": external_context(self._ctx),
            "TASK_INBOX": str(self._place.boxes.inbox),
            "TASK_OUTBOX": str(self._place.boxes.outbox),
        }

    # --- observations ---------------------------------------------------------------------------------------------

    async def _observe(self, live: RunningCommand) -> ObservedQuestion | None:
        """Handle observations until the command ends or asks. A command that lost its session is started without it."""
        self._asked = self._failure = None
        async with aclosing(live.observations()) as listening:
            async for observation in listening:
                await self._handle(observation)
        waits = self._asked is not None and live.process.terminal is not None
        if not waits and not live.is_done and not await self._has_succeeded(live):
            return await self._observe(await self._start_over())
        return self._asked

    async def _has_succeeded(self, live: RunningCommand) -> bool:
        """Whether a command succeeded; false if its session is lost. Raises Failed for any other failure."""
        status = 0
        if self._failure is None:
            try:
                async with asyncio.timeout(self._resources.options.idle_timeout):
                    status = await live.process.ended()
            except TimeoutError:
                self._failure = "It closed its output and did not end"
        if self._failure is None and status == 0:
            return True
        resources, output = self._resources, "\n".join(filter(None, (live.noise, self._failure)))
        is_lost = resources.preset.lost is not None and compile_regex(resources.preset.lost).search(output)
        if live.is_resumed and is_lost and (live.is_brief or not self._has_begun):
            return False
        outcome = f"{resources.name} {_exit_text(status)}" if self._failure is None else f"{resources.name} failed"
        reason = text_tail(self._failure or live.noise, TAIL)
        for secret in resources.secrets:
            reason = reason.replace(secret, "***")
        raise Failed(f"{outcome}: {reason}" if reason else outcome)

    @property
    def _artifact(self) -> str:
        """Id of the answer's artifact.

        Each question starts a new artifact, so that earlier output remains unchanged.
        """
        return self._turn if not self._replies else f"{self._turn}-{len(self._replies) + 1}"

    @property
    def _begun(self) -> str:
        """Key of the note that the latest prompt has reached the command."""
        return f"{self._turn}/begun-{len(self._replies)}"

    async def _note_begun(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            if self._resources.mode.resume:
                await self._ctx.keep(self._begun, "yes")

    async def _handle(self, observation: Observation) -> None:
        ctx = self._ctx
        match observation:
            case TextOutput():
                await self._note_begun()
                await ctx.artifact(observation.text, id=self._artifact, append=True, last_chunk=False)
            case CommandActivity():
                await self._note_begun()
                if observation.text.strip():
                    await ctx.status(observation.text)
            case SessionName() if is_session(observation.id) and self._resources.mode.resume:
                await self._keep_session(observation.id)
            case UsageReport():
                await ctx.usage(**structs.asdict(observation))
            case ObservedQuestion():
                self._asked = observation
            case ResultValue():
                await ctx.artifact(observation.data, id=f"{self._artifact}-data")
            case CommandFailure():
                self._failure = observation.text


def _exit_text(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
