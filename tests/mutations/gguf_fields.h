// Where the fields of a GGUF file's header are.
#ifndef STRATA_TESTS_MUTATIONS_GGUF_FIELDS_H_
#define STRATA_TESTS_MUTATIONS_GGUF_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::testing {

struct Field {
  size_t at = 0;
  size_t bytes = 0;
  std::string owner;  // The key or tensor; "" for what is of the whole file.
  std::string what;   // "value", "type", "count", "length", "name", ...
};

// A reader of its own, of files that are right. `file` has to outlive it.
class Fields {
 public:
  explicit Fields(const std::string& file);
  const std::vector<Field>& all() const { return fields_; }
  size_t end() const { return at_; }
  // general.architecture.
  std::string architecture() const;

 private:
  uint64_t Peek(size_t at, size_t bytes) const;
  uint64_t Add(size_t bytes, const std::string& owner, const std::string& what);
  std::string Name();
  void Value(const std::string& key, uint64_t type);
  void Key();
  void Tensor();

  const std::string& file_;
  size_t at_ = 0;
  std::vector<Field> fields_;
};

}  // namespace strata::testing

#endif  // STRATA_TESTS_MUTATIONS_GGUF_FIELDS_H_
