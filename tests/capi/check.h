/* check.h: counts checks and prints the first that fail.
 *
 * A test is one executable. It calls CHECK and its kin as often as it likes, goes on after a
 * failure, and ends with `return finish("name")`, which prints one line with the counts.
 */
#ifndef GANNET_TESTS_CHECK_H
#define GANNET_TESTS_CHECK_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static uint64_t checks_made;
static uint64_t checks_failed;

/* A defect tends to fail a check thousands of times; the first few say what it is. */
enum { FAILURES_SHOWN = 30 };

__attribute__((format(printf, 4, 5), unused)) static int check_at(int good, const char *file, int line,
                                                                  const char *format, ...) {
  checks_made++;
  if (good) return 1;
  checks_failed++;
  if (checks_failed <= FAILURES_SHOWN) {
    const char *name = file;
    for (const char *c = file; *c; c++)
      if (*c == '/') name = c + 1;
    fprintf(stderr, "%s:%d: ", name, line);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    if (checks_failed == FAILURES_SHOWN) fprintf(stderr, "further failures are only counted\n");
  }
  return 0;
}

#define CHECK(condition) check_at((condition) ? 1 : 0, __FILE__, __LINE__, "%s", #condition)

/* As CHECK, with a text of its own: CHECK_SAY(a == b, "row %d", row). */
#define CHECK_SAY(condition, ...) check_at((condition) ? 1 : 0, __FILE__, __LINE__, __VA_ARGS__)

/* Whole numbers of any width. */
#define CHECK_EQUAL(got, wanted)                                                                             \
  do {                                                                                                       \
    const long long check_got = (long long)(got), check_wanted = (long long)(wanted);                        \
    check_at(check_got == check_wanted, __FILE__, __LINE__, "%s is %lld, wanted %s = %lld", #got, check_got, \
             #wanted, check_wanted);                                                                         \
  } while (0)

/* A call that must answer one status. */
#define CHECK_STATUS(call, wanted)                                                            \
  do {                                                                                        \
    const ann_status check_status = (call);                                                   \
    check_at(check_status == (wanted), __FILE__, __LINE__, "%s answers %s, wanted %s", #call, \
             ann_status_name(check_status), ann_status_name(wanted));                         \
  } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, ANN_OK)

__attribute__((unused)) static int finish(const char *name) {
  printf("%s: %llu checks, %llu failed\n", name, (unsigned long long)checks_made,
         (unsigned long long)checks_failed);
  return checks_failed == 0 ? 0 : 1;
}

#endif
