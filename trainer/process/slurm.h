// The lists in Slurm's variables. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oarlock {

// The first of a list of hosts: "gpu[03-05,7],login" -> "gpu03". Nothing where the text is no such list.
std::optional<std::string> first_slurm_host(std::string_view node_list);

// Tasks by node: "4(x2),3" -> {4, 4, 3}. Nothing where the text is no such list.
std::optional<std::vector<int>> slurm_tasks_by_node(std::string_view tasks_per_node);

}  // namespace oarlock
