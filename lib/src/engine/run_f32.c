/*
 * run_f32.c compiles the templates of this folder for float32. run.inc says what the names mean.
 */
#include <stdint.h>

typedef float real;
typedef uint32_t ordinal;
typedef double wider;
#define REAL(name) name##_f32

/* clang-format off */
#include "engine/run.inc"
#include "recurrent/chunks.inc"
/* clang-format on */
