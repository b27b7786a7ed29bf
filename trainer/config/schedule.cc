#include "trainer/config/schedule.h"

#include <algorithm>

namespace oarlock {
namespace {

using Kind = ScheduleKind;
constexpr Range kShare = {.low = 0, .high = 1};

void describe(PlateauConfig& config, Fields& fields) {
  fields.field("metric", config.metric, "one of the metrics that the task's evaluation gives");
  fields.choice<MetricMode>("mode", config.mode, {{"min", MetricMode::kMin}, {"max", MetricMode::kMax}},
                            "whether less or more of it is better");
  fields.field("factor", config.factor, from_below(0, 1), "times the learning rate");
  fields.field("patience", config.patience, at_least(0), "evaluations without improvement that are let pass");
  fields.field("threshold", config.threshold, at_least(0), "a smaller change is no improvement");
  fields.choice<ThresholdMode>("threshold_mode", config.threshold_mode,
                               {{"rel", ThresholdMode::kRelative}, {"abs", ThresholdMode::kAbsolute}},
                               "whether the threshold is a share of the best value or a number of its own");
  fields.field("cooldown", config.cooldown, at_least(0), "evaluations after a reduction that are not counted");
  fields.field("min_lr", config.min_lr, at_least(0), "no learning rate goes below");
  fields.field("eps", config.eps, at_least(0), "a smaller change of the learning rate is not made");
}

// Which kinds a key belongs to.
void only_for(Fields& fields, Kind kind, std::string_view key, std::initializer_list<Kind> kinds,
              std::string_view why_not) {
  fields.only_where(key, std::find(kinds.begin(), kinds.end(), kind) != kinds.end(), why_not);
}

void check_kind(const ScheduleConfig& config, Fields& fields) {
  const Kind kind = config.kind;
  only_for(fields, kind, "length", {Kind::kLinear, Kind::kCosine, Kind::kOneCycle},
           "belongs to the schedules linear, cosine and onecycle");
  only_for(fields, kind, "step_size", {Kind::kStep}, "belongs to the schedule step");
  only_for(fields, kind, "milestones", {Kind::kMultiStep}, "belongs to the schedule multistep");
  only_for(fields, kind, "gamma", {Kind::kStep, Kind::kMultiStep, Kind::kExponential},
           "belongs to the schedules step, multistep and exponential");
  only_for(fields, kind, "min_ratio", {Kind::kLinear, Kind::kCosine}, "belongs to the schedules linear and cosine");
  for (const char* key :
       {"pct_start", "div_factor", "final_div_factor", "anneal", "cycle_momentum", "base_momentum", "max_momentum"}) {
    only_for(fields, kind, key, {Kind::kOneCycle}, "belongs to the schedule onecycle");
  }
  only_for(fields, kind, "plateau", {Kind::kPlateau}, "belongs to the schedule plateau");
  if (kind == Kind::kMultiStep && config.milestones.empty()) {
    fields.problem("milestones", "is required by the schedule multistep");
  }
  if (!std::is_sorted(config.milestones.begin(), config.milestones.end())) {
    fields.problem("milestones", "must grow");
  }
}

}  // namespace

void describe(ScheduleConfig& config, Fields& fields) {
  fields.choice<Kind>("name", config.kind,
                      {{"constant", Kind::kConstant},
                       {"step", Kind::kStep},
                       {"multistep", Kind::kMultiStep},
                       {"exponential", Kind::kExponential},
                       {"linear", Kind::kLinear},
                       {"cosine", Kind::kCosine},
                       {"onecycle", Kind::kOneCycle},
                       {"plateau", Kind::kPlateau}},
                      "how the learning rate goes on after the warm-up");
  fields.choice<ScheduleInterval>("interval", config.interval,
                                  {{"step", ScheduleInterval::kStep}, {"epoch", ScheduleInterval::kEpoch}},
                                  "what the schedule counts: optimizer steps after the warm-up, or epochs");
  fields.field("length", config.length, at_least(1),
               "linear, cosine, onecycle: intervals until the last rate; default: to the end of the run");
  fields.field("step_size", config.step_size, at_least(1), "step: intervals from one drop to the next");
  fields.field("milestones", config.milestones, at_least(1), "multistep: intervals at which the rate drops");
  fields.field("gamma", config.gamma, above_to(0, 1), "step, multistep, exponential: times the rate at each drop");
  fields.field("min_ratio", config.min_ratio, kShare, "linear, cosine: the last rate as a share of lr");
  fields.field("pct_start", config.pct_start, kShare, "onecycle: share of the cycle in which the rate rises to lr");
  fields.field("div_factor", config.div_factor, at_least(1), "onecycle: the first rate is lr / div_factor");
  fields.field("final_div_factor", config.final_div_factor, at_least(1),
               "onecycle: the last rate is the first / final_div_factor");
  fields.choice<Anneal>("anneal", config.anneal, {{"cos", Anneal::kCosine}, {"linear", Anneal::kLinear}},
                        "onecycle: the shape of rise and fall");
  fields.field("cycle_momentum", config.cycle_momentum,
               "onecycle: SGD's momentum or the first beta of Adam runs against the rate");
  fields.field("base_momentum", config.base_momentum, from_below(0, 1), "onecycle: the momentum where the rate is lr");
  fields.field("max_momentum", config.max_momentum, from_below(0, 1), "onecycle: the momentum where the rate is least");
  fields.section(
      "plateau", [&](Fields& inner) { describe(config.plateau, inner); },
      "plateau: when an evaluation's metric no longer gets better, the rate drops");
  fields.field("warmup_steps", config.warmup_steps, at_least(0), "optimizer steps of a linear rise to lr");
  fields.field("warmup_start_factor", config.warmup_start_factor, above_to(0, 1),
               "share of lr in the first step of the warm-up; default: 1 / warmup_steps");
  check_kind(config, fields);
}

}  // namespace oarlock
