/* older_libc.c: what compiled code asks a C library of 2022 for and older ones lack. link_for.sh adds it to
 * binaries that are to run with those. */

#include <pthread.h>
#include <time.h>

/* Since glibc 2.32: whether there is one thread only, so that libstdc++ may count without atomics. 0: no. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

/* Since glibc 2.30: a wait up to a time of a clock of the caller's choice, by which idle workers end. The older call
 * knows the real time alone. Where that is set meanwhile the wait ends too early or too late, and libstdc++, which
 * looks at its own clock then, waits again or counts it as a wake without a cause. */
__attribute__((visibility("hidden"))) int pthread_cond_clockwait(pthread_cond_t *condition,
                                                                 pthread_mutex_t *mutex, clockid_t clock,
                                                                 const struct timespec *until) {
  const long long second = 1000000000;
  struct timespec now, real;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) return 22; /* EINVAL */
  const long long left = (until->tv_sec - now.tv_sec) * second + until->tv_nsec - now.tv_nsec;
  const long long at = real.tv_nsec + (left > 0 ? left : 0);
  const struct timespec end = {real.tv_sec + at / second, at % second};
  return pthread_cond_timedwait(condition, mutex, &end);
}
