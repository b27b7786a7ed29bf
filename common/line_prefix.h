// How a launcher and the ranks that it starts agree on who writes "[RANK 3]" before each line of output.
#pragma once

namespace oarlock {

// Set for a process whose lines the launcher prefixes: its own log then has no prefix.
inline constexpr char kEnvLinesPrefixed[] = "OARLOCK_LINES_PREFIXED";

}  // namespace oarlock
