// A thread that is never joined. It blocks all signals, so that the program's go to its own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace gannet {

/// While it lives the calling thread blocks all signals, and so do the threads that it starts, for good.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Runs work(argument), which does not throw, on a thread of its own; false where the system refuses one. Takes no
/// memory but the thread's stack.
inline bool run_detached(void* (*work)(void* argument), void* argument) {
  pthread_attr_t detached;
  if (pthread_attr_init(&detached) != 0) return false;
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  int refused = 0;
  {
    const SignalsBlocked blocked;
    refused = pthread_create(&thread, &detached, work, argument);
  }
  pthread_attr_destroy(&detached);
  return refused == 0;
}

}  // namespace gannet
