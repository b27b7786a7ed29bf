// The startup timeline of an attempt, status.startup: how long after the creation of its pods each stage was complete.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "operator/core/membership.h"

namespace oarlock::control {

// Return when the last pod of the attempt got its node, and when its container started; `observed.now` if that time is
// not known. Absent if a pod has none yet.
std::optional<SystemTime> find_placement_time(const Observed& observed, const Membership& members);
std::optional<SystemTime> find_start_time(const Observed& observed, const Membership& members);

// Returns the timeline that belongs to the status `next`, which follows that of the observed job. A stage that is
// complete does not change any more. Absent if a running attempt has none: an earlier version did not write it, or an
// older CRD drops it, so that its times are not known.
BoxedOptional<api::Startup> account_startup(const Observed& observed, const Membership& members,
                                            const api::Status& next);

struct StartupStage {
  std::string_view name;  // the label of metrics
  std::optional<int64_t> api::Startup::* done;
};

// In order. A stage takes the time since the one before was complete.
inline constexpr std::array<StartupStage, 4> kStartupStages = {{{"scheduling", &api::Startup::scheduled},
                                                                {"pulling", &api::Startup::started},
                                                                {"starting", &api::Startup::first_report},
                                                                {"first_step", &api::Startup::first_step}}};

}  // namespace oarlock::control
