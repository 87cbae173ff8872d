// A thread that is never joined. It blocks all signals, so that the program's go to its own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace gannet {

/// Runs work(argument), which does not throw, on a thread of its own; false where the system refuses one. Takes no
/// memory but the thread's stack.
inline bool run_detached(void* (*work)(void* argument), void* argument) {
  pthread_attr_t detached;
  if (pthread_attr_init(&detached) != 0) return false;
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int refused = pthread_create(&thread, &detached, work, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&detached);
  return refused == 0;
}

}  // namespace gannet
