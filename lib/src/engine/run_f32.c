/* run_f32.c - the templates for float32. */
#include <stdint.h>

typedef float real;
typedef uint32_t ordinal; /* as wide as real */
typedef double wider;     /* with more exponent and more digits */
#define REAL(name) name##_f32
#define REAL_NAME  "float32"
#include "engine/run.inc"
#include "engine/softmax.inc"
