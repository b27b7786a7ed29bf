// Propagation of errors, after Abseil's macros of the same names. For .cc files only: the names are not prefixed.
#pragma once

#include <utility>

#include "common/error.h"

// Evaluates an expression of type tl::expected<T, E>, and returns its error from the enclosing function if it holds
// one. A value is discarded. The enclosing function returns a tl::expected<U, E>.
//
//   RETURN_IF_ERROR(write_file(path, text));
#define RETURN_IF_ERROR(expression)                                   \
  do {                                                                \
    if (auto status_result = (expression); !status_result)            \
      return ::tl::make_unexpected(std::move(status_result).error()); \
  } while (false)

// Evaluates an expression of type tl::expected<T, E>, and returns its error if it holds one; otherwise assigns the
// value to `target`, which is a variable or a declaration. Expands to several statements, so it needs the braces of a
// block. A declaration that contains a comma needs a type alias.
//
//   ASSIGN_OR_RETURN(const std::string text, read_file(path));
#define ASSIGN_OR_RETURN(target, expression) \
  OARLOCK_ASSIGN_OR_RETURN(OARLOCK_CONCATENATE(status_result_, __LINE__), target, expression)

// NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared cannot have parentheses.
#define OARLOCK_ASSIGN_OR_RETURN(result, target, expression)            \
  auto result = (expression);                                           \
  if (!result) return ::tl::make_unexpected(std::move(result).error()); \
  target = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
#define OARLOCK_CONCATENATE(left, right) OARLOCK_CONCATENATE_EXPANDED(left, right)
#define OARLOCK_CONCATENATE_EXPANDED(left, right) left##right
