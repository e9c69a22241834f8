/*
 * crew.h - runs plans of libattention on several threads that stay awake between calls, as OpenMP's
 * do; for benchmarks. One crew at a time.
 */
#ifndef BENCH_CREW_H
#define BENCH_CREW_H

#include "attention.h"

/* Starts threads - 1 threads beside the caller; 1 to 64. Exits the program on failure. */
void crew_start(int threads);

/* Ends and joins them. */
void crew_end(void);

/* Runs a bound plan on all threads; one that costs less than handing its tasks out runs on
 * the caller's. Only between crew_wake and crew_rest. Exits the program if the plan fails. */
void crew_run(attn_plan *plan);

/* Runs job(thread) at once on every thread, the caller's being 0. Only between crew_wake and
 * crew_rest. */
void crew_each(void (*job)(size_t thread));

/* Between these calls the threads wait for plans without sleeping. */
void crew_wake(void);
void crew_rest(void);

#endif
