"""Hosts of the fault suite: network namespaces with addresses of their own, joined by a bridge in another one.

Every address is resolved by a permanent entry, so that frames from one host to another vanish without a word to either
once that entry names a hardware address that nobody has. That takes neither a packet filter nor modules of the kernel.
"""

import ctypes
import os
import shutil
import subprocess

NET = "10.78.0"
NOBODY = "02:53:00:00:01:00"
SWITCH = 254  # The bridge itself, where clients and relays are.
RELAYS = 100  # Added to a host's number: the address that its relay has on the bridge.
CLONE_NEWNET = 0x40000000


def run(*command, check=True):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.returncode == 0


def ip(*arguments, check=True):
    return run("ip", *arguments, check=check)


def address(number):
    return f"{NET}.{number}"


def hardware(number):
    return f"02:53:00:00:00:{number:02x}"


def what_is_missing():
    """What this machine lacks for the suite, or nothing."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    for program in ("ip", "mount"):
        if not shutil.which(program):
            return f"needs the program {program}"
    name = f"strata-try-{os.getpid()}"
    if not ip("netns", "add", name, check=False):
        return "needs network namespaces, which `ip netns add` cannot make here"
    try:
        for kind in ("bridge", "veth"):
            if not ip("-n", name, "link", "add", f"try-{kind}", "type", kind, check=False):
                return f"needs the kernel's {kind} devices"
    finally:
        ip("netns", "del", name, check=False)
    return ""


class Hosts:
    def __init__(self, numbers):
        """`numbers`: {name: the last number of its address}."""
        self.numbers = dict(numbers)
        self.tag = f"strata{os.getpid()}"
        self.has_rates = True
        switch = self.space("switch")
        try:
            ip("netns", "add", switch)
            ip("-n", switch, "link", "set", "lo", "up")
            ip("-n", switch, "link", "add", "br0", "address", hardware(SWITCH), "type", "bridge")
            ip("-n", switch, "addr", "add", f"{address(SWITCH)}/24", "dev", "br0")
            ip("-n", switch, "link", "set", "br0", "up")
            for name, number in self.numbers.items():
                self._add(name, number)
            for name in self.numbers:
                for other in [*self.numbers, "switch"]:
                    if other != name:
                        self.join(name, other)
                self.join("switch", name)
                self.has_rates = self.has_rates and self._try_rate(name)
        except OSError:
            self.close()
            raise

    def space(self, name):
        return f"{self.tag}-{name}"

    def _add(self, name, number):
        space, switch = self.space(name), self.space("switch")
        ip("netns", "add", space)
        ip("-n", space, "link", "set", "lo", "up")
        ip("-n", space, "link", "add", "eth0", "address", hardware(number), "type", "veth", "peer", "name", f"to-{name}",
           "netns", switch)
        ip("-n", switch, "link", "set", f"to-{name}", "master", "br0", "up")
        ip("-n", space, "addr", "add", f"{address(number)}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", switch, "addr", "add", f"{address(number + RELAYS)}/24", "dev", "br0")

    def command(self, name, command):
        """`command` on the host. The process is the command's own, so that signals reach it."""
        return ["ip", "netns", "exec", self.space(name), *map(str, command)]

    def enter_switch(self):
        """This thread, and those that it starts, are on the bridge afterwards, as what they execute."""
        with open(f"/run/netns/{self.space('switch')}") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    # ---- Frames from one host to another.

    def _resolve(self, name, number, hardware_address):
        device = "br0" if name == "switch" else "eth0"
        ip("-n", self.space(name), "neigh", "replace", address(number), "lladdr", hardware_address, "dev", device, "nud",
           "permanent")

    def _addresses(self, name, other):
        """{number: the hardware that it is on} by which `name` reaches `other`: its own, and its relay's on the bridge."""
        if other == "switch":
            return {SWITCH: hardware(SWITCH)}
        number = self.numbers[other]
        own = {number: hardware(number)}
        return own if name == "switch" else {**own, number + RELAYS: hardware(SWITCH)}

    def cut(self, name, other):
        """Frames from `name` to `other` vanish; those the other way do not."""
        for number in self._addresses(name, other):
            self._resolve(name, number, NOBODY)

    def join(self, name, other):
        for number, its_hardware in self._addresses(name, other).items():
            self._resolve(name, number, its_hardware)

    # ---- A host's cable.

    def unplug(self, name):
        ip("-n", self.space("switch"), "link", "set", f"to-{name}", "down")

    def plug_in(self, name):
        ip("-n", self.space("switch"), "link", "set", f"to-{name}", "up")

    def _ends(self, name):
        return (self.space(name), "eth0"), (self.space("switch"), f"to-{name}")

    def slow_down(self, name, rate):
        """`rate` as tc has it, both ways."""
        for space, device in self._ends(name):
            run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "16kb", "latency",
                "400ms")

    def speed_up(self, name):
        for space, device in self._ends(name):
            run("tc", "-n", space, "qdisc", "del", "dev", device, "root")

    def _try_rate(self, name):
        try:
            self.slow_down(name, "1mbit")
            self.speed_up(name)
        except OSError:
            return False
        return True

    def close(self):
        for name in [*self.numbers, "switch"]:
            ip("netns", "del", self.space(name), check=False)
