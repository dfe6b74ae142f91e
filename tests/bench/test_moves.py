"""What the benchmark of moves reads in a coordinator's log."""

from moves import switches

LOG = """\
2026-11-29T20:06:12.060 I the model is ready model=m deployment=1 epoch=7
2026-11-29T20:06:12.069 I the model's requests go on on other nodes model=m deployment=1 epoch=9 requests=6
2026-11-29T20:06:12.069 I fence model=m deployment=1 epoch=9
2026-11-29T20:06:12.087 I the model is ready model=m deployment=1 epoch=9
2026-11-29T20:06:13.215 I the model's requests go on on other nodes model=m deployment=1 epoch=11 requests=6
2026-11-29T20:06:13.227 I the model is ready model=m deployment=1 epoch=11
2026-11-29T20:06:14.468 I the model's requests go on on other nodes model=m deployment=1 epoch=13 requests=6
"""


def test_each_switch_lasts_until_its_stages_are_linked():
    assert [round((linked - began) * 1e3) for began, linked in switches(LOG)] == [18, 12]
