#include "tests/support/model/regroup_model.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/model/regroup_moves.h"

namespace oarlock::test {

RegroupModelResult check_regroup(const RegroupModelOptions& options) {
  using regroup::Move;
  using regroup::World;
  struct Visited {
    size_t parent;
    std::string move;
    bool is_done;
  };
  const regroup::Model model(options);
  RegroupModelResult result;
  std::unordered_map<std::string, size_t> index;
  std::vector<Visited> visited;
  std::vector<std::vector<size_t>> predecessors;  // by moves that are not faults
  std::deque<std::pair<size_t, World>> queue;
  const auto trace = [&](size_t state) {
    std::vector<std::string> lines;
    for (; state != 0; state = visited[state].parent) lines.push_back(visited[state].move);
    std::string text;
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += "\n  " + *line;
    return text;
  };
  const auto add = [&](World world, size_t parent, const std::string& move) -> size_t {
    const auto [entry, is_new] = index.try_emplace(regroup::write_key(world), visited.size());
    if (!is_new) return entry->second;
    visited.push_back({parent, move, model.is_done(world)});
    predecessors.emplace_back();
    if (world.coordinator) {
      result.most_generations =
          std::max(result.most_generations, static_cast<size_t>(world.coordinator->state().generation) + 1);
    }
    result.saw_success = result.saw_success || world.has_succeeded;
    result.saw_recovery = result.saw_recovery || (world.has_succeeded && world.recovered);
    result.saw_fallback = result.saw_fallback || world.has_ended;
    result.saw_shrunk = result.saw_shrunk || (world.has_succeeded && world.smallest_trained > 0 &&
                                              world.smallest_trained < options.nodes * options.ranks_per_node);
    result.saw_grown = result.saw_grown || (world.has_succeeded && world.has_grown);
    if (!world.violation.empty() && result.violation.empty())
      result.violation = world.violation + trace(visited.size() - 1);
    queue.emplace_back(visited.size() - 1, std::move(world));
    return visited.size() - 1;
  };
  add(model.initial(), 0, "");
  while (!queue.empty() && result.violation.empty() && visited.size() < options.max_states) {
    const auto [state, world] = std::move(queue.front());
    queue.pop_front();
    for (Move& move : model.moves(world)) {
      ++result.transitions;
      const size_t next = add(std::move(move.world), state, move.name);
      if (!move.is_fault) predecessors[next].push_back(state);
      if (!result.violation.empty()) break;
    }
  }
  result.states = visited.size();
  result.is_complete = queue.empty();
  if (!result.is_complete || !result.violation.empty()) return result;
  // Progress: without further faults, every state can reach the end of the job.
  std::vector<bool> can_finish(visited.size());
  std::vector<size_t> pending;
  for (size_t state = 0; state < visited.size(); ++state) {
    if (visited[state].is_done) pending.push_back(state);
  }
  while (!pending.empty()) {
    const size_t state = pending.back();
    pending.pop_back();
    if (can_finish[state]) continue;
    can_finish[state] = true;
    pending.insert(pending.end(), predecessors[state].begin(), predecessors[state].end());
  }
  for (size_t state = 0; state < visited.size() && result.violation.empty(); ++state) {
    if (!can_finish[state]) result.violation = "the job can never finish" + trace(state);
  }
  return result;
}

}  // namespace oarlock::test
