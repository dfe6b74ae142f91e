// Progress on stderr: bars that redraw themselves on a terminal, sparse lines elsewhere.
#ifndef STRATA_CLI_PROGRESS_H_
#define STRATA_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace strata::cli {

struct Bar {
  std::string label;
  std::string phase;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;  // 0: not known.
  std::string note;
  std::string unit = {};  // Of what is counted in place of bytes.
};

// One thread at a time.
class Progress {
 public:
  Progress(std::ostream* err, bool terminal) : err_(*err), terminal_(terminal) {}

  // Shows the whole picture, when it is worth it: on a terminal ten times a second at most; in a
  // log when a phase changes, and every five seconds.
  void Show(const std::vector<Bar>& bars);
  // Shows the newest picture for good.
  void Finish();

 private:
  struct Logged {
    std::string phase;
    std::chrono::steady_clock::time_point at;
  };
  void Draw();

  std::ostream& err_;
  const bool terminal_;
  std::vector<Bar> newest_;
  size_t lines_drawn_ = 0;
  std::chrono::steady_clock::time_point drawn_at_;
  std::map<std::string, Logged> logged_;
};

// "worker-a  fetching  [####....]  38 %  1.2 GiB of 3.1 GiB".
std::string FormatBar(const Bar& bar, size_t label_width, bool with_picture);

}  // namespace strata::cli

#endif  // STRATA_CLI_PROGRESS_H_
