// The functions of oarlock_ddp.h: each converts its arguments, calls oarlock::ddp, and converts what it throws.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "ddp/distributed_data_parallel_base.h"
#include "ddp/distributed_sampler.h"
#include "ddp/init_process_group.h"
#include "ddp/library_errors.h"
#include "ddp/named_module.h"
#include "ddp/named_tensors.h"
#include "ddp/oarlock_ddp.h"
#include "ddp/options.h"

using oarlock::DistributedDataParallelBase;
using oarlock::ErrorException;
using oarlock::ExitCode;
using oarlock::NamedTensor;
using oarlock::ProcessGroup;
using oarlock::Result;

// NOLINTBEGIN(readability-identifier-naming): the names of C
struct oarlock_ddp_group {
  oarlock::DistributedContext ranks;
};

struct oarlock_ddp_model {
  const ProcessGroup* group = nullptr;
  std::unique_ptr<DistributedDataParallelBase> base;
  std::optional<DistributedDataParallelBase::NoSync> no_sync;
};
// NOLINTEND(readability-identifier-naming)

namespace {

static_assert(OARLOCK_DDP_DATA == to_int(ExitCode::kDataErr) &&
              OARLOCK_DDP_UNAVAILABLE == to_int(ExitCode::kUnavailable));
static_assert(OARLOCK_DDP_SOFTWARE == to_int(ExitCode::kSoftware) && OARLOCK_DDP_OS == to_int(ExitCode::kOsErr));
static_assert(OARLOCK_DDP_TEMPORARY == to_int(ExitCode::kTempFail) && OARLOCK_DDP_CONFIG == to_int(ExitCode::kConfig));
static_assert(OARLOCK_DDP_PEER_LOST == to_int(ExitCode::kPeerLost));
static_assert(OARLOCK_DDP_DEVICE_FAILED == to_int(ExitCode::kDeviceFailed));
static_assert(OARLOCK_DDP_UINT8 == static_cast<int>(at::kByte) && OARLOCK_DDP_INT8 == static_cast<int>(at::kChar));
static_assert(OARLOCK_DDP_INT32 == static_cast<int>(at::kInt) && OARLOCK_DDP_INT64 == static_cast<int>(at::kLong));
static_assert(OARLOCK_DDP_FLOAT16 == static_cast<int>(at::kHalf) &&
              OARLOCK_DDP_FLOAT32 == static_cast<int>(at::kFloat));
static_assert(OARLOCK_DDP_FLOAT64 == static_cast<int>(at::kDouble));
static_assert(OARLOCK_DDP_BFLOAT16 == static_cast<int>(at::kBFloat16));

// Writes an error, with a truncated message if it is too long, and returns its code.
int32_t write_error(oarlock_ddp_error* out, int32_t code, const char* message) {
  if (out != nullptr) {
    out->code = code;
    const size_t length = std::min(std::strlen(message), sizeof out->message - 1);
    std::memcpy(out->message, message, length);
    out->message[length] = '\0';
  }
  return code;
}

// Calls body(), and converts what it throws to a code and a message.
template <typename Body>
int32_t guard(oarlock_ddp_error* error, Body&& body) noexcept {
  try {
    try {
      body();
      return write_error(error, OARLOCK_DDP_OK, "");
    } catch (...) {
      const oarlock::Error converted = oarlock::to_error(std::current_exception());
      return write_error(error, to_int(converted.code), converted.message.c_str());
    }
  } catch (...) {
    return write_error(error, OARLOCK_DDP_OS, "out of memory while an error was reported");
  }
}

[[noreturn]] void fail_config(const std::string& message) { throw ErrorException({ExitCode::kConfig, message}); }

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) fail_config(fmt::format("{} is NULL", name));
  return *pointer;
}

void check(const Result<void>& result) {
  if (!result) throw ErrorException(result.error());
}

