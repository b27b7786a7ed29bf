// Packing and unpacking preserve every field of a cached object.
#include <gtest/gtest.h>

#include "operator/shell/projection.h"

namespace oarlock::control {
namespace {

TEST(Packed, RoundTripsTexts) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(127, 'x'), std::string(128, 'y'), std::string(5000, 'z'),
        std::string("with\0nul", 8), std::string("0b6f3c1e-1234-4abc-9def-0123456789ab"),
        std::string("0B6F3C1E-1234-4ABC-9DEF-0123456789AB"), std::string("0b6f3c1e-1234-4abc-9def-0123456789ag"),
        std::string("0b6f3c1e+1234-4abc-9def-0123456789ab"), std::string(36, '-')}) {
    CachedService service{.service = {.name = text,
                                      .uid = text,
                                      .owner_uid = text,
                                      .owner_is_job = true,
                                      .deleting = true,
                                      .created = SystemTime(std::chrono::seconds(7)),
                                      .regroup_key = text},
                          .job = text};
    EXPECT_EQ(PackedService(service).unpack(), service) << text;
  }
}

TEST(Packed, RoundTripsFullPod) {
  CachedPod cached;
  cached.job = "j";
  Pod& pod = cached.pod;
  pod.name = "j-0-1";
  pod.uid = "0b6f3c1e-1234-4abc-9def-0123456789ab";
  pod.resource_version = "12345678901234567890";
  pod.owner_uid = "11111111-2222-3333-4444-555555555555";
  pod.phase = PodPhase::kFailed;
  pod.reason = "Evicted";
  pod.message = "The node was low on resource: memory.";
  pod.owner_is_job = true;
  pod.deleting = true;
  pod.stop_requested_at = SystemTime(std::chrono::seconds(1'700'000'007));
  pod.scheduled = true;
  pod.scheduled_at = SystemTime(std::chrono::seconds(1'700'000'003));
  pod.unscheduled_message = "0/3 nodes are available";
  pod.ready = true;
  pod.disruption = "PreemptionByScheduler";
  pod.pod_ip = "fd00::1";
  pod.node_name = "node-7";
  pod.waiting_reason = "ImagePullBackOff";
  pod.waiting_message = "Back-off pulling image";
  pod.regroup_key = "0123456789ab";
  for (const int exit_code : {0, 1, 137, -1, 2147483647, -2147483647}) {
    pod.trainer = Termination{.exit_code = exit_code,
                              .reason = "Error",
                              .message = std::string(4096, 'm'),
                              .finished_at = SystemTime(std::chrono::seconds(1'700'000'000))};
    EXPECT_EQ(PackedPod(cached).unpack(), cached);
  }
  EXPECT_EQ(PackedPod(CachedPod{}).unpack(), CachedPod{});
}

}  // namespace
}  // namespace oarlock::control
