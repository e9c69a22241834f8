/* run_f64.c - the templates for float64. */
#include <stdint.h>

typedef double real;
typedef uint64_t ordinal;  /* as wide as real */
typedef long double wider; /* with more exponent and more digits */
#define REAL(name) name##_f64
#define REAL_NAME  "float64"
#include "engine/run.inc"
#include "engine/softmax.inc"
