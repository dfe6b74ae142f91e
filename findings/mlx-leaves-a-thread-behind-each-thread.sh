#!/usr/bin/env bash
# MLX 0.32.4 makes a stream for each thread that computes, with a thread of its own on a CPU, and
# keeps both when the thread has ended: a program that evaluates on short-lived threads gathers
# threads. `clear_streams`, which is to destroy the thread's streams, ends none of them either.
# A stream of `new_thread_unsafe_stream` that is handed on does not leave any.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check "mlx[cpu]==0.32.4"
"$folder/venv/bin/python" - >"$folder/seen" <<'END'
import re
import threading
import mlx.core as mx

def threads():
    return int(re.search(r"Threads:\s+(\d+)", open("/proc/self/status").read())[1])

def left_by(begin=lambda: None, end=lambda: None):
    def work():
        begin()
        mx.eval(mx.ones(4) + 1)
        end()
    before = threads()
    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    return threads() - before

print("mlx", mx.__version__)
mx.eval(mx.ones(4) + 1)
print("left by 20 threads that evaluated and ended:", left_by())
print("left by 20 that called clear_streams at their end:", left_by(end=mx.clear_streams))
stream = mx.new_thread_unsafe_stream(mx.cpu)
mx.eval(mx.add(mx.ones(4), 1, stream=stream))
print("left by 20 on one stream:", left_by(begin=lambda: mx.set_default_stream(stream)))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
mlx 0.32.4
left by 20 threads that evaluated and ended: 20
left by 20 that called clear_streams at their end: 20
left by 20 on one stream: 0
END
echo "as described"
