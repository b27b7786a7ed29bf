#include "trainer/tasks/comformer/model/convolution.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>

#include <cmath>

#include "trainer/nn/scatter.h"

namespace oarlock {

using torch::nn::Linear;

at::Tensor gated(const GatedMessage& parts, TwoLayers& message, TwoLayers& key, BatchNorm1dImpl& norm) {
  const int64_t width = parts.query.size(-1);
  const at::Tensor keys = key.forward(at::cat({parts.key_to, parts.key_from, parts.between}, -1));
  const at::Tensor score = parts.query * keys / std::sqrt(static_cast<double>(width));
  const at::Tensor gate = norm.forward(score.reshape({-1, width})).view_as(score).sigmoid();
  return message.forward(at::cat({parts.value_to, parts.value_from, parts.between}, -1)) * gate;
}

ComformerConvolution::ComformerConvolution(int64_t width)
    : key_(register_module("lin_key", Linear(width, width))),
      query_(register_module("lin_query", Linear(width, width))),
      value_(register_module("lin_value", Linear(width, width))),
      edge_(register_module("lin_edge", Linear(width, width))),
      combine_(register_module("lin_concate", Linear(width, width))),
      message_(register_module("lin_msg_update", std::make_shared<TwoLayers>(3 * width, width, width, at::silu))),
      key_update_(register_module("key_update", std::make_shared<TwoLayers>(3 * width, width, width, at::silu))),
      norm_(register_module("bn", BatchNorm1d(width))),
      gate_norm_(register_module("bn_att", BatchNorm1d(width))) {}

at::Tensor ComformerConvolution::forward(const at::Tensor& x, const at::Tensor& edges, const CrystalBatch& batch) {
  const at::Tensor from = batch.edge_index[0];
  const at::Tensor to = batch.edge_index[1];
  const at::Tensor key = key_->forward(x);
  const at::Tensor value = value_->forward(x);
  const at::Tensor messages = gated({.query = query_->forward(x).index_select(0, to),
                                     .key_to = key.index_select(0, to),
                                     .key_from = key.index_select(0, from),
                                     .value_to = value.index_select(0, to),
                                     .value_from = value.index_select(0, from),
                                     .between = edge_->forward(edges)},
                                    *message_, *key_update_, *gate_norm_);
  const at::Tensor sums = segment_sum(messages, batch.edge_begin);
  return at::softplus(x + norm_->forward(combine_->forward(sums)));
}

}  // namespace oarlock
