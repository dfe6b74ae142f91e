"""What `strata doctor` finds on one machine: each planted fault alone, with its remedy, and nothing where all is well.
test_doctor_on_hosts.py has the network's."""

import json
import os
import shutil
import signal
import subprocess

import pytest

import planted_faults
from cluster import BIN, SLOW, Cluster, wait_until
from planted_faults import ANYWHERE, OF_THE_SYSTEM, WITH_FAKED_TIME, World


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("doctor"))
    yield made
    made.close()


def named(faults):
    return pytest.mark.parametrize("fault", faults, ids=[fault[0].replace(" ", "-") for fault in faults])


def test_nothing_is_found_where_all_is_well(world):
    status, findings, said = world.doctor()
    assert status == 0 and findings == [], said
    out, err, status = world.cluster.run("doctor", check=False)
    assert status == 0 and "nothing found; looked at 3 processes and 6 links" in out, out
    assert "asking 2 nodes how they are" in err and "round 2 of 2" in err


@named(ANYWHERE)
def test_a_planted_fault_is_found_alone_with_its_remedy(world, fault):
    planted_faults.check(world, fault)


@pytest.mark.skipif(planted_faults.FAKETIME is None, reason="needs libfaketime, of Debian's package libfaketime")
@pytest.mark.skipif(SLOW > 1, reason="a sanitizer wants to be loaded first, and so does libfaketime")
@named(WITH_FAKED_TIME)
def test_a_fault_of_time_is_found_alone_with_its_remedy(world, fault):
    planted_faults.check(world, fault)


def can_mount():
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs root, to mount disks")
@named(OF_THE_SYSTEM[:1])
def test_a_fault_of_a_disk_is_found_alone_with_its_remedy(world, fault):
    planted_faults.check(world, fault)


def test_nothing_is_found_once_all_is_mended(world):
    wait_until(lambda: world.state("b") == "ready", "b is there")
    planted_faults.check_healthy(world)


def test_a_worker_whose_address_nobody_reaches_is_told_though_it_never_joined(world):
    # With a certificate for both, so that it starts.
    world.certificate("c", hosts="127.0.0.1")
    port = world.cluster.address.rsplit(":", 1)[1]
    refused = world.start("c", "--advertise", f"127.0.0.1:{port}", on="b", wait=False)
    refused.killed = True
    refused.wait()
    status, findings, said = world.doctor()
    assert status == 1 and [(f["kind"], f["node"]) for f in findings] == [("ADVERTISE_WRONG", "c")], said
    assert "--advertise" in findings[0]["remedy"]


def test_a_service_that_does_not_run_is_looked_at_here(world, tmp_path):
    world.end("b")
    try:
        config = world.config.read_text()
        world.config.write_text(config + f'coordinator = "{world.cluster.address}"\nname = "b"\ndata-dir = "{tmp_path}"\n')
        status, findings, said = world.local()
        assert status == 0 and not findings, said
        for fault, kind in ((planted_faults.files_of_certificates(planted_faults.key_of_another), "KEY_OF_ANOTHER"),
                            (planted_faults.file_of_flags("no-such-flag = 1\n"), "CONFIG_BROKEN"),
                            (planted_faults.file_of_flags('advertise = "203.0.113.9:7071"\n'), "ADVERTISE_NOT_HERE")):
            with fault(world):
                status, findings, said = world.local()
            kinds = [f["kind"] for f in findings]
            if kind == "ADVERTISE_NOT_HERE":  # Nor is that in its certificate.
                kinds.remove("CERTIFICATE_WRONG_NAME")
            assert status == 1 and kinds == [kind], said
    finally:
        world.config.write_text(config)
        world.start("b")


