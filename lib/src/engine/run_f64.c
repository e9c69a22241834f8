/*
 * run_f64.c compiles the templates of this folder for float64. run.inc says what the names mean.
 */
#include <stdint.h>

typedef double real;
typedef uint64_t ordinal;
typedef long double wider;
#define REAL(name) name##_f64

/* clang-format off */
#include "engine/run.inc"
#include "recurrent/chunks.inc"
#include "recurrent/chunk_weights.inc"
/* clang-format on */
