// Keeps the resident memory at what is in use.
#pragma once

namespace oarlock::control {

// Few arenas, and large blocks given back when they are freed. Before the first thread.
void tune_allocator();

// Gives free heap back to the system, and forgets the clean pages of program text and constants, which the kernel
// brings back (from its page cache) as they are used. After a start and a relist, which need more for a moment: symbol
// tables, relocations and the TLS library's tables then stay out.
void give_back_memory();

}  // namespace oarlock::control
