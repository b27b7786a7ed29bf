// The curves of a run as a picture.
#pragma once

#include <string>

#include "trainer/engine/history.h"

namespace oarlock {

// An SVG document of panels over the epochs: the loss in training and evaluation, each other metric, the learning rate.
// A number that is not finite leaves a gap in its curve. Without entries the panels are empty.
std::string render_curves(const History& history);

}  // namespace oarlock