// Returns the caller's options, whose struct may be that of an older or of a newer header; NULL are the defaults.
template <typename Options>
Options read_options(const Options* options, void (*init)(Options*), const char* name) {
  Options out;
  init(&out);
  if (options == nullptr) return out;
  if (options->struct_size < sizeof options->struct_size)
    fail_config(fmt::format("{}: struct_size is {}; call {}_init() first", name, options->struct_size, name));
  std::memcpy(&out, options, std::min<size_t>(options->struct_size, sizeof out));
  return out;
}

at::Tensor at_tensor(void* handle, const std::string& name) {
  const at::Tensor& tensor = required(static_cast<at::Tensor*>(handle), name.c_str());
  if (!tensor.defined()) fail_config(name + " is an undefined tensor");
  return tensor;
}

// Returns a tensor that shares the caller's memory.
at::Tensor tensor_of(const oarlock_ddp_tensor* tensor, const ProcessGroup& group, const char* name) {
  const oarlock_ddp_tensor& from = required(tensor, name);
  at::Tensor out;
  if (from.at_tensor != nullptr) {
    out = at_tensor(from.at_tensor, name).detach();
    if (!out.is_contiguous()) fail_config(fmt::format("{} is not contiguous", name));
    if (out.device() != group.device())
      fail_config(fmt::format("{} is on {}, but the group is on {}", name, out.device().str(), group.device().str()));
    return out;
  }
  static constexpr int32_t kTypes[] = {OARLOCK_DDP_UINT8,   OARLOCK_DDP_INT8,    OARLOCK_DDP_INT32,
                                       OARLOCK_DDP_INT64,   OARLOCK_DDP_FLOAT16, OARLOCK_DDP_FLOAT32,
                                       OARLOCK_DDP_FLOAT64, OARLOCK_DDP_BFLOAT16};
  if (std::ranges::find(kTypes, from.dtype) == std::end(kTypes))
    fail_config(fmt::format("{}: dtype {} is not one of OARLOCK_DDP_UINT8 to OARLOCK_DDP_BFLOAT16", name, from.dtype));
  if (from.dimensions < 0 || (from.dimensions > 0 && from.sizes == nullptr))
    fail_config(fmt::format("{}: no sizes of {} dimensions", name, from.dimensions));
  const at::IntArrayRef sizes(from.sizes, static_cast<size_t>(from.dimensions));
  if (std::ranges::any_of(sizes, [](int64_t size) { return size < 0; }))
    fail_config(fmt::format("{}: a size is negative", name));
  if (from.data == nullptr && c10::multiply_integers(sizes) != 0) fail_config(fmt::format("{}: data is NULL", name));
  return at::from_blob(from.data, sizes,
                       at::TensorOptions(static_cast<at::ScalarType>(from.dtype)).device(group.device()));
}

c10d::ReduceOp reduce_operation(int32_t operation) {
  switch (operation) {
    case OARLOCK_DDP_SUM:
      return c10d::ReduceOp::SUM;
    case OARLOCK_DDP_MIN:
      return c10d::ReduceOp::MIN;
    case OARLOCK_DDP_MAX:
      return c10d::ReduceOp::MAX;
    default:
      fail_config(fmt::format("operation {} is not OARLOCK_DDP_SUM, MIN or MAX", operation));
  }
}

oarlock::RankEnvironment environment() {
  Result<oarlock::RankEnvironment> ranks = oarlock::read_rank_environment(oarlock::process_environment());
  if (!ranks) throw ErrorException(ranks.error());
  return *std::move(ranks);
}

