// Where an object lives.
#pragma once

#include <functional>
#include <string>

namespace oarlock::kube {

struct ObjectKey {
  std::string name_space;
  std::string name;

  std::string to_string() const { return name_space.empty() ? name : name_space + "/" + name; }
  auto operator<=>(const ObjectKey&) const = default;
};

}  // namespace oarlock::kube

template <>
struct std::hash<oarlock::kube::ObjectKey> {
  size_t operator()(const oarlock::kube::ObjectKey& key) const noexcept {
    const size_t first = std::hash<std::string>()(key.name_space);
    return first ^ (std::hash<std::string>()(key.name) + 0x9e3779b97f4a7c15u + (first << 6) + (first >> 2));
  }
};
