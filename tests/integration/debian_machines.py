"""Machines with a bare Debian 12 and systemd each, on a bridge, which are typed at through sshd or through a shell."""

import os
import pathlib
import shutil
import subprocess
import time

import debian_root

NET = "10.79.0"
HERE = 254  # The bridge's own address, where tests are.
BOOT_GIVE_UP_S = 180


def missing():
    """Why there can be no such machines here; "" if they can."""
    reason = debian_root.missing()
    for tool in ("ip", "ssh", "ssh-keygen"):
        if not reason and not shutil.which(tool):
            reason = f"needs {tool}"
    return reason


def ip(*arguments, check=True):
    return subprocess.run(["ip", *map(str, arguments)], check=check, capture_output=True)


class Machines:
    """`names` get the addresses 10.79.0.1, .2 and so on; `packages` lie in /debs of each, and what they need is where
    apt finds it without a network. sshd lets root in by a key of the test, and `self.bin` has an `ssh` that uses it."""

    def __init__(self, folder, names, packages):
        self.folder, self.names = folder, list(names)
        self.tag = f"strata{os.getpid()}"
        self.roots, self.booted = {}, []
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
        (self.bin / "ssh").write_text(f"#!/bin/sh\nexec ip netns exec {self.tag}-switch /usr/bin/ssh -F {folder}/config \"$@\"\n")
        (self.bin / "ssh").chmod(0o755)
        (folder / "config").write_text(
            f"Host *\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {folder}/known\n  LogLevel ERROR\n")
        try:
            self.make_bridge()
            first = None
            for name in self.names:
                first = self.make_root(name, packages, first)
            for name in self.names:
                self.boot(name)
            for name in self.names:
                self.await_ssh(name)
        except BaseException:
            self.close()
            raise

    def address(self, name):
        return f"{NET}.{self.names.index(name) + 1}"

    def make_bridge(self):
        switch = f"{self.tag}-switch"
        ip("netns", "add", switch)
        ip("-n", switch, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "addr", "add", f"{NET}.{HERE}/24", "dev", "br0")
        ip("-n", switch, "link", "set", "br0", "up")
        for name in self.names:
            space = f"{self.tag}-{name}"
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"to-{name}", "netns", switch)
            ip("-n", switch, "link", "set", f"to-{name}", "master", "br0", "up")
            ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")

    def make_root(self, name, packages, first):
        """The first one fetches; the others have what it fetched."""
        root = debian_root.Root(self.folder / f"root-{name}")
        self.roots[name] = root
        if first is None:
            root.fetch(packages, others=("openssh-server",))
        else:
            for part in ("debs", "var/cache/apt", "var/lib/apt", "etc/apt"):
                shutil.copytree(first.path / part, root.path / part, dirs_exist_ok=True, symlinks=True)
        (root.path / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (root.path / "usr/sbin/policy-rc.d").chmod(0o755)
        subprocess.run(["chroot", root.path, "sh", "-ec",
                        "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openssh-server; "
                        "ssh-keygen -A"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": "/tmp"})
        (root.path / "usr/sbin/policy-rc.d").unlink()
        (root.path / "etc/hostname").write_text(name + "\n")
        (root.path / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.folder / "key.pub", root.path / "root/.ssh/authorized_keys")
        # Addresses are there from outside; nothing on the machine changes them.
        (root.path / "etc/systemd/system/systemd-networkd-wait-online.service").unlink(missing_ok=True)
        return first or root

    def boot(self, name):
        log = open(self.folder / f"{name}.log", "wb")
        self.booted.append(subprocess.Popen(
            ["systemd-nspawn", "--register=no", "--keep-unit", "--quiet", f"--machine={self.tag}-{name}",
             f"--hostname={name}", f"--network-namespace-path=/run/netns/{self.tag}-{name}", "-b", "-D",
             self.roots[name].path], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))

    def await_ssh(self, name):
        end = time.monotonic() + BOOT_GIVE_UP_S
        while self.run(name, "true", check=False).returncode != 0:
            assert time.monotonic() < end, (self.folder / f"{name}.log").read_bytes()[-3000:].decode(errors="replace")
            time.sleep(0.5)

    def run(self, name, script, check=True, timeout=600):
        """A script of bash on a machine, as root who has logged in."""
        done = subprocess.run([self.bin / "ssh", f"root@{self.address(name)}", "bash -l"], input=script, timeout=timeout,
                              capture_output=True, text=True, errors="replace")
        if check:
            assert done.returncode == 0, f"{name}: {script}\n{done.stdout}\n{done.stderr}"
        return done

    def here(self, *command, **options):
        """A process of this machine, on the bridge."""
        return ["ip", "netns", "exec", f"{self.tag}-switch", *map(str, command)]

    def close(self):
        for machine in self.booted:
            machine.terminate()
        for machine in self.booted:
            try:
                machine.wait(30)
            except subprocess.TimeoutExpired:
                machine.kill()
                machine.wait()
        for root in self.roots.values():
            root.close()
        for name in [*self.names, "switch"]:
            ip("netns", "del", f"{self.tag}-{name}", check=False)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
