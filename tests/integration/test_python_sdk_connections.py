"""The connections of the Python SDK: how it goes on after one is lost, and TLS, on clusters of real
processes."""

import asyncio
import shutil
import threading

import pytest

from cluster import GIVE_UP_S, RECALL, Cluster, wait_until
from python_sdk import cluster, floats, home, strata  # noqa: F401 (fixtures)
from relay import Relay
from test_tls import authority, identity, strangers, with_times  # noqa: F401 (fixtures)

# Without drafts it lasts until the connection is cut.
LONG = dict(max_tokens=480, ignore_eos=True, temperature=0, speculate="off")

# ---- Lost connections


def lose_the_coordinator(strata, folder, ask):
    """An answer of which the first part came from a coordinator that was then killed: what `ask`
    gave, and the same request undisturbed. `ask(address, pieces)` appends what it is given."""
    with Cluster(folder) as c, Relay(hold_after=3000) as relay:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        relay.target = address = c.address
        pieces, outcome = [], []
        asking = threading.Thread(target=lambda: outcome.append(ask(relay.address, pieces)))
        asking.start()
        assert relay.held.wait(GIVE_UP_S)
        wait_until(lambda: pieces, "the first piece has come")
        c.coordinator.kill()
        relay.cut()
        relay.release()
        before = sum(len(p.token_ids) for p in pieces)
        c.start_coordinator(listen=address)
        relay.mend()
        asking.join(GIVE_UP_S)
        (answer,) = outcome
        undisturbed = c.generate("recall", ids=[9] * 40, max_tokens=400, ignore_eos=True,
                                 temperature=1, seed=answer.seed, logprobs=0)
    assert 0 < before < 400 and answer.replays >= 1
    assert [t for p in pieces for t in p.token_ids] == undisturbed["token_ids"]
    assert answer.token_ids == undisturbed["token_ids"] and len(answer.token_ids) == 400
    assert answer.text == undisturbed["text"] == "".join(p.text for p in pieces)
    assert (floats(p.logprob for p in answer.logprobs)
            == floats(p["logprob"] for p in undisturbed["logprobs"]))


# No seed: the one that was drawn is sent with the replay.
MIDWAY = dict(max_tokens=400, ignore_eos=True, temperature=1, logprobs=0)


def test_an_answer_goes_on_after_the_coordinator_was_killed_in_its_midst(strata, tmp_path):
    def ask(address, pieces):
        with strata.Client(address) as client:
            with client.stream("recall", [9] * 40, **MIDWAY) as stream:
                for piece in stream:
                    pieces.append(piece)
                return stream.result

    lose_the_coordinator(strata, tmp_path, ask)


def test_an_asyncio_answer_goes_on_too(strata, tmp_path):
    def ask(address, pieces):
        async def run():
            async with strata.AsyncClient(address) as client:
                stream = client.stream("recall", [9] * 40, **MIDWAY)
                async for piece in stream:
                    pieces.append(piece)
                return stream.result

        return asyncio.run(run())

    lose_the_coordinator(strata, tmp_path, ask)


@pytest.mark.parametrize("resume_timeout, reasons", [
    (0, ["CONNECTION_LOST"]), (1, ["COORDINATOR_UNREACHABLE", "CONNECTION_LOST"])])
def test_a_connection_that_stays_lost_is_an_error_once_resuming_gives_up(strata, cluster, resume_timeout, reasons):
    with Relay(cluster.address) as relay:
        with strata.Client(relay.address, resume_timeout=resume_timeout) as client:
            stream = client.stream("recall", [1, 2, 3], **LONG)
            next(stream)
            relay.cut()
            with pytest.raises(strata.UnavailableError) as caught:
                list(stream)
        assert caught.value.reason in reasons and relay.address in str(caught.value)


# ---- TLS


def test_tls_by_the_folder_that_the_environment_names(strata, identity, tmp_path,  # noqa: F811
                                                      monkeypatch):
    with Cluster(tmp_path / "cluster", tls_dir=identity) as c:
        monkeypatch.setenv("STRATA_TLS_DIR", str(identity))
        monkeypatch.setenv("STRATA_COORDINATOR", c.address)
        with strata.Client() as client:
            assert client.models() == []
        with strata.Client(tls_dir="") as client:  # Plain text.
            with pytest.raises(strata.UnavailableError) as caught:
                client.models()
            assert "tls_dir" in str(caught.value)
    folder = tmp_path / "tls"
    shutil.copytree(identity, folder)
    (folder / "key.pem").unlink()
    with pytest.raises(strata.NotFoundError) as caught:
        strata.Client(tls_dir=folder)
    assert caught.value.reason == "TLS_FILE_MISSING" and "key.pem" in str(caught.value)


def test_each_fault_of_a_certificate_is_told_apart(strata, authority, identity, strangers,  # noqa: F811
                                                   tmp_path):
    def folder(name, **files):
        made = tmp_path / name
        shutil.copytree(identity, made)
        for file, source in files.items():
            shutil.copy(source / f"{file}.pem", made)
        return made

    for made, reason in ((with_times(authority, identity, -20, -10), "TLS_EXPIRED"),
                         (with_times(authority, identity, 10, 20), "TLS_NOT_YET_VALID"),
                         (folder("mismatch", key=strangers), "TLS_KEY_MISMATCH")):
        with pytest.raises(strata.InvalidArgumentError) as caught:
            strata.Client(tls_dir=made)
        assert caught.value.reason == reason and ".pem" in str(caught.value)
    with Cluster(tmp_path / "cluster", tls_dir=identity) as c:
        for made, said in ((strangers, "its certificate is not of the CA in tls_dir"),
                           (folder("unknown", key=strangers, cert=strangers),
                            "it does not accept the certificate in")):
            with strata.Client(c.address, tls_dir=made) as client:
                with pytest.raises(strata.UnavailableError) as caught:
                    client.models()
            assert said in str(caught.value) and "OPERATIONS.md" in str(caught.value) or (
                "its log" in str(caught.value))
