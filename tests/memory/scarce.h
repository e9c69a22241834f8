/*
 * scarce.h - memory that runs out when the test says so. Linking scarce.c replaces, for the whole
 * process, what allocates (malloc and its kin, strdup, mmap, mremap, also pthread_create): each
 * call is counted while armed, the one that the test names fails, and what was allocated meanwhile
 * and is not freed is known. Knows nothing of the service.
 */
#ifndef MEMORY_SCARCE_H
#define MEMORY_SCARCE_H

#include <stdbool.h>
#include <stddef.h>

/* What this thread allocates neither counts nor fails. So it is with the first thread until it is
 * told otherwise; with others it is not. */
void scarce_exempt(bool exempt);

/* From now on the `first`-th allocation fails, and if `forever` each one after it; 0 = none.
 * Forgets what was allocated before. OpenBLAS and the dynamic linker have as much as they want. */
void scarce_arm(size_t first, bool forever);

/* From now on nothing is counted and nothing fails; what is freed is still noted. Returns how many
 * allocations have failed. */
size_t scarce_disarm(void);

/* Allocations since scarce_arm. */
size_t scarce_count(void);

/* Blocks that were allocated while armed and are still there. */
size_t scarce_left(void);

/* Writes to stderr what is left, with the code that allocated it, for addr2line. */
void scarce_tell_left(void);

#endif
