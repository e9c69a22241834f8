/*
 * crew.h runs plans of libattention on several threads that stay awake between calls, as the
 * threads of OpenMP do. It is made for benchmarks. There can be one crew at a time.
 */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include "attention.h"

/* Starts a crew of 1 to 64 threads, of which the caller's is one. Exits the program on failure. */
void crew_start(int threads);

/* Ends the threads of the crew and joins them. */
void crew_end(void);

/* Runs a bound plan on all threads, or on the caller's thread alone if the plan costs less than the
 * work of handing its tasks out. May be called only between crew_wake and crew_rest. Exits the
 * program if the plan fails. */
void crew_run(attn_plan *plan);

/* Runs job(thread) on every thread at once. The caller's thread has the number 0. May be called
 * only between crew_wake and crew_rest. */
void crew_each(void (*job)(size_t thread));

/* Between crew_wake and crew_rest the threads wait for plans without sleeping. */
void crew_wake(void);
void crew_rest(void);

#endif
