// The heap's share of the resident memory.
#pragma once

namespace oarlock::control {

// One arena, and large blocks returned to the system when they are freed. Called before the first thread starts.
void tune_allocator();

// Returns free heap to the system: a start and a relist need more for a moment.
void trim_heap();

}  // namespace oarlock::control
