// What PyTorch calls types and their arguments, and what the trainer's configuration calls them.
#pragma once

#include <map>
#include <string>

namespace oarlock::convert {

using NameTable = std::map<std::string, std::string>;

const NameTable& optimizer_types();
const NameTable& optimizer_arguments();
const NameTable& schedule_types();
const NameTable& schedule_arguments();
const NameTable& criterion_types();  // modules and functions of torch.nn

// "AdamW, Adam and SGD are", for messages.
std::string list_of(const NameTable& known);

}  // namespace oarlock::convert
