// Namespace and name of an object.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace oarlock::kube {

struct ObjectKey {
  std::string name_space;  // empty for cluster-scoped objects
  std::string name;

  std::string to_string() const { return name_space.empty() ? name : name_space + "/" + name; }
  auto operator<=>(const ObjectKey&) const = default;
};

inline size_t hash_key(std::string_view name_space, std::string_view name) {
  const size_t first = std::hash<std::string_view>()(name_space);
  return first ^ (std::hash<std::string_view>()(name) + 0x9e3779b97f4a7c15u + (first << 6) + (first >> 2));
}

}  // namespace oarlock::kube

template <>
struct std::hash<oarlock::kube::ObjectKey> {
  size_t operator()(const oarlock::kube::ObjectKey& key) const noexcept {
    return oarlock::kube::hash_key(key.name_space, key.name);
  }
};
