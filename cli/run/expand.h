// $(NAME) in the environment, command and arguments of a container, as the kubelet expands it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace oarlock::run {

using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// "$(NAME)" becomes the value, or stays as it is when there is none; "$$" is a "$" that expands nothing.
// k8s.io/kubernetes/third_party/forked/golang/expansion
std::string expand(std::string_view text, const Lookup& lookup);

}  // namespace oarlock::run
