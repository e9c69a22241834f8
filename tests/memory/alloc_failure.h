/*
 * alloc_failure.h - memory that runs out when a test says so. Linking alloc_failure.c replaces all
 * functions that allocate, for the whole process: malloc and its kin, strdup, mmap, mremap and
 * pthread_create. While the test is armed, their calls are counted, the call that the test names
 * fails, and each block that is allocated and not freed is known. These files know nothing of the
 * service.
 */
#ifndef MEMORY_ALLOC_FAILURE_H
#define MEMORY_ALLOC_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

/* Allocations of an exempt thread neither count nor fail. The first thread is exempt until it calls
 * this function; other threads are not. */
void alloc_failure_exempt(bool exempt);

/* Arms the test: allocation number `first` fails, and with `forever` also each one after it; with
 * 0 none fails. Blocks that were allocated before are forgotten. Allocations of OpenBLAS and of the
 * dynamic linker never count. */
void alloc_failure_arm(size_t first, bool forever);

/* Disarms the test: no allocation counts or fails any more, but freed blocks are still noted.
 * Returns how many allocations have failed. */
size_t alloc_failure_disarm(void);

/* Returns the number of allocations since alloc_failure_arm(). */
size_t alloc_failure_count(void);

/* Returns how many of these libmicrohttpd made. */
size_t alloc_failure_count_http(void);

/* Returns the number of blocks that were allocated while armed and are not freed. */
size_t alloc_failure_left(void);

/* Prints the blocks that are not freed on standard error, each with the address of the code that
 * allocated it, for addr2line. */
void alloc_failure_tell_left(void);

#endif
