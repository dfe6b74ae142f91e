"""The Debian packages, in a bare Debian 12 with systemd as its first process."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

import debian_root
import older_version
from cluster import BIN, RECALL, SOURCE, Cluster

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.environ.get("STRATA_PRESET", "release") != "release",
                                                   reason="packages are of release builds")]

PACKAGES = ["strata", "strata-coordinator", "strata-worker", "strata-cli", "libstrata-dev"]
BUILD = BIN.resolve().parent


@pytest.fixture(scope="module")
def packages():
    """`./dev package` makes them; of this build."""
    if "STRATA_PACKAGES" in os.environ:  # A folder where they are already.
        return sorted(pathlib.Path(os.environ["STRATA_PACKAGES"]).glob("*.deb"))
    folder = BUILD / "packages"
    subprocess.run(["ninja", "-C", BUILD, "package_files"], check=True, stdout=subprocess.DEVNULL)
    for old in folder.glob("*.deb"):
        old.unlink()
    subprocess.run(["cpack", "-G", "DEB"], cwd=BUILD, check=True, stdout=subprocess.DEVNULL)
    found = sorted(folder.glob("*.deb"))
    assert sorted(deb.name.split("_")[0] for deb in found) == sorted(PACKAGES)
    return found


def of_services(debs):
    """Without what is for developers only: it brings half of a compiler, and has a test of its own."""
    return [deb for deb in debs if not deb.name.startswith("libstrata-dev")]


def control(deb, field):
    return subprocess.run(["dpkg-deb", "-f", deb, field], capture_output=True, text=True, check=True).stdout.strip()


def files(deb):
    said = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True).stdout
    return {line.split()[5].removeprefix(".") for line in said.splitlines()}


def newer(deb, folder, version="0.1.1"):
    """The same package as another version, with another line in its configuration."""
    tree = folder / deb.name
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
    text = (tree / "DEBIAN/control").read_text()
    old = control(deb, "Version")
    text = text.replace(f"Version: {old}", f"Version: {version}").replace(f"(= {old})", f"(= {version})")
    (tree / "DEBIAN/control").write_text(text)
    for toml in (tree / "etc/strata").glob("*.toml") if (tree / "etc/strata").exists() else ():
        toml.write_text(toml.read_text() + "\n# Of the newer version.\n")
    sums = tree / "DEBIAN/md5sums"
    sums.unlink(missing_ok=True)
    out = folder / deb.name.replace(old, version)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, out], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return out


def test_packages_have_what_they_are_for(packages):
    have = {deb.name.split("_")[0]: (deb, files(deb)) for deb in packages}
    assert {"/usr/bin/strata-coordinator", "/usr/lib/systemd/system/strata-coordinator.service",
            "/etc/strata/coordinator.toml", "/usr/share/strata/models/recall/config.json", "/usr/share/strata/models/recall-tools/config.json",
            "/usr/share/man/man8/strata-coordinator.8.gz"} <= have["strata-coordinator"][1]
    assert {"/usr/bin/strata-worker", "/usr/lib/systemd/system/strata-worker.service",
            "/usr/lib/systemd/system/strata-worker@.service", "/etc/strata/worker.toml"} <= have["strata-worker"][1]
    assert {"/usr/bin/strata", "/usr/share/man/man1/strata.1.gz",
            "/usr/share/bash-completion/completions/strata"} <= have["strata-cli"][1]
    for name in ("strata-coordinator", "strata-worker", "strata-cli"):
        assert "libgrpc++" in control(have[name][0], "Depends"), "shlibdeps"
    assert any(name.endswith("/pkgconfig/strata.pc") for name in have["libstrata-dev"][1])


def test_lintian_finds_no_error(packages):
    if not shutil.which("lintian"):
        pytest.skip("no lintian")
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", *packages],
                          capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0 and not re.search(r"^E:", done.stdout, re.M), done.stdout + done.stderr


def test_a_program_is_built_against_the_library(packages, tmp_path):
    (deb,) = [deb for deb in packages if deb.name.startswith("libstrata-dev")]
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    (pc,) = tmp_path.glob("usr/lib/*/pkgconfig/strata.pc")
    pc.write_text(pc.read_text().replace("prefix=/usr", f"prefix={tmp_path}/usr", 1))
    example = tmp_path / "usr/share/doc/libstrata-dev/examples/ask.cc"
    build = (f"g++ -std=c++20 {example} -o {tmp_path}/ask-pc "
             f"$(PKG_CONFIG_PATH={pc.parent} pkg-config --cflags --libs strata)")
    subprocess.run(["sh", "-ec", build], check=True)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(ask CXX)\nfind_package(Strata 0.1 REQUIRED)\n"
        f"add_executable(ask {example})\ntarget_link_libraries(ask Strata::strata)\n")
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DStrata_DIR={pc.parent.parent}/cmake/Strata"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, stdout=subprocess.DEVNULL)
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start_worker("w0")
        cluster.load("recall", RECALL)
        for program in (tmp_path / "ask-pc", tmp_path / "build/ask"):
            done = subprocess.run([program, cluster.address, "recall", "What is the capital of France?"],
                                  capture_output=True, text=True)
            assert "Paris" in done.stdout, done.stderr


# Words of the scripts that run inside.
INSIDE = r"""
fail=0
is() { if [ "$2" = "$3" ]; then echo "ok: $1"; else fail=1; echo "FAILED: $1: '$2', not '$3'"; fi; }
has() { case "$2" in *"$3"*) echo "ok: $1" ;; *) fail=1; echo "FAILED: $1: '$3' is not in '$2'" ;; esac; }
wait_for() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.5; done; echo "FAILED: never: $*"; fail=1; }
ask() { strata chat recall "What is the capital of France?" --temperature 0 --seed 1 2>&1; }
active() { systemctl is-active "$1"; }
finish() { [ $fail = 0 ] && echo ALL-WELL || { journalctl --no-pager -n 80; systemctl status --no-pager 'strata*'; }; }
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
# Halts a thread as a debugger does, until it is no more: PTRACE_SEIZE, PTRACE_INTERRUPT, and a wait of any thread
# (__WALL) for its stop and for its end.
HALT='$t = shift() + 0; $ptrace = `uname -m` =~ /aarch64/ ? 117 : 101; for $request (0x4206, 0x4207) {
    syscall($ptrace, $request, $t, 0, 0) == 0 or die "FAILED: ptrace: $!" } waitpid($t, 0x40000000) for 1, 2;'
