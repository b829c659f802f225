"""The benchmark of whole servers runs as it stands: all of them answer, and shares are of the bare application."""

from bench import server
from bench.server import BARE, EVENTS, OURS, SERVERS, SHARED, TARGETS
from bench.setting import Setting


def test_every_server_is_measured_beside_the_bare_one() -> None:
    with Setting(rounds=1, is_quick=True) as setting:
        whole, shares = server.run(setting)
    assert list(whole.rows) == [one.name for one in SERVERS]
    assert list(shares.rows) == [one.name for one in SERVERS if one.name != BARE]
    for row in shares.rows.values():
        assert all(row[column] > 0 for column in SHARED)
    ours = {one.name for one in OURS} - {BARE}
    assert all(whole.rows[name]["streams cut"] == 0 and whole.rows[name][EVENTS] > 0 for name in ours)
    assert {target.row for target in TARGETS} == ours