std::chrono::milliseconds duration(double seconds, const char* name) {
  if (!(seconds > 0 && seconds < 1e9)) fail_config(fmt::format("{} is {}, expected a positive number", name, seconds));
  return std::max(std::chrono::milliseconds(1), std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

oarlock::DistributedContext connect(const oarlock_ddp_group_options& options) {
  oarlock::InitProcessGroupOptions out;
  if (options.cuda_device >= 0) out.device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(options.cuda_device));
  out.timeout = duration(options.timeout_seconds, "timeout_seconds");
  out.connect_timeout = duration(options.connect_timeout_seconds, "connect_timeout_seconds");
  if (options.rank == -1) return oarlock::init_process_group(out);
  oarlock::RankEnvironment ranks;
  ranks.rank = options.rank;
  ranks.world_size = options.world_size;
  ranks.master_addr = options.master_addr == nullptr ? "" : options.master_addr;
  ranks.master_port = options.master_port;
  return oarlock::init_process_group(ranks, out);
}

// Returns tensors with their names, of which "parameter" or "buffer" and the index are the default.
std::vector<NamedTensor> named_tensors(const oarlock_ddp_model_tensor* tensors, size_t count, const std::string& kind) {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < count; ++i) {
    const oarlock_ddp_model_tensor& from = (&required(tensors, kind.c_str()))[i];
    const std::string name = from.name == nullptr ? kind + std::to_string(i) : from.name;
    out.push_back({name, at_tensor(from.at_tensor, kind + " " + name)});
  }
  return out;
}

// Returns a module of these tensors. Its forward pass is the caller's.
std::shared_ptr<torch::nn::Module> module_of(const std::vector<NamedTensor>& parameters,
                                             const std::vector<NamedTensor>& buffers) {
  auto module = std::make_shared<torch::nn::Module>("model");
  try {
    for (const NamedTensor& parameter : parameters) oarlock::register_named_parameter(*module, parameter);
    for (const NamedTensor& buffer : buffers) oarlock::register_named_buffer(*module, buffer);
  } catch (const c10::Error& error) {  // a name that is taken, or a parameter that is not a leaf of the graph
    fail_config("the tensors of a model: " + oarlock::fault_detail(error.what_without_backtrace()));
  }
  return module;
}

oarlock::DdpOptions ddp_options(const oarlock_ddp_model_options& from) {
  if (from.comm_hook < OARLOCK_DDP_HOOK_NONE || from.comm_hook > OARLOCK_DDP_HOOK_POWER_SGD)
    fail_config(fmt::format("comm_hook {} is not one of OARLOCK_DDP_HOOK_NONE to POWER_SGD", from.comm_hook));
  static constexpr oarlock::CommHook kHooks[] = {oarlock::CommHook::kNone, oarlock::CommHook::kFp16,
                                                 oarlock::CommHook::kBf16, oarlock::CommHook::kPowerSgd};
  oarlock::DdpOptions out;
  out.bucket_cap_mb = from.bucket_cap_mb;
  out.gradient_as_bucket_view = from.gradient_as_bucket_view != 0;
  out.find_unused_parameters = from.find_unused_parameters != 0;
  out.static_graph = from.static_graph != 0;
  out.broadcast_buffers = from.broadcast_buffers != 0;
  out.shared_memory = from.shared_memory != 0;
  out.comm_hook = kHooks[from.comm_hook];
  out.powersgd.matrix_approximation_rank = from.power_sgd_rank;
  out.powersgd.start_iteration = from.power_sgd_start_iteration;
  return out;
}

}  // namespace

int32_t oarlock_ddp_abi_version() { return OARLOCK_DDP_ABI_VERSION; }
const char* oarlock_ddp_torch_version() {
  static constexpr char kVersion[] =
      C10_STRINGIZE(TORCH_VERSION_MAJOR) "." C10_STRINGIZE(TORCH_VERSION_MINOR) "." C10_STRINGIZE(TORCH_VERSION_PATCH);
  return kVersion;
}

// ---- process group ----

void oarlock_ddp_group_options_init(oarlock_ddp_group_options* options) {
  *options = {sizeof *options, -1, 1, 0, nullptr, -1, 600, 300};
}

int32_t oarlock_ddp_local_rank(int32_t* local_rank, oarlock_ddp_error* error) {
  return guard(error, [&] { required(local_rank, "local_rank") = environment().local_rank; });
}

