/* older_libc.c: what compiled code asks a C library of 2022 for and older ones lack. link_for.sh adds it to
 * binaries that are to run with those. */

/* Since glibc 2.32: whether there is one thread only, so that libstdc++ may count without atomics. 0: no. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
