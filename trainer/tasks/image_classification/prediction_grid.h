// What the task shows in experiment trackers: images of the evaluation with the predictions of the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace oarlock::image_classification {

// Returns a grid of images [n, channels, height, width] in rows of eight, as RGB values from 0 to 255 [height, width,
// 3]. The contrast of each image is stretched. The frame of an image is green if `right` [n] is true, otherwise red.
at::Tensor prediction_grid(const at::Tensor& images, const at::Tensor& right);

// Returns a table in Markdown with the predicted class and the label of each image, both int64 [n].
std::string prediction_table(const at::Tensor& predicted, const at::Tensor& labels);

}  // namespace oarlock::image_classification