int32_t oarlock_ddp_group_create(const oarlock_ddp_group_options* options, oarlock_ddp_group** group,
                                 oarlock_ddp_error* error) {
  return guard(error, [&] {
    oarlock_ddp_group*& out = required(group, "group");
    out = new oarlock_ddp_group{
        connect(read_options(options, oarlock_ddp_group_options_init, "oarlock_ddp_group_options"))};
  });
}

void oarlock_ddp_group_free(oarlock_ddp_group* group) {
  guard(nullptr, [&] { delete group; });
}

int32_t oarlock_ddp_group_rank(const oarlock_ddp_group* group) { return group->ranks.group.rank(); }
int32_t oarlock_ddp_group_world_size(const oarlock_ddp_group* group) { return group->ranks.group.world_size(); }

// ---- collectives ----

int32_t oarlock_ddp_all_reduce(oarlock_ddp_group* group, const oarlock_ddp_tensor* tensor, int32_t operation,
                               oarlock_ddp_error* error) {
  return guard(error, [&] {
    const ProcessGroup& ranks = required(group, "group").ranks.group;
    ranks.all_reduce(tensor_of(tensor, ranks, "tensor"), reduce_operation(operation));
  });
}

int32_t oarlock_ddp_broadcast(oarlock_ddp_group* group, const oarlock_ddp_tensor* tensor, int32_t source,
                              oarlock_ddp_error* error) {
  return guard(error, [&] {
    const ProcessGroup& ranks = required(group, "group").ranks.group;
    if (source < 0 || source >= ranks.world_size())
      fail_config(fmt::format("source {} is not one of {} ranks", source, ranks.world_size()));
    ranks.broadcast(std::vector<at::Tensor>{tensor_of(tensor, ranks, "tensor")}, source);
  });
}

int32_t oarlock_ddp_all_gather(oarlock_ddp_group* group, const oarlock_ddp_tensor* output,
                               const oarlock_ddp_tensor* input, oarlock_ddp_error* error) {
  return guard(error, [&] {
    const ProcessGroup& ranks = required(group, "group").ranks.group;
    const at::Tensor from = tensor_of(input, ranks, "input");
    const at::Tensor to = tensor_of(output, ranks, "output");
    std::vector<int64_t> sizes = {ranks.world_size()};
    sizes.insert(sizes.end(), from.sizes().begin(), from.sizes().end());
    if (to.sizes() != at::IntArrayRef(sizes) || to.scalar_type() != from.scalar_type())
      fail_config("output must have the sizes [world_size, sizes of input...] and the dtype of input");
    if (ranks.is_connected()) {
      at::Tensor flat_to = to.view(-1);  // Gloo requires equal numbers of dimensions
      at::Tensor flat_from = from.view(-1);
      ranks.c10d()->_allgather_base(flat_to, flat_from)->wait();
    } else {
      to.copy_(from.unsqueeze(0));
    }
  });
}

int32_t oarlock_ddp_barrier(oarlock_ddp_group* group, oarlock_ddp_error* error) {
  return guard(error, [&] { required(group, "group").ranks.group.barrier(); });
}

// ---- DistributedDataParallel ----

void oarlock_ddp_model_options_init(oarlock_ddp_model_options* options) {
  const oarlock::DdpOptions defaults;
  *options = {};
  options->struct_size = sizeof *options;
  options->bucket_cap_mb = defaults.bucket_cap_mb;
  options->broadcast_buffers = defaults.broadcast_buffers ? 1 : 0;
  options->shared_memory = defaults.shared_memory ? 1 : 0;
  options->power_sgd_rank = defaults.powersgd.matrix_approximation_rank;
  options->power_sgd_start_iteration = defaults.powersgd.start_iteration;
}