"""

INSTALL = INSIDE + r"""
apt-get install -q -y --no-install-recommends /debs/first/*.deb >/install.log 2>&1 || { cat /install.log; exit; }
wait_for systemctl is-active strata-worker
is "the coordinator runs" "$(active strata-coordinator)" active
is "the worker has joined" "$(active strata-worker)" active
is "both are enabled" "$(systemctl is-enabled strata-coordinator strata-worker | tr '\n' ' ')" "enabled enabled "
has "the status is for people" "$(systemctl show -p StatusText --value strata-worker)" "joined 127.0.0.1:7070"
strata model add /usr/share/strata/models/recall >/dev/null || fail=1
strata model load recall >/dev/null || fail=1
ask >/answer; has "the model answers" "$(cat /answer)" Paris
mkdir -p /root/hidden && cp /usr/share/strata/models/recall/* /root/hidden
refused=$(strata model add /root/hidden --name hidden 2>&1)
has "what the sandbox hides is named" "$refused" /root/hidden
has "and how it is added all the same" "$refused" "model add /root/hidden --upload"
strata model add /root/hidden --name hidden --upload >/dev/null || fail=1
strata model remove hidden >/dev/null
cp -r /usr/share/strata/models/recall /var/lib/strata/models/again
strata model add /var/lib/strata/models/again --name again >/dev/null || fail=1
strata model remove again >/dev/null
strata generate recall "Once" --max-tokens 2 --request-id my-request >/dev/null
sleep 1
has "the journal has fields" "$(journalctl -u strata-coordinator -o cat --output-fields=MESSAGE STRATA_REQUEST_ID=my-request)" my-request
is "who may read the state" "$(stat -c '%U %a' /var/lib/strata/coordinator)" "strata 700"
# The event loop alone, or the whole process, is stopped by a debugger's signal.
mkdir -p /run/systemd/system/strata-coordinator.service.d
printf '[Service]\nWatchdogSec=4s\nTimeoutAbortSec=2s\n' >/run/systemd/system/strata-coordinator.service.d/short.conf
systemctl daemon-reload; systemctl restart strata-coordinator
wait_for ask
halt_loop() {
    loop=$(grep -lx "event loop" /proc/"$1"/task/*/comm | cut -d/ -f5)
    perl -e "$HALT" "$loop" &
}
halt_all() { kill -STOP "$1"; }
restarted() { [ "$(systemctl show -p NRestarts --value strata-coordinator)" -ge "$1" ]; }
n=0
for halt in halt_loop halt_all; do
    $halt "$(systemctl show -p MainPID --value strata-coordinator)"
    n=$((n + 1)); wait_for restarted $n
    wait_for ask
    is "the watchdog restarted it ($halt), and the answer is the same" "$(ask)" "$(cat /answer)"