@pytest.mark.skipif(not can_mount(), reason="needs root, to mount disks")
def test_a_disk_that_is_read_only_is_found_by_a_look_at_the_worker(tmp_path):
    config = tmp_path / "worker.toml"
    config.write_text(f'coordinator = "127.0.0.1:1"\nname = "x"\ndata-dir = "{tmp_path}/data"\n')
    (tmp_path / "data").mkdir()
    look = "mount -t tmpfs -o ro strata-test data && strata doctor --config worker.toml"
    done = subprocess.run(["unshare", "-m", "sh", "-c", look], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
    assert done.returncode == 1 and "DISK_READ_ONLY" in done.stdout and "remount,rw" in done.stdout, done


def test_a_coordinator_that_is_down_is_named_by_a_look_at_the_worker(tmp_path):
    config = tmp_path / "worker.toml"
    config.write_text(f'coordinator = "127.0.0.1:1"\nname = "x"\ndata-dir = "{tmp_path}"\n')
    done = subprocess.run([BIN / "strata", "doctor", "--config", config, "--json"], capture_output=True, text=True)
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == 1 and [(f["kind"], f["node"]) for f in findings] == [("PORT_CLOSED", "coordinator")], done


def test_what_cannot_be_looked_at_is_told_from_what_was_found(tmp_path):
    done = subprocess.run([BIN / "strata", "doctor", "--coordinator", "127.0.0.1:1"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    done = subprocess.run([BIN / "strata", "doctor", "--timeout", "soon"], capture_output=True, text=True)
    assert done.returncode == 2 and "--help" in done.stderr
    # A file that is not there is one that does not parse.
    done = subprocess.run([BIN / "strata", "doctor", "--config", tmp_path / "worker.toml"], capture_output=True, text=True)
    assert done.returncode == 1 and "CONFIG_BROKEN" in done.stdout, done


IN_A_ROOT = r"""
set -e
mount -t tmpfs tmpfs /etc/strata 2>/dev/null || { mkdir -p /etc/strata; mount -t tmpfs tmpfs /etc/strata; }
mkdir -p /run/systemd; mount -t tmpfs tmpfs /run/systemd; mkdir -p /run/systemd/system
mkdir -p /etc/systemd/system; mount -t tmpfs tmpfs /etc/systemd/system
mount -t tmpfs tmpfs /var/lib; mkdir -p /var/lib/strata/worker
cp "$UNIT" /etc/systemd/system/strata-worker.service
cp -rL "$TLS" /etc/strata/tls
printf 'coordinator = "%s"\ntls-dir = "%s"\nname = "b"\n' "$COORDINATOR" "$TLS" >/etc/strata/worker.toml
look() { "$BIN/strata" doctor --local --json 2>/dev/null | tr ',' '\n' | sed -n 's/.*"kind":"\([A-Z_]*\)".*/\1/p' | paste -sd' '; }
echo "disabled: $(look)"
mkdir /etc/systemd/system/multi-user.target.wants
ln -s /etc/systemd/system/strata-worker.service /etc/systemd/system/multi-user.target.wants/strata-worker.service
echo "enabled: $(look)"
sed -i 's/^After=network-online.target/After=network.target/' /etc/systemd/system/strata-worker.service
echo "early: $(look)"
sed -i 's/^After=network.target/After=network-online.target/' /etc/systemd/system/strata-worker.service
sed -i 's#^tls-dir.*#tls-dir = "/etc/strata/tls"#' /etc/strata/worker.toml
echo "in memory: $(look)"
"""


@pytest.mark.skipif(not can_mount(), reason="needs root, to mount disks")
def test_what_would_stop_the_next_start_is_found(world):
    unit = planted_faults.pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd/strata-worker.service"
    done = subprocess.run(["unshare", "-m", "sh", "-c", IN_A_ROOT], capture_output=True, text=True,
                          env={**os.environ, "BIN": str(BIN), "UNIT": str(unit), "TLS": str(world.tls / "b"),
                               "COORDINATOR": world.cluster.address})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["disabled: UNIT_NOT_ENABLED", "enabled: ", "early: UNIT_BEFORE_NETWORK",
                                        "in memory: TLS_IN_MEMORY"], done.stdout


def test_a_dead_worker_does_not_hold_it_up(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_worker("w0")
        c.workers["w0"].kill(signal.SIGSTOP)
        out, _, status = c.run("doctor", "--timeout", "4s", "--json", check=False)
        c.workers["w0"].kill(signal.SIGCONT)
        assert status == 1 and [f["kind"] for f in json.loads(out)["findings"]] == ["NODE_SILENT"], out


def test_only_operators_may_ask(world):
    shutil.rmtree(world.folder / "client", ignore_errors=True)
    planted_faults.made(world.folder, "cluster", "certificate", "client", "me")
    done = subprocess.run([BIN / "strata", "doctor", "--coordinator", world.cluster.address, "--tls-dir", world.tls / "me"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "role client" in done.stderr, done
