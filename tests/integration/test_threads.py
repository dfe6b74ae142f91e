"""A hop wakes one thread: in coordinator and workers no thread of gRPC's waits for sockets. And
workers compute with as many threads as they are told."""

import os
import pathlib

from cluster import RECALL, Cluster, cut, wait_until

# Those of gRPC's callback and synchronous services, as the kernel shows them.
POLLERS = {"nexting_thread", "grpcpp_sync_ser"}


def thread_names(process):
    tasks = pathlib.Path(f"/proc/{process.process.pid}/task")
    return {(task / "comm").read_text().strip() for task in tasks.iterdir()}


def test_no_process_has_a_thread_in_grpc_but_its_loop(tmp_path):
    with Cluster(tmp_path) as c:
        names = c.start_workers(2)
        # Every kind of call: admin, blobs, control streams, links, tokens.
        c.load("recall", RECALL, cuts=cut(names, 8), context=512)
        assert c.generate("recall", text="What is the capital of France?", max_tokens=8)["token_ids"]
        for process in c.processes:
            found = thread_names(process)
            assert any(name.startswith("strata-") for name in found), found
            assert not found & POLLERS, f"{process.name}: {found}"


def niceness_of(process, name):
    """Of its threads with that name."""
    tasks = pathlib.Path(f"/proc/{process.process.pid}/task")
    return [os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks.iterdir()
            if (task / "comm").read_text().strip() == name]


def test_workers_compute_with_as_many_threads_as_they_are_told(tmp_path):
    with Cluster(tmp_path) as c:
        workers = {threads: c.start_worker(f"w{threads}", threads=threads) for threads in (1, 3)}
        c.load("recall", RECALL, cuts=cut(["w1", "w3"], 8), context=512)
        assert c.generate("recall", text="What is the capital of France?", max_tokens=8)["token_ids"]
        for threads, worker in workers.items():
            found = niceness_of(worker, "strata-compute")
            assert len(found) == threads, f"{worker.name}: {found}"
            # Those that load give way further, and are gone.
            assert set(found) == {os.getpriority(os.PRIO_PROCESS, worker.process.pid)}, found
            wait_until(lambda worker=worker: not niceness_of(worker, "strata-load"),
                       f"threads of {worker.name} that loaded are gone")
