/*
 * guarded.h - memory of exactly the bytes that a test asks for. The page behind it has no access
 * rights, so a read or a write behind its end ends the test. A build with AddressSanitizer, which
 * sees more, takes the heap.
 */
#ifndef SUPPORT_GUARDED_H
#define SUPPORT_GUARDED_H

#include <stddef.h>

/* Returns zeros. Memory of a multiple of 64 bytes begins at a multiple of 64, and numbers are
 * always aligned. The test fails if there is no memory. Free it with guarded_free(). */
void *guarded_new(size_t bytes);
void guarded_free(void *memory);

#endif
