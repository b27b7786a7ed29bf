#include "ddp/process_group.h"

#define XXH_INLINE_ALL  // compiles its functions here, so that a program does not need the shared library
#include <xxhash.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "common/json_access.h"
#include "common/status_macros.h"
#include "ddp/agreement_json.h"
#include "ddp/leavable_gloo.h"

namespace oarlock {
namespace {

// Time for Gloo's event loop to notice that the connections were shut down. Its errors say more.
constexpr std::chrono::milliseconds kFailureTimeout{500};

constexpr size_t kBroadcastBufferBytes = size_t{250} << 20;  // as in PyTorch's DDP

at::Tensor to_tensor(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string to_text(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.cpu();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(bytes.numel())};
}

void wait(const c10::intrusive_ptr<c10d::Work>& work) { work->wait(); }

}  // namespace

void ProcessGroup::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  if (!group_) return;
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  wait(group_->allreduce(tensors, options));
}

void ProcessGroup::all_reduce(std::span<double> values, c10d::ReduceOp op) const {
  if (!group_ || values.empty()) return;
  // A copy, which a failed collective may still use after this returns (LeavableGloo::fail_pending()).
  const at::Tensor host = at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble);
  std::vector<at::Tensor> tensors = {host.to(device_, /*non_blocking=*/false, /*copy=*/true)};
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  wait(group_->allreduce(tensors, options));
  host.copy_(tensors[0]);
}

void ProcessGroup::all_reduce_sum(std::span<double> values) const { all_reduce(values, c10d::ReduceOp::SUM); }
void ProcessGroup::all_reduce_max(std::span<double> values) const { all_reduce(values, c10d::ReduceOp::MAX); }

std::vector<int64_t> ProcessGroup::all_gather(int64_t value) const {
  if (!group_) return {value};
  at::Tensor input = at::tensor({value}, at::kLong).to(device_);
  at::Tensor output = at::zeros({world_size()}, input.options());
  wait(group_->_allgather_base(output, input));
  const at::Tensor host = output.cpu();
  return {host.data_ptr<int64_t>(), host.data_ptr<int64_t>() + host.numel()};
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& text) const {
  if (!group_) return {text};
  const std::vector<int64_t> sizes = all_gather(static_cast<int64_t>(text.size()));
  const int64_t longest = std::max<int64_t>(*std::max_element(sizes.begin(), sizes.end()), 1);
  std::string padded = text;
  padded.resize(static_cast<size_t>(longest));
  at::Tensor input = to_tensor(padded).to(device_);
  at::Tensor output = at::zeros({world_size() * longest}, input.options());
  wait(group_->_allgather_base(output, input));
  const std::string all = to_text(output);
  std::vector<std::string> out;
  out.reserve(sizes.size());
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    out.push_back(all.substr(rank * static_cast<size_t>(longest), static_cast<size_t>(sizes[rank])));
  return out;
}

std::string ProcessGroup::broadcast(const std::string& text, int source) const {
  if (!group_) return text;
  c10d::BroadcastOptions options;
  options.rootRank = source;
  std::vector<at::Tensor> length = {at::tensor({static_cast<int64_t>(text.size())}, at::kLong).to(device_)};
  wait(group_->broadcast(length, options));
  const int64_t size = length[0].item<int64_t>();
  if (size == 0) return "";
  std::vector<at::Tensor> bytes = {(rank() == source ? to_tensor(text) : at::empty({size}, at::kByte)).to(device_)};
  wait(group_->broadcast(bytes, options));
  return to_text(bytes[0]);
}

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors, int source) const {
  if (group_ && !tensors.empty()) c10d::broadcast_coalesced(group_, tensors, kBroadcastBufferBytes, source);
}

Result<std::string> ProcessGroup::broadcast(const Result<std::string>& result) const {
  if (!group_) return result;
  nlohmann::json message;
  if (rank() == 0) {
    message = result ? nlohmann::json{{"value", *result}}
                     : nlohmann::json{{"code", to_int(result.error().code)}, {"message", result.error().message}};
  }
  message = nlohmann::json::parse(broadcast(dump_json(message)));
  if (message.contains("value")) return message["value"].get<std::string>();
  return fail(static_cast<ExitCode>(message["code"].get<int>()), message["message"].get<std::string>());
}

std::vector<at::Tensor> ProcessGroup::gather_to_rank_0(const at::Tensor& tensor) const {
  if (!group_) return {tensor};
  std::vector<at::Tensor> input = {tensor};
  std::vector<std::vector<at::Tensor>> outputs;
  if (rank() == 0) {
    outputs.emplace_back();
    for (int from = 0; from < world_size(); ++from) outputs[0].push_back(at::empty_like(tensor));
  }
  wait(group_->gather(outputs, input));
  return outputs.empty() ? std::vector<at::Tensor>{} : std::move(outputs[0]);
}

void ProcessGroup::scatter_from_rank_0(at::Tensor out, std::vector<at::Tensor> tensors) const {
  if (!group_) {
    out.copy_(tensors.at(0));
    return;
  }
  std::vector<at::Tensor> output = {std::move(out)};
  std::vector<std::vector<at::Tensor>> inputs;
  if (rank() == 0) inputs.push_back(std::move(tensors));
  wait(group_->scatter(output, inputs));
}

Result<void> ProcessGroup::agree(const Result<void>& result) const {
  if (!group_) return result;
  const std::vector<int64_t> codes = all_gather(result ? 0 : to_int(result.error().code));
  const auto first = std::find_if(codes.begin(), codes.end(), [](int64_t code) { return code != 0; });
  if (first == codes.end()) return {};
  const int failed = static_cast<int>(first - codes.begin());
  const std::string message = broadcast(result ? "" : result.error().message, failed);
  if (!result) return result;
  return fail(static_cast<ExitCode>(*first), fmt::format("rank {}: {}", failed, message));
}

