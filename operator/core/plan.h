// What policies make their plans of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

inline constexpr std::chrono::seconds kLookAgain{1};  // the cache is known to be behind

Plan plan_of(Verdict verdict, std::string reason, std::optional<std::chrono::seconds> requeue_after = std::nullopt);

// `message` is made one line that an Event can hold.
EmitEvent event(EmitEvent::Type type, const char* reason, const char* action, const std::string& message,
                const std::string& pod = "");

void append(std::vector<Action>& to, std::vector<Action> from);

// The earlier of two requeues, of which either may be absent.
std::optional<std::chrono::seconds> sooner(std::optional<std::chrono::seconds> a,
                                           std::optional<std::chrono::seconds> b);
// From now until then in whole seconds, rounded up; absent when that is over, or when there is no then.
std::optional<std::chrono::seconds> time_left(std::optional<SystemTime> then, SystemTime now);

// ---- whole turns of a job's life, which several policies bring about -------------------------------------------

// The status `next`, which begins an attempt, then what brings the world to it. The patch comes after the guards and
// before all else: it carries the resourceVersion, so that a plan from an old view of the job ends there.
Plan begin_attempt(const Observed& observed, api::Status next, std::vector<Action> guards, std::vector<Action> events,
                   std::string reason);

// The terminal status `next`, what is said of it, and the end of the pods that cleanPodPolicy does not keep.
Plan finish(const Observed& observed, const Membership& members, api::Status next, std::vector<Action> guards,
            EmitEvent said);

// A person must act: the condition and, once, an event say what.
Plan blocked(const Observed& observed, const Membership& members, const char* reason, const std::string& message);

}  // namespace oarlock::control
