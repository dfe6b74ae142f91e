"""./dev quickstart in a bare Debian 12: what it installs is all that a build and a first answer need."""

import shutil
import subprocess

import pytest

import debian_root
from cluster import BIN, SOURCE

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(debian_root.missing()), reason=debian_root.missing() or "-")]

# Tries CMake's own programs, which it builds without -C. What is to be built was built before.
NINJA = """#!/bin/sh
[ "$1" = -C ] || exec /usr/bin/ninja "$@"
mkdir -p "$2/bin"
cp /built/* "$2/bin"
echo "no work to do"
"""


def test_quickstart_installs_configures_and_answers(tmp_path):
    """All but compiling."""
    with debian_root.Root(tmp_path / "debian") as root:
        root.fetch([], others=["make"])  # apt's lists.
        for folder in ("strata", "built"):
            (root.path / folder).mkdir()
        tar = 'tar -C "$1" --exclude="./build*" --exclude=./.git -c . | tar -C "$2" -x'
        subprocess.run(["sh", "-ec", tar, "sh", SOURCE, root.path / "strata"], check=True)
        for name in ("strata", "strata-coordinator", "strata-worker"):
            shutil.copy(BIN / name, root.path / "built")
        stand_in = root.path / "usr/local/bin/ninja"
        stand_in.write_text(NINJA)
        stand_in.chmod(0o755)
        inside = """
for folder in proc dev; do mount --rbind /$folder "$1/$folder"; done
exec chroot "$1" env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /strata/dev quickstart
"""
        done = subprocess.run(["unshare", "-m", "sh", "-ec", inside, "sh", root.path], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = done.stdout
        print(said)
        assert done.returncode == 0 and "configuring build" in said and "It all worked" in said, said
        assert "Paris" in said and "489" in said and "Lisbon" in said
        assert (root.path / "strata/build/CMakeCache.txt").exists()
