"""Secrets of webhooks: sealed in the store, plain for their caller and for their receiver."""

import base64
import os

import pytest
from msgspec.structs import replace

from accord.client.credentials import KeyManagementError
from accord.client.credentials.sealed import CredentialSealer
from accord.engine.webhook_secrets import NoKey, WebhookSecrets
from accord.model import PushGetRequest, PushListRequest, SendConfiguration, TaskState
from accord.service.host import Host
from accord.storage.commands import webhooks
from tests.engine.conftest import ALICE, Hosting, saying
from tests.engine.doubles import change, rows, sent
from tests.engine.test_push import Recorder
from tests.engine.test_push_configs import FULL, asks

SECRETS = ("a-token", "some-credentials")
HOOK = replace(FULL, token=SECRETS[0], authentication=replace(FULL.authentication, credentials=SECRETS[1]), events=())  # type: ignore[type-var]  # it has some


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


async def stored(host: Host) -> str:
    """What the store has of webhooks."""
    return repr(await rows(host.node.store, "push", "*")) + repr(await rows(host.node.store, "event", "*"))


async def test_the_store_has_no_secret_of_a_webhook(hosting: Hosting) -> None:
    sender = Recorder()
    host = await hosting(asks, sender=sender, seals=CredentialSealer([new_key()]))
    inline = SendConfiguration(task_push_notification_config=replace(HOOK, id="inline"))
    task = await sent(host.default, saying("x", configuration=inline), ALICE)
    made = await host.default.push_set(replace(HOOK, id="set", task_id=task.id), ALICE)
    await host.default.push_set(made, ALICE)  # replaced by the same
    assert not [secret for secret in SECRETS if secret in await stored(host)]
    assert made == replace(HOOK, id="set", task_id=task.id)
    assert await host.default.push_get(PushGetRequest(task_id=task.id, id="set"), ALICE) == made
    page = await host.default.push_list(PushListRequest(task_id=task.id), ALICE)
    assert [config.token for config in page.configs] == [SECRETS[0]] * 2
    await host.default.send(saying("good", task_id=task.id), ALICE)
    for id in ("inline", "set"):
        await sender.told(TaskState.COMPLETED, id)
    assert {delivery.config.token for delivery in sender.got} == {SECRETS[0]}
    assert {delivery.config.authentication for delivery in sender.got} == {HOOK.authentication}


async def test_plain_secrets_are_used_and_sealed_when_keys_change(hosting: Hosting) -> None:
    first, second = new_key(), new_key()
    plain = await hosting(asks, sender=Recorder())
    configuration = SendConfiguration(task_push_notification_config=HOOK)
    task = await sent(plain.default, saying("x", configuration=configuration), ALICE)
    assert SECRETS[0] in await stored(plain)
    store, request = plain.node.store, PushGetRequest(task_id=task.id)
    both = await hosting(asks, sender=Recorder(), seals=CredentialSealer([first]))
    assert (await both.default.push_get(request, ALICE)).token == SECRETS[0]
    for keys, count in (([first], 1), ([first], 0), ([second, first], 1), ([second], 0)):
        assert await WebhookSecrets(CredentialSealer(keys)).reseal(store) == count
        assert not [secret for secret in SECRETS if secret in await stored(plain)]
    last = await hosting(asks, sender=Recorder(), seals=CredentialSealer([second]))
    assert (await last.default.push_get(request, ALICE)).authentication == HOOK.authentication
    with pytest.raises(KeyManagementError, match="Unknown sealing key"):
        await both.default.push_get(request, ALICE)
    with pytest.raises(NoKey):
        await plain.default.push_get(request, ALICE)


async def test_a_sealed_secret_opens_for_its_own_webhook_alone(hosting: Hosting) -> None:
    host = await hosting(asks, sender=Recorder(), seals=CredentialSealer([new_key()]))
    task = await sent(host.default, saying("x"), ALICE)
    for id in ("mine", "theirs"):
        await host.default.push_set(replace(HOOK, id=id, token=id, task_id=task.id), ALICE)
    (theirs,) = [hook.config.token for hook in await kept(host, task.id) if hook.config.id == "theirs"]
    (mine,) = [hook.config.token for hook in await kept(host, task.id) if hook.config.id == "mine"]
    escaped = (str(token).replace("\x01", "\\u0001") for token in (mine, theirs))
    await change(
        host.node.store, "UPDATE push SET config = replace(config, '{}', '{}') WHERE id = 'mine'".format(*escaped)
    )
    with pytest.raises(KeyManagementError, match="to another place"):
        await host.default.push_get(PushGetRequest(task_id=task.id, id="mine"), ALICE)


async def kept(host: Host, task_id: str) -> list[webhooks.Webhook]:
    return await host.node.store.read(webhooks.list_webhooks, ALICE.tenant, task_id)