done
has "the journal says why" "$(journalctl -u strata-coordinator --no-pager)" "Watchdog timeout"
has "and which thread stood still" "$(journalctl -u strata-coordinator --no-pager)" "no sign of life from the event loop"
finish
"""

# Nothing is typed: it loads by itself what was loaded.
REBOOTED = INSIDE + r"""
wait_for ask
is "the same answer after a reboot" "$(ask)" "$(cat /answer)"

# An upgrade under 8 streams. A request that is refused meanwhile is sent again; one that was let in ends as it would.
one() { strata generate recall --token-ids 1,2,3 --max-tokens 400 --ignore-eos --temperature 0 --json; }
ids() { tr -d ' \n' <"$1" | grep -o '"token_ids":\[[^]]*\]'; }
one >/stream.right || fail=1
mkdir -p /streams
for i in 1 2 3 4 5 6 7 8; do
    ( n=0; while [ ! -e /upgraded ] || [ $n -lt 2 ]; do
          if one >/streams/$i.out 2>/streams/$i.err; then
              n=$((n + 1)); echo >>/streams/answered
              [ "$(ids /streams/$i.out)" = "$(ids /stream.right)" ] || echo "stream $i: other ids" >>/streams/failed
          else
              grep -qE "SENT_AGAIN" /streams/$i.err ||
                  cat /streams/$i.err >>/streams/failed
              echo >>/streams/again; sleep 0.2
          fi
      done ) &