void ProcessGroup::barrier() const {
  if (group_) wait(group_->barrier());
}

std::string ProcessGroup::backend_name() const { return group_ ? group_->getDefaultBackend()->getBackendName() : ""; }

int64_t ProcessGroup::sequence_number() const {
  const int64_t in_backend = group_ ? static_cast<int64_t>(group_->getSequenceNumberForGroup()) : 0;
  return in_backend + *collectives_outside_backend_;
}

namespace {

// A socket of this process.
struct OpenSocket {
  int descriptor = -1;
  uint64_t inode = 0;

  bool operator==(const OpenSocket&) const = default;
};

std::optional<uint64_t> socket_inode(int descriptor) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

bool is_listening(int descriptor) {
  int listening = 0;
  socklen_t size = sizeof listening;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

// The sockets of this process that are not listening.
std::vector<OpenSocket> open_sockets() {
  std::vector<OpenSocket> out;
  std::error_code error;  // entries that cannot be read are missing
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    const int descriptor = std::atoi(entry->path().filename().c_str());
    const std::optional<uint64_t> inode = socket_inode(descriptor);
    if (inode && !is_listening(descriptor)) out.push_back({descriptor, *inode});
  }
  return out;
}

// Gloo has no call that fails the operations in progress: closing a context leaves them blocked until their timeout.
// After a shutdown of the sockets, Gloo's event loops on both sides read the end of the stream and fail most of them
// (LeavableGloo fails the others). Sockets of other parts of the process that were opened while the group was
// connected, such as connections of the metrics server, are shut down, too, which is harmless.
void shut_down(const std::vector<OpenSocket>& sockets) {
  for (const OpenSocket& socket : sockets) {
    if (socket_inode(socket.descriptor) == socket.inode) ::shutdown(socket.descriptor, SHUT_RDWR);
  }
}

}  // namespace

ProcessGroup make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupOptions& options) {
  const auto gloo_options = c10d::ProcessGroupGloo::Options::create(options.connect_timeout);
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  const auto prefix = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
  const std::vector<OpenSocket> before = open_sockets();
  const auto backend = c10::make_intrusive<LeavableGloo>(prefix, options.rank, options.world_size, gloo_options);
  std::vector<OpenSocket> connections = open_sockets();
  std::erase_if(connections,
                [&](const OpenSocket& socket) { return std::ranges::find(before, socket) != before.end(); });
  backend->setTimeout(options.timeout);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefix, options.rank, options.world_size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName("ranks");
  return ProcessGroup(std::move(group), at::kCPU, [backend, connections = std::move(connections)] {
    shut_down(connections);
    backend->fail_pending(kFailureTimeout);
  });
}

namespace {

int64_t hash(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return static_cast<int64_t>(XXH3_64bits(host.data_ptr(), host.nbytes()));
}

std::vector<int64_t> hash_each(const std::vector<NamedTensor>& tensors) {
  std::vector<int64_t> out;
  out.reserve(tensors.size());
  for (const NamedTensor& item : tensors) out.push_back(hash(item.tensor));
  return out;
}

std::vector<int64_t> gather_combined_hash(const std::vector<int64_t>& hashes, const ProcessGroup& group) {
  return group.all_gather(static_cast<int64_t>(XXH3_64bits(hashes.data(), hashes.size() * sizeof(int64_t))));
}

bool all_equal(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values.front(); });
}

}  // namespace

std::vector<int> minority(const std::vector<int64_t>& values) {
  std::ptrdiff_t highest_count = 0;
  int64_t majority = 0;
  for (const int64_t value : values) {
    const auto count = std::count(values.begin(), values.end(), value);
    if (count > highest_count) {
      highest_count = count;
      majority = value;
    }
  }
  std::vector<int> out;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != majority) out.push_back(static_cast<int>(rank));
  }
  return out;
}

std::string digest_of(const std::vector<NamedTensor>& tensors) {
  const std::vector<int64_t> hashes = hash_each(tensors);
  return fmt::format("{:016x}", XXH3_64bits(hashes.data(), hashes.size() * sizeof(int64_t)));
}

bool equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group) {
  return all_equal(gather_combined_hash(hash_each(tensors), group));
}

Result<void> check_equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group) {
  const std::vector<int64_t> hashes = hash_each(tensors);
  if (all_equal(gather_combined_hash(hashes, group))) return {};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<int64_t> by_rank = group.all_gather(hashes[i]);
    if (all_equal(by_rank)) continue;
    const std::vector<int> deviating = minority(by_rank);
    return fail(ExitCode::kSoftware,
                fmt::format("the ranks' parameters diverged: '{}' is the first that differs, on {} {} of {}; check for "
                            "state that differs between ranks, and for faulty memory there",
                            tensors[i].name, deviating.size() == 1 ? "rank" : "ranks", fmt::join(deviating, ", "),
                            by_rank.size()));
  }
  return fail(ExitCode::kSoftware, "the ranks' parameters diverged: their names differ");
}

Result<void> check_equal_on_all_ranks(AgreedKind kind, const AgreedValues& values, const ProcessGroup& group) {
  const std::vector<std::string> texts = group.all_gather(dump_json(to_json_object(values)));
  const auto values_of = [&](size_t rank) { return agreed_values_from_json(nlohmann::json::parse(texts[rank])); };
  for (size_t rank = 1; rank < texts.size(); ++rank)
    RETURN_IF_ERROR(check_agreement(kind, static_cast<int>(rank), values_of(rank), values_of(0)));
  return {};
}

}  // namespace oarlock
