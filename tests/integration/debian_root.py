"""A bare Debian 12 that tests boot, with systemd as its first process."""

import os
import pathlib
import re
import shutil
import subprocess

from cluster import SOURCE

BASE_PACKAGES = "systemd,dbus,ca-certificates,init-system-helpers"
# What boots and does its work ends far sooner; there so that nothing hangs.
BOOT_GIVE_UP_S = 1500


def missing():
    """Why no root can be booted here; "" if one can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("debootstrap", "systemd-nspawn"):
        if not shutil.which(tool):
            return f"needs {tool}"
    return ""


def base():
    """A root that is made once, and never written to afterwards."""
    root = pathlib.Path(os.environ.get("STRATA_DEBIAN_ROOT", SOURCE / "build" / "debian-root"))
    if not (root / "lib/systemd/systemd").exists():
        sources = pathlib.Path("/etc/apt/sources.list.d/debian.sources")
        mirror = re.search(r"^URIs: *(\S+)", sources.read_text(), re.M)[1] if sources.exists() else (
            "http://deb.debian.org/debian")
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", "bookworm", root, mirror],
                       check=True, stdout=subprocess.DEVNULL)
    return root


class Root:
    """The base, with what is written to it in layers of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "root"
        folder.mkdir(parents=True)
        # Not over another overlay: a tmpfs takes the layers.
        self.mounted = []
        self.mount("-t", "tmpfs", "strata-root", folder)
        for name in ("root", "upper", "work"):
            (folder / name).mkdir()
        self.mount("-t", "overlay", "-o", f"lowerdir={base()},upperdir={folder}/upper,workdir={folder}/work",
                   "strata-root", self.path)

    def mount(self, *words):
        subprocess.run(["mount", *words], check=True)
        self.mounted.append(words[-1])

    def close(self):
        for path in reversed(self.mounted):
            subprocess.run(["umount", path], check=False)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def fetch(self, debs, folder="debs", others=()):
        """Copies packages to /`folder`, and has what they depend on, and `others` by name, where apt finds it without a
        network."""
        debs_in = self.path / folder
        debs_in.mkdir(parents=True, exist_ok=True)
        for deb in debs:
            shutil.copy(deb, debs_in)
        for name in ("etc/resolv.conf", "etc/apt/sources.list.d/debian.sources"):
            if pathlib.Path("/", name).exists():
                (self.path / name).unlink(missing_ok=True)
                shutil.copy(pathlib.Path("/", name), self.path / name)
        if (self.path / "etc/apt/sources.list.d/debian.sources").exists():
            (self.path / "etc/apt/sources.list").unlink(missing_ok=True)
        script = ("apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --download-only "
                  + " ".join([*(f"/{folder}/{deb.name}" for deb in debs), *others]))
        subprocess.run(["chroot", self.path, "sh", "-ec", script], check=True, stdout=subprocess.DEVNULL)

    def boot(self, script):
        """Boots, runs the script with systemd as the first process, powers off: what it wrote."""
        (self.path / "probe.sh").write_text("#!/bin/bash\n" + script)
        (self.path / "probe.sh").chmod(0o755)
        (self.path / "result").unlink(missing_ok=True)
        unit = ("[Unit]\nAfter=basic.target\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\n"
                'ExecStart=/bin/bash -c "/probe.sh >/result 2>&1; systemctl poweroff --no-block"\n')
        (self.path / "etc/systemd/system/probe.service").write_text(unit)
        wants = self.path / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        link = wants / "probe.service"
        if not link.is_symlink():
            link.symlink_to("../probe.service")
        done = subprocess.run(
            ["timeout", "-k", "5", str(BOOT_GIVE_UP_S), "systemd-nspawn", "--register=no", "--keep-unit", "--quiet",
             "--private-network", "-b", "-D", self.path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace")
        result = self.path / "result"
        assert result.exists(), done.stdout[-4000:]
        return result.read_text(errors="replace")