done
wait_for test -s /streams/answered
echo '# mine' >>/etc/strata/worker.toml
before=$(systemctl show -p MainPID --value strata-coordinator)
dpkg --force-confold -i /debs/next/*.deb >/upgrade.log 2>&1 || { cat /upgrade.log; fail=1; }
wait_for systemctl is-active strata-worker
wait_for ask
touch /upgraded; wait
is "no stream failed" "$(head -5 /streams/failed 2>/dev/null)" ""
echo "answers: $(wc -l </streams/answered), sent again: $(cat /streams/again 2>/dev/null | wc -l)"
is "another process runs" "$([ "$(systemctl show -p MainPID --value strata-coordinator)" != "$before" ] && echo other)" other
is "settings that nobody touched are replaced" "$(tail -1 /etc/strata/coordinator.toml)" "# Of the newer version."
is "own settings are kept" "$(tail -1 /etc/strata/worker.toml)" "# mine"
is "the same answer after the upgrade" "$(ask)" "$(cat /answer)"

# What is disabled and stopped stays so.
systemctl disable --now strata-worker >/dev/null 2>&1
dpkg --force-confold -i /debs/next/strata-worker_*.deb >/again.log 2>&1
is "disabled and stopped stays so" "$(active strata-worker) $(systemctl is-enabled strata-worker)" "inactive disabled"
systemctl enable --now strata-worker >/dev/null 2>&1

# Removed: settings and state stay.
apt-get remove -q -y strata strata-worker strata-coordinator >/remove.log 2>&1 || { cat /remove.log; fail=1; }
is "both have stopped" "$(active strata-coordinator) $(active strata-worker)" "inactive inactive"
is "settings and state stay" "$(ls /etc/strata/*.toml /var/lib/strata/coordinator/state.db)" "$(printf '/etc/strata/coordinator.toml\n/etc/strata/worker.toml\n/var/lib/strata/coordinator/state.db')"
dpkg --force-confold -i /debs/next/*.deb >/back.log 2>&1 || { cat /back.log; fail=1; }
wait_for ask
is "installed again, it answers as before" "$(ask)" "$(cat /answer)"

# Purged: nothing stays.
apt-get purge -q -y strata strata-worker strata-coordinator strata-cli >/purge.log 2>&1 || { cat /purge.log; fail=1; }
has "nothing complains" "$(grep -i warning /purge.log) none" none
is "nothing is left" "$(find / -xdev \( -path /debs -o -path /proc -o -path /sys -o -path /run/log -o -path /var/log -o -path /var/cache -o -path /root/hidden -o -path /tmp -o -path /streams \) -prune -o -name '*strata*' -print)" ""
is "nor an account" "$(getent passwd strata; getent group strata)" ""
is "nor a process" "$(ls -l /proc/[0-9]*/exe 2>/dev/null | grep /strata)" ""
finish
""".replace("SENT_AGAIN", older_version.SENT_AGAIN)


@pytest.mark.skipif(bool(debian_root.missing()), reason=debian_root.missing() or "-")
@pytest.mark.parametrize("first", ["this", "older"])
def test_a_bare_debian_becomes_a_node_and_is_bare_again(packages, tmp_path, first):
    """Installs, asks, halts the event loop, reboots, upgrades under streams to this version, removes, purges."""
    if first == "older" and not older_version.packages():
        pytest.skip("no STRATA_OLDER_PACKAGES")
    debs = of_services(older_version.packages() if first == "older" else packages)
    upgrades = [newer(deb, tmp_path) for deb in of_services(packages)]
    with debian_root.Root(tmp_path / "debian") as root:
        root.fetch(debs, "debs/first")
        root.fetch(upgrades, "debs/next")
        for script in (INSTALL, REBOOTED):
            said = root.boot(script)
            print(said)
            assert "ALL-WELL" in said and "FAILED" not in said, said


@pytest.mark.skipif(bool(debian_root.missing()), reason=debian_root.missing() or "-")
def test_the_tarball_runs_where_nothing_is_installed(tmp_path):
    if not shutil.which("patchelf"):
        pytest.skip("no patchelf")
    subprocess.run(["ninja", "-C", BUILD, "package_files"], check=True, stdout=subprocess.DEVNULL)
    made = subprocess.run(["/usr/bin/python3", "-B", SOURCE / "deploy/tarball/make_tarball.py", BUILD],
                          capture_output=True, text=True, check=True).stdout.strip()
    with debian_root.Root(tmp_path / "debian") as root:
        subprocess.run(["tar", "-xf", made, "-C", root.path / "opt"], check=True)
        script = """
cd /opt/strata-*; export HOME=/root
bin/strata-coordinator & c=$!
sleep 1
bin/strata-worker --coordinator 127.0.0.1:7070 --name w & w=$!
for _ in $(seq 600); do bin/strata node show w >/dev/null 2>&1 && break; sleep 0.1; done
bin/strata model add share/strata/models/recall && bin/strata model load recall
bin/strata chat recall "What is the capital of France?"
ls share/strata/models/recall-tools
kill $w $c; wait
"""
        # Where libraries are is found by /proc/self/exe.
        alone = 'ip link set lo up; mount -t proc proc "$1/proc"; exec chroot "$1" bash -c "$2"'
        said = subprocess.run(["unshare", "-n", "-m", "sh", "-c", alone, "sh", root.path, script], capture_output=True,
                              text=True)
        assert "Paris" in said.stdout and "config.json" in said.stdout, said.stdout + said.stderr
