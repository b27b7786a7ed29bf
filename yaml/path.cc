#include "yaml/path.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace oarlock::yaml {

Place find_place(Node root, std::string_view path) {
  while (!path.empty()) {
    if (path.front() == '.') path.remove_prefix(1);
    std::optional<Node> next;
    size_t end = 0;
    if (path.starts_with('[')) {
      end = std::min(path.find(']'), path.size() - 1) + 1;
      size_t index = 0;
      std::from_chars(path.data() + 1, path.data() + end, index);
      const std::vector<Node> items = root.items();
      if (index < items.size()) next = items[index];
    } else if (root.kind() == Node::Kind::kMap) {
      end = path.size();
      next = root.find(path);
      if (!next) {
        end = std::min(path.find_first_of(".["), path.size());
        next = root.find(path.substr(0, end));
      }
    }
    if (!next || end == 0) return {.mark = root.mark(), .is_whole = false};
    root = *next;
    path.remove_prefix(end);
  }
  return {.mark = root.mark(), .is_whole = true};
}

}  // namespace oarlock::yaml
