#include "yaml/object_list.h"

#include <fmt/format.h>

#include <optional>

#include "common/contract.h"

namespace oarlock::yaml {
namespace {

bool is_object_list(const Node& node) {
  const std::optional<Node> kind = node.find("kind");
  return kind && (kind->text() == "List" || kind->text() == fmt::format("{}List", kKind));
}

// Nodes are nested at most limits::kDepth levels.
void append_objects(const Node& node, const std::string& path, std::vector<ListedObject>& out) {
  if (!is_object_list(node)) {
    out.push_back({node, path});
    return;
  }
  const std::optional<Node> list = node.find("items");
  const std::vector<Node> items = list ? list->items() : std::vector<Node>{};
  for (size_t i = 0; i < items.size(); ++i)
    append_objects(items[i], fmt::format("{}{}items[{}]", path, path.empty() ? "" : ".", i), out);
}

}  // namespace

std::vector<ListedObject> list_objects(const std::vector<Node>& documents) {
  std::vector<ListedObject> out;
  for (const Node& document : documents) append_objects(document, "", out);
  return out;
}

}  // namespace oarlock::yaml
