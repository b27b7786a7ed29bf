#include "trainer/nn/activation_checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/custom_class.h>
#include <torch/nn/module.h>

#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor state_of(at::Generator generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

// The default generators from which a function on these tensors may draw, and their states.
class RandomState {
 public:
  static RandomState current(const variable_list& tensors) {
    RandomState out;
    out.add(at::detail::getDefaultCPUGenerator());
    std::set<at::DeviceIndex> seen;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined() && tensor.is_cuda() && seen.insert(tensor.get_device()).second)
        out.add(at::globalContext().defaultGenerator(tensor.device()));
    }
    return out;
  }

  // Returns the current states of the same generators.
  RandomState refreshed() const {
    RandomState out;
    for (const auto& [generator, state] : states_) out.add(generator);
    return out;
  }

  void restore() const {
    for (const auto& [generator, state] : states_) set_state(generator, state);
  }

 private:
  void add(const at::Generator& generator) { states_.emplace_back(generator, state_of(generator)); }

  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

class RandomStateGuard {
 public:
  explicit RandomStateGuard(const RandomState& wanted) : before_(wanted.refreshed()) { wanted.restore(); }
  ~RandomStateGuard() { before_.restore(); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  RandomState before_;
};

struct Autocast {
  at::DeviceType device = at::kCPU;
  bool enabled = false;
  at::ScalarType dtype = at::kBFloat16;

  static Autocast current(at::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }
  void set() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }
};

std::vector<Autocast> current_autocast() { return {Autocast::current(at::kCPU), Autocast::current(at::kCUDA)}; }

// Restores the autocast state of forward. Clears autocast's cache of cast weights at both ends: casts of the forward
// pass without gradients have no graph, and casts of the recomputation belong to a separate graph.
class AutocastGuard {
 public:
  explicit AutocastGuard(const std::vector<Autocast>& wanted) : before_(current_autocast()) {
    at::autocast::increment_nesting();
    at::autocast::clear_cache();
    for (const Autocast& state : wanted) state.set();
  }
  ~AutocastGuard() {
    for (const Autocast& state : before_) state.set();
    at::autocast::clear_cache();
    at::autocast::decrement_nesting();
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  std::vector<Autocast> before_;
};

// The state that backward needs to recompute the function.
struct Call : torch::CustomClassHolder {
  TensorFunction function;
  std::vector<Autocast> autocast;
  std::optional<RandomState> random;
  size_t parameters = 0;
};

// Throws if a leaf of the graph of the outputs would silently receive no gradient.
void check_leaves(const variable_list& outputs, const variable_list& known) {
  std::set<const void*> leaves;
  for (const at::Tensor& tensor : known) leaves.insert(tensor.unsafeGetTensorImpl());
  std::set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> to_do;
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.grad_fn()) to_do.push_back(output.grad_fn().get());
  }
  while (!to_do.empty()) {
    torch::autograd::Node* node = to_do.back();
    to_do.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node);
        leaf != nullptr && !leaves.contains(leaf->variable.unsafeGetTensorImpl())) {
      throw std::logic_error(
          "checkpoint_activations: the function uses a tensor that requires gradients and is neither a parameter of "
          "the "
          "module nor an input; pass the module that owns it");
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) to_do.push_back(edge.function.get());
  }
}

class CheckpointFunction : public torch::autograd::Function<CheckpointFunction> {
 public:
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Call>& call,
                               at::TensorList parameters, at::TensorList inputs) {
    variable_list saved = parameters.vec();
    saved.insert(saved.end(), inputs.begin(), inputs.end());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->set_materialize_grads(false);
    variable_list outputs;
    {
      const AutocastGuard autocast(call->autocast);
      outputs = call->function(inputs.vec());
    }
    variable_list integers;
    for (const at::Tensor& output : outputs) {
      if (!torch::autograd::isDifferentiableType(output.scalar_type())) integers.push_back(output);
    }
    context->mark_non_differentiable(integers);
    context->save_for_backward(std::move(saved));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw std::logic_error("checkpoint_activations: backward of backward is not supported; do not set create_graph");
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    variable_list tensors = context->get_saved_variables();  // parameters, then inputs
    variable_list inputs;
    for (size_t i = call->parameters; i < tensors.size(); ++i) {
      if (tensors[i].defined()) tensors[i] = tensors[i].detach().requires_grad_(tensors[i].requires_grad());
      inputs.push_back(tensors[i]);
    }
    const variable_list outputs = recompute(*call, inputs);
    check_leaves(outputs, tensors);

    variable_list wanted;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined() && tensor.requires_grad()) wanted.push_back(tensor);
    }
    variable_list ends;
    variable_list end_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      ends.push_back(outputs[i]);
      end_gradients.push_back(gradients[i]);
    }
    variable_list found(wanted.size());
    if (!ends.empty() && !wanted.empty()) {
      found = torch::autograd::grad(ends, wanted, end_gradients, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                    /*allow_unused=*/true);
    }
    variable_list out = {at::Tensor()};  // for the Call
    size_t next = 0;
    for (const at::Tensor& tensor : tensors)
      out.push_back(tensor.defined() && tensor.requires_grad() ? found[next++] : at::Tensor());
    return out;
  }

 private:
  static variable_list recompute(const Call& call, const variable_list& inputs) {
    const at::AutoGradMode with_gradients(true);
    const AutocastGuard autocast(call.autocast);
    std::optional<RandomStateGuard> random;
    if (call.random) random.emplace(*call.random);
    return call.function(inputs);
  }
};

}  // namespace

std::vector<at::Tensor> checkpoint_activations(const torch::nn::Module& module, TensorFunction function,
                                               const std::vector<at::Tensor>& inputs, bool preserve_random_state) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  variable_list parameters;
  for (const NamedTensor& item : unique_parameters(module)) {
    if (item.tensor.requires_grad()) parameters.push_back(item.tensor);
  }
  auto call = c10::make_intrusive<Call>();
  call->function = std::move(function);
  call->autocast = current_autocast();
  call->parameters = parameters.size();
  if (preserve_random_state) {
    variable_list all = parameters;
    all.insert(all.end(), inputs.begin(), inputs.end());
    call->random = RandomState::current(all);
  }
  return CheckpointFunction::apply(call, at::TensorList(parameters), at::TensorList(inputs));
}

at::Tensor checkpoint_activations(const torch::nn::Module& module,
                                  const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& input,
                                  bool preserve_random_state) {
  return checkpoint_activations(
             module,
             [function](const std::vector<at::Tensor>& inputs) -> std::vector<at::Tensor> {
               return {function(inputs[0])};
             },
             {input}, preserve_random_state)
      .front();
}

}  // namespace oarlock
