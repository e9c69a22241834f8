/*
 * pool.h runs plans of libattention on several threads that stay awake between calls, as the
 * threads of OpenMP do. It is made for benchmarks. There can be one pool at a time.
 */
#ifndef BENCH_POOL_H
#define BENCH_POOL_H

#include "attention.h"

/* Starts a pool of 1 to 64 threads, of which the caller's is one. Exits the program on failure. */
void pool_start(int threads);

/* Ends the threads of the pool and joins them. */
void pool_end(void);

/* Runs a bound plan on all threads, or on the caller's thread alone if the plan costs less than the
 * work of handing its tasks out. May be called only between pool_wake and pool_rest. Exits the
 * program if the plan fails. */
void pool_run(attn_plan *plan);

/* Runs job(thread) on every thread at once. The caller's thread has the number 0. May be called
 * only between pool_wake and pool_rest. */
void pool_each(void (*job)(size_t thread));

/* Between pool_wake and pool_rest the threads wait for plans without sleeping. */
void pool_wake(void);
void pool_rest(void);

#endif
