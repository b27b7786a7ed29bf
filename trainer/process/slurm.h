// Parsers for the lists in Slurm's environment variables. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oarlock {

// The first host of a host list: "gpu[03-05,7],login" -> "gpu03". nullopt if the text is not a host list.
std::optional<std::string> first_slurm_host(std::string_view node_list);

// Tasks per node: "4(x2),3" -> {4, 4, 3}. nullopt if the text is not such a list.
std::optional<std::vector<int>> slurm_tasks_by_node(std::string_view tasks_per_node);

}  // namespace oarlock
