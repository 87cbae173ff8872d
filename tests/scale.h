/* scale.h: how much smaller tests make their work than a Release build does. */
#ifndef GANNET_TESTS_SCALE_H
#define GANNET_TESTS_SCALE_H

#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GANNET_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GANNET_TEST_SANITIZED 1
#endif
#ifndef GANNET_TEST_SANITIZED
#define GANNET_TEST_SANITIZED 0
#endif

/* 1 if this program was compiled with a sanitizer. */
static inline int test_sanitized(void) { return GANNET_TEST_SANITIZED; }

/* Sanitizers make everything several times slower; tests divide their rows by this number, and those that need more
 * rows for what they show take a half or a third of them. The environment's GANNET_TEST_SCALE overrides what the
 * build set. */
static inline int test_scale(void) {
  const char* text = getenv("GANNET_TEST_SCALE");
  const int scale = text ? atoi(text) : GANNET_TEST_SANITIZED ? 4 : 1;
  return scale < 1 ? 1 : scale;
}

/* Whether the case of that number is among those that run: all, or under a sanitizer one of three, since what that
 * tells of one case it tells of its like. A number is the sum of the case's places among elements, metrics and so
 * on, so that each element still occurs, and each metric. */
static inline int test_takes(int number) { return test_scale() == 1 || number % 3 == 0; }

#endif
