#include "trainer/optim/parameter_groups.h"

#include <fmt/format.h>

#include <map>
#include <regex>

namespace oarlock {
namespace {

class Matcher {
 public:
  explicit Matcher(const ParameterGroupConfig& config) : preset_(config.preset), pattern_(config.match) {}

  bool fits(const NamedTensor& parameter) const {
    if (preset_ == GroupPreset::kNoDecay) return parameter.tensor.dim() <= 1;
    return std::regex_search(parameter.name, pattern_);
  }

 private:
  GroupPreset preset_;
  std::regex pattern_;
};

tl::unexpected<Error> nothing_left(size_t index, const ParameterGroupConfig& config,
                                   const std::vector<NamedTensor>& parameters) {
  const Matcher matcher(config);
  const bool taken = std::any_of(parameters.begin(), parameters.end(), [&](const NamedTensor& parameter) {
    return parameter.tensor.requires_grad() && matcher.fits(parameter);
  });
  const std::string what = config.preset == GroupPreset::kNoDecay ? "the preset no_decay" : "'" + config.match + "'";
  return fail(ExitCode::kConfig,
              taken ? fmt::format("optimizer.groups[{}]: every parameter that {} matches belongs to a group before it; "
                                  "put the narrower group first",
                                  index, what)
                    : fmt::format("optimizer.groups[{}]: {} matches no trainable parameter of the model; the names "
                                  "begin with '{}'",
                                  index, what, parameters.empty() ? "" : parameters.front().name));
}

void add_by_type(double lr, double weight_decay, const std::vector<NamedTensor>& members,
                 std::vector<ParameterGroup>& out) {
  std::map<std::pair<at::ScalarType, at::DeviceType>, std::vector<NamedTensor>> by_type;
  for (const NamedTensor& member : members) {
    by_type[{member.tensor.scalar_type(), member.tensor.device().type()}].push_back(member);
  }
  for (auto& [type, parameters] : by_type) out.push_back({lr, weight_decay, std::move(parameters)});
}

}  // namespace

Result<std::vector<ParameterGroup>> group_parameters(const OptimizerConfig& config,
                                                     const std::vector<NamedTensor>& parameters) {
  const size_t rest = config.groups.size();
  const std::vector<Matcher> matchers(config.groups.begin(), config.groups.end());
  std::vector<std::vector<NamedTensor>> members(rest + 1);
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    size_t index = 0;
    while (index < rest && !matchers[index].fits(parameter)) ++index;
    members[index].push_back(parameter);
  }
  const double weight_decay = config.weight_decay.value_or(default_weight_decay(config.kind));
  std::vector<ParameterGroup> out;
  for (size_t i = 0; i < rest; ++i) {
    const ParameterGroupConfig& group = config.groups[i];
    if (members[i].empty()) return nothing_left(i, group, parameters);
    const double own_decay = group.preset == GroupPreset::kNoDecay ? 0 : weight_decay;
    add_by_type(group.lr.value_or(config.lr) * group.lr_scale, group.weight_decay.value_or(own_decay), members[i], out);
  }
  add_by_type(config.lr, weight_decay, members[rest], out);
  return out;
}

}  // namespace oarlock
