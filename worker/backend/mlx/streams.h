// Streams of MLX for threads that come and go, as those that load do. Nothing ends a stream of
// MLX: on a CPU each has a thread, and on a GPU a queue.
#ifndef STRATA_WORKER_BACKEND_MLX_STREAMS_H_
#define STRATA_WORKER_BACKEND_MLX_STREAMS_H_

namespace strata::mlx {

// Until the calling thread ends, what it computes is on a stream that no other thread uses
// meanwhile: one that an ended thread left, else a new one. Without it MLX makes one for each
// thread. A thread that has a stream keeps it. May throw.
void TakeStream();

}  // namespace strata::mlx

#endif  // STRATA_WORKER_BACKEND_MLX_STREAMS_H_
