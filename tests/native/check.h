// The smallest test harness that reports a failed expression with its place and ends non-zero.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(expression)                                                             \
  do {                                                                                \
    if (!(expression)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #expression); \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)

#define CHECK_THROWS(expression, type)                                              \
  do {                                                                              \
    bool thrown = false;                                                            \
    try {                                                                           \
      (void)(expression);                                                           \
    } catch (const type&) {                                                         \
      thrown = true;                                                                \
    }                                                                               \
    if (!thrown) {                                                                  \
      std::fprintf(stderr, "%s:%d: did not throw " #type "\n", __FILE__, __LINE__); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)
