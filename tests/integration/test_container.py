"""The container recipe, built by buildah in a bare Debian 12 and asked. Its base is that Debian, by the name of the recipe's:
no registry is asked."""

import shutil
import subprocess

import pytest

import debian_root
from cluster import SOURCE
from test_packages import packages  # noqa: F401: a fixture

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(debian_root.missing()), reason=debian_root.missing() or "-")]

ENVIRONMENT = r"""
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot TMPDIR=/var/tmp
"""

BUILD = r"""
mkdir -p /etc/containers
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers"\ngraphroot = "/var/lib/containers/storage"\n' >/etc/containers/storage.conf
base=$(buildah from scratch)
buildah add -q "$base" /base /
buildah commit -q --rm "$base" "$(sed -n 's/^FROM //p' /recipe/Containerfile)"
rm -rf /base
buildah build --pull-never -f /recipe/Containerfile -t strata /recipe/packages
"""

RUN = r"""
strata=$(buildah from --pull-never strata)
buildah run "$strata" sh -ec '
    [ "$(id -un)" = strata ]
    strata-coordinator >/tmp/coordinator.log 2>&1 & coordinator=$!
    STATE_DIRECTORY=/tmp strata-worker --coordinator 127.0.0.1:7070 --memory 1GiB >/tmp/worker.log 2>&1 & worker=$!
    for _ in $(seq 600); do strata node list 2>/dev/null | grep -q ready && break; sleep 0.5; done
    strata model add /usr/share/strata/models/recall
    strata model load recall
    strata chat recall "What is the capital of France?"
    ls /var/lib/strata/data/state.db
    kill -TERM $worker $coordinator
    wait $worker $coordinator
    echo THE-END'
"""


def test_a_container_of_the_packages_answers(packages, tmp_path):  # noqa: F811
    with debian_root.Root(tmp_path / "debian") as root:
        root.fetch([], others=["buildah"])
        subprocess.run(["cp", "-a", debian_root.base(), root.path / "base"], check=True)
        (root.path / "recipe/packages").mkdir(parents=True)
        shutil.copy(SOURCE / "deploy/container/Containerfile", root.path / "recipe")
        for deb in packages:
            shutil.copy(deb, root.path / "recipe/packages")
        for name, script in (("build", BUILD), ("run", RUN)):
            (root.path / f"{name}.sh").write_text(ENVIRONMENT + script)
        inside = """
for folder in proc sys dev; do mount --rbind /$folder "$1/$folder"; done
chroot "$1" apt-get install -q -y --no-install-recommends buildah >/dev/null
chroot "$1" bash -e /build.sh
# It has the network of who runs it: one of its own, so that nobody else is on its ports.
unshare -n sh -ec 'ip link set lo up; exec chroot "$1" bash -e /run.sh' sh "$1"
"""
        done = subprocess.run(["unshare", "-m", "sh", "-ec", inside, "sh", root.path],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0 and "Paris" in done.stdout and "THE-END" in done.stdout, done.stdout