int32_t oarlock_ddp_model_create(oarlock_ddp_group* group, const oarlock_ddp_model_tensor* parameters,
                                 size_t parameter_count, const oarlock_ddp_model_tensor* buffers, size_t buffer_count,
                                 const oarlock_ddp_model_options* options, oarlock_ddp_model** model,
                                 oarlock_ddp_error* error) {
  return guard(error, [&] {
    const ProcessGroup& ranks = required(group, "group").ranks.group;
    oarlock_ddp_model*& out = required(model, "model");
    const oarlock::DdpOptions all =
        ddp_options(read_options(options, oarlock_ddp_model_options_init, "oarlock_ddp_model_options"));
    auto module = module_of(named_tensors(parameters, parameter_count, "parameter"),
                            named_tensors(buffers, buffer_count, "buffer"));
    auto base = DistributedDataParallelBase::create(std::move(module), ranks, all);
    if (!base) throw ErrorException(base.error());
    out = new oarlock_ddp_model{&ranks, *std::move(base), std::nullopt};
  });
}

void oarlock_ddp_model_free(oarlock_ddp_model* model) {
  guard(nullptr, [&] { delete model; });
}

int32_t oarlock_ddp_model_begin_forward(oarlock_ddp_model* model, oarlock_ddp_error* error) {
  return guard(error, [&] { required(model, "model").base->begin_forward(); });
}

int32_t oarlock_ddp_model_end_forward(oarlock_ddp_model* model, void* const* outputs, size_t count,
                                      oarlock_ddp_error* error) {
  return guard(error, [&] {
    std::vector<at::Tensor*> tensors;
    for (size_t i = 0; i < count; ++i)
      tensors.push_back(&required(static_cast<at::Tensor*>((&required(outputs, "outputs"))[i]), "an output"));
    required(model, "model").base->end_forward(tensors);
  });
}

int32_t oarlock_ddp_model_set_no_sync(oarlock_ddp_model* model, int32_t enabled, oarlock_ddp_error* error) {
  return guard(error, [&] {
    oarlock_ddp_model& to = required(model, "model");
    to.no_sync.reset();
    if (enabled != 0) to.no_sync.emplace(*to.base);
  });
}

int32_t oarlock_ddp_model_zero_grad(oarlock_ddp_model* model, oarlock_ddp_error* error) {
  return guard(error, [&] { required(model, "model").base->zero_grad(); });
}

int32_t oarlock_ddp_model_broadcast_buffers(oarlock_ddp_model* model, oarlock_ddp_error* error) {
  return guard(error, [&] { required(model, "model").base->broadcast_buffers(); });
}

int32_t oarlock_ddp_model_check_equal(oarlock_ddp_model* model, oarlock_ddp_error* error) {
  return guard(error, [&] {
    const oarlock_ddp_model& of = required(model, "model");
    check(check_equal_on_all_ranks(of.base->parameters(), *of.group));
  });
}

// ---- samples ----

void oarlock_ddp_sampler_options_init(oarlock_ddp_sampler_options* options) {
  *options = {sizeof *options, 0, 1, 1, 0, 0, 0};
}

int32_t oarlock_ddp_sampler_indices(const oarlock_ddp_sampler_options* options, int64_t epoch, int64_t start,
                                    int64_t* indices, size_t capacity, size_t* count, oarlock_ddp_error* error) {
  return guard(error, [&] {
    const auto from =
        read_options(&required(options, "options"), oarlock_ddp_sampler_options_init, "oarlock_ddp_sampler_options");
    const oarlock::DistributedSampler sampler({.size = from.size,
                                               .rank = from.rank,
                                               .world_size = from.world_size,
                                               .seed = from.seed,
                                               .shuffle = from.shuffle != 0,
                                               .drop_last = from.drop_last != 0});
    size_t& out = required(count, "count");
    const std::vector<int64_t> samples = sampler.indices(epoch, start);
    if (indices != nullptr && capacity < samples.size())
      fail_config(fmt::format("capacity {} is less than the {} samples of the rank", capacity, samples.size()));
    if (indices != nullptr) std::ranges::copy(samples, indices);
    out = samples.size();
  });
}
