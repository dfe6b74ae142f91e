"""A hop wakes one thread: in coordinator and workers no thread of gRPC's waits for sockets."""

import pathlib

from cluster import RECALL, Cluster, cut

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
