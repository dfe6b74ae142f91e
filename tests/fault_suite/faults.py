"""What happens to nodes: kinds of faults, and their drawing from a seed."""

import contextlib
import dataclasses
import random
import signal
import time

from small_disk import full

SERVING = ("stage 0", "stage 1", "stage 2")


@dataclasses.dataclass
class Fault:
    kind: str
    role: str      # Which node: a stage's, or the spare.
    away_s: float  # How long.
    settle_s: float  # How long all is well before.
    turn: int      # A number for what else is to be chosen.


@contextlib.contextmanager
def unplugged(world, node, fault):
    world.hosts.unplug(node)
    yield
    world.hosts.plug_in(node)


@contextlib.contextmanager
def _cut(world, *pairs):
    for a, b in pairs:
        world.hosts.cut(a, b)
    yield
    for a, b in pairs:
        world.hosts.join(a, b)


def deaf_to_coordinator(world, node, fault):
    return _cut(world, ("coordinator", node))


def mute_to_coordinator(world, node, fault):
    return _cut(world, (node, "coordinator"))


def cut_from_neighbour(world, node, fault):
    a, b = world.link_beside(node, fault.turn)
    return _cut(world, (a, b), (b, a))


def cut_one_way(world, node, fault):
    """Of a link's two ends: what the sender sends, or what the receiver's host, or else its relay, acknowledges."""
    sender, receiver = world.link_beside(node, fault.turn)
    if fault.turn % 4 < 2 or (receiver in world.relays and sender in world.relays):
        return _cut(world, (sender, receiver))
    return _cut(world, ("switch" if receiver in world.relays else receiver, sender))


@contextlib.contextmanager
def slow(world, node, fault):
    world.hosts.slow_down(node, ("128kbit", "512kbit", "2mbit")[fault.turn % 3])
    yield
    world.hosts.speed_up(node)


@contextlib.contextmanager
def killed(world, node, fault):
    world.cluster.workers[node].kill()
    yield
    world.cluster.start_again(node)


@contextlib.contextmanager
def stopped(world, node, fault):
    process = world.cluster.workers[node]
    process.kill(signal.SIGSTOP)
    yield
    process.kill(signal.SIGCONT)


@contextlib.contextmanager
def coordinator_stopped(world, node, fault):
    world.cluster.coordinator.kill(signal.SIGSTOP)
    yield
    world.cluster.coordinator.kill(signal.SIGCONT)


def coordinator_cut(world, node, fault):
    """Clients reach it all the time."""
    return _cut(world, *((a, b) for name in world.cluster.workers for a, b in ((name, node), (node, name))))


@contextlib.contextmanager
def killed_with_full_disk(world, node, fault):
    """It dies, and is started again at once on a disk where nothing more fits."""
    disk = world.cluster.folder / node
    assert disk.is_mount(), "only a disk of the suite's own is filled"
    with full(disk):
        world.begun = time.time()  # Until now nothing was missing.
        world.cluster.workers[node].kill()
        world.cluster.start_again(node)
        yield


@contextlib.contextmanager
def links_stall(world, node, fault):
    world.relays[node].stall()
    yield
    world.relays[node].mend()


@contextlib.contextmanager
def links_end(world, node, fault):
    world.relays[node].cut()
    yield
    world.relays[node].mend()


@contextlib.contextmanager
def links_half_open(world, node, fault):
    world.relays[node].half_close()
    yield


@contextlib.contextmanager
def links_delay(world, node, fault):
    world.relays[node].delay_s = (0.02, 0.1, 0.3)[fault.turn % 3]
    yield
    world.relays[node].delay_s = 0.0


@contextlib.contextmanager
def links_flip_bits(world, node, fault):
    world.relays[node].flip = (0.002, 0.01, 0.05)[fault.turn % 3]
    yield
    world.relays[node].flip = 0.0


@dataclasses.dataclass(frozen=True)
class Kind:
    begin: object   # (world, node, fault) -> what undoes it at its end, as `with` has it.
    says: str
    weight: int
    longest_s: float
    relayed: bool = False  # Only nodes behind a relay.
    neighbours: bool = False  # Only nodes with a stage.


KINDS = {
    "kill": Kind(killed, "SIGKILL, and a start later", 5, 6),
    "stop": Kind(stopped, "SIGSTOP, and SIGCONT later", 5, 9),
    "unplugged": Kind(unplugged, "the node's cable is out", 4, 9),
    "cut": Kind(cut_from_neighbour, "two neighbouring stages lose each other, heartbeats go on", 4, 9, neighbours=True),
    "cut one way": Kind(cut_one_way, "the same in one direction", 3, 9, neighbours=True),
    "mute": Kind(mute_to_coordinator, "nothing from the node reaches the coordinator", 2, 9),
    "deaf": Kind(deaf_to_coordinator, "nothing from the coordinator reaches the node", 2, 9),
    "slow": Kind(slow, "128 to 2,048 kbit/s to and from the node", 2, 6),
    "full disk": Kind(killed_with_full_disk, "SIGKILL, and a start at once with a full disk", 2, 5),
    "stall": Kind(links_stall, "links to the node stay and carry nothing (relay)", 4, 9, relayed=True),
    "ended links": Kind(links_end, "links to the node end, and none can be opened (relay)", 2, 6, relayed=True),
    "half-open": Kind(links_half_open, "links end at the node's side alone (relay)", 3, 1, relayed=True),
    "delay": Kind(links_delay, "20 to 300 ms for each piece of data to the node (relay)", 2, 6, relayed=True),
    "flipped bits": Kind(links_flip_bits, "2 to 50 in 1,000 pieces of data have a wrong bit (relay)", 1, 4, relayed=True),
    "coordinator cut": Kind(coordinator_cut, "the coordinator loses all workers, which have each other", 2, 9),
    "coordinator stop": Kind(coordinator_stopped, "SIGSTOP of the coordinator, and SIGCONT later", 2, 9),
}


def draw(seed, count, kinds=None):
    """The faults of a seed."""
    drawn = random.Random(seed)
    names = sorted(kinds or KINDS)
    weights = [KINDS[name].weight for name in names]
    for _ in range(count):
        name = drawn.choices(names, weights)[0]
        kind = KINDS[name]
        roles = SERVING if kind.neighbours else [*SERVING, *SERVING, "spare"]
        # Short ones, which nothing should move for, are as likely as long ones.
        away_s = drawn.choice([drawn.uniform(0.1, 1.5), drawn.uniform(1.0, kind.longest_s)])
        yield Fault(name, drawn.choice(roles), away_s, drawn.uniform(0.5, 2.0), drawn.randrange(12))
